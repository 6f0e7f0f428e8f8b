"""Kind `builtin`: another name and schema for a function that is registered in the same toolset."""

from __future__ import annotations

from toolcrib.executors.host import Host
from toolcrib.manifest.kinds import Kind
from toolcrib.spec import BuiltinExec, Executor, Tool


def _executor(tool: Tool, host: Host) -> Executor:
    from toolcrib.executors.builtin.executor import BuiltinExecutor

    return BuiltinExecutor(tool, host.catalog)


KIND = Kind(
    name="builtin",
    config=BuiltinExec,
    executor=_executor,
    fixed=("function",),
    untraceable=(
        "calls a registered function: it runs in this process, which is not observed",
        "Make it a tool of kind python, which runs confined.",
    ),
)
