"""Kind `sql`: one SQL statement, its values bound to parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from toolcrib.executors.host import in_workspace
from toolcrib.manifest.kinds import Kind, block_of, duration
from toolcrib.spec import Permissions, SqlExec, Tool

__all__ = ["KIND"]

_ORDER = ("engine", "database", "statement", "parameters", "connection", "timeout_ms")


def _parse(block: dict[str, Any]) -> SqlExec:
    return SqlExec(
        engine=block["engine"],
        statement=block["statement"],
        database=block.get("database"),
        parameters=tuple(block.get("parameters", ())),
        connection=block.get("connection") or {},
        timeout_ms=duration(block.get("timeout_ms")),
    )


def _write(config: SqlExec) -> dict[str, Any]:
    block = block_of(config)
    return {key: block[key] for key in _ORDER if key in block}


def _granted(tool: Tool, granted: Permissions) -> Permissions:
    return replace(tool.permissions, write=granted.write)


KIND = Kind(
    name="sql",
    config=SqlExec,
    executor=in_workspace("toolcrib.executors.sql.executor:SqlExecutor"),
    schema=Path(__file__).with_name("schema.json"),
    parse=_parse,
    write=_write,
    templated=("parameters", "connection"),
    fixed=("statement", "database"),
    granted=_granted,
    confined=True,
    untraceable=(
        "runs a query of its manifest: it needs the file or the host of its database",
        "Write that under permissions; `toolcrib lint` says what is missing.",
    ),
)
