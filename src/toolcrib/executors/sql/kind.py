"""Kind `sql`: one SQL statement, its values bound to parameters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolcrib.executors.host import Host
from toolcrib.manifest.kinds import Kind, block_of, in_workspace
from toolcrib.manifest.plugins import on_call
from toolcrib.manifest.starter import Starter
from toolcrib.manifest.yaml.diagnostics import Diagnostic
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import Executor, SqlExec, Tool


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
        on_call("toolcrib.executors.sql.starter:make"),
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
