"""Kind `sql`: one SQL statement, its values bound to parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolcrib.errors import UsageError
from toolcrib.executors.host import Host
from toolcrib.manifest.kinds import Kind, block_of, in_workspace
from toolcrib.manifest.starter import Answers, Made, Starter, placeholders, replaced
from toolcrib.manifest.yaml.diagnostics import Diagnostic
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import Executor, SqlExec, Tool

_TEXT = re.compile(r"'[^']*'")
_NAME = re.compile(r"[:@$]([A-Za-z_]\w*)")


def _make(answers: Answers) -> Made:
    """Return a query of an SQLite file, the first path that it may read."""
    runs = answers.runs
    if not runs:
        raise UsageError("an SQL tool needs a statement", hint="--run 'SELECT * FROM t WHERE id = ${id}'")
    if named := _NAME.search(_TEXT.sub("", runs)):
        raise UsageError(f"`{named[0]}` has no value", hint=f"Write ${{{named[1]}}} in its place.")
    if quoted := placeholders("".join(_TEXT.findall(runs))):
        raise UsageError(f"${{{quoted[0]}}} in quotes is not a value", hint="Remove the quotes around it.")
    used = placeholders(runs)
    read = answers.read or ("data.db",)
    block: dict[str, Any] = {"engine": "sqlite", "database": read[0], "statement": replaced(runs, "?")}
    if values := [f"${{{name}}}" for name in (*used, *(one for one in answers.arguments if one not in used))]:
        block["parameters"] = values
    return Made(block, {"fs": {"read": [*read], "write": [*answers.write]}})


def _write(config: SqlExec) -> dict[str, Any]:
    block = block_of(config)
    return {key: block[key] for key in ("engine", "database", *block) if key in block}


_sqlite = in_workspace("toolcrib.executors.sql.executor:SqlExecutor")


def _executor(tool: Tool, host: Host) -> Executor:
    assert isinstance(tool.config, SqlExec)
    if tool.config.engine == "sqlite":
        return _sqlite(tool, host)
    from toolcrib.executors.sql.postgres import PostgresExecutor

    return PostgresExecutor(tool, host)


def _lint(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check a statement on Postgres: its parameters, and the secret with the address."""
    from toolcrib.executors.sql.postgres import postgres_faults

    assert isinstance(tool.config, SqlExec)
    if tool.config.engine == "postgres":
        for path, reason, hint in postgres_faults(tool):
            yield document.diagnostic("wrong-value", reason, ("exec", "sql", *path), hint=hint)


def _traced(config: SqlExec) -> dict[str, str]:
    system = "postgresql" if config.engine == "postgres" else config.engine
    return {"gen_ai.tool.type": "datastore", "db.system.name": system}


KIND = Kind(
    name="sql",
    config=SqlExec,
    executor=_executor,
    lint=_lint,
    starter=Starter(
        _make,
        runs="Which statement? (such as: SELECT * FROM things WHERE id = ${id})",
        reads="Which SQLite file? [data.db]",
    ),
    schema=Path(__file__).with_name("schema.json"),
    docs=("a confined interpreter of its own", "the kernel"),
    write=_write,
    templated=("parameters",),
    fixed=("statement", "database"),
    traced=_traced,
    confined=True,
    untraceable=(
        "runs a query of its manifest: it needs the file or the host of its database",
        "Write that under permissions; `toolcrib lint` says what is missing.",
    ),
)
