"""Kind `python`: a function of a module, called in a confined interpreter of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolcrib.executors.host import Host
from toolcrib.manifest.kinds import Kind, block_of, duration
from toolcrib.spec import Executor, PythonExec, Tool

__all__ = ["KIND"]


def _parse(block: dict[str, Any]) -> PythonExec:
    get = block.get
    return PythonExec(
        module=block["module"],
        function=block["function"],
        args=tuple(get("args", ())),
        kwargs=get("kwargs") or {},
        venv=get("venv"),
        cwd=get("cwd", "."),
        returns=get("return", "json"),
        timeout_ms=duration(get("timeout_ms")),
    )


def _write(config: PythonExec) -> dict[str, Any]:
    return {"return" if key == "returns" else key: value for key, value in block_of(config).items()}


def _executor(tool: Tool, host: Host) -> Executor:
    from toolcrib.executors.python.executor import PythonExecutor

    return PythonExecutor(tool, host.workspace())


KIND = Kind(
    name="python",
    config=PythonExec,
    executor=_executor,
    schema=Path(__file__).with_name("schema.json"),
    parse=_parse,
    write=_write,
    templated=("args", "kwargs"),
    fixed=("cwd", "venv", "module", "function"),
    confined=True,
    for_agents=True,
    untraceable=None,
)
