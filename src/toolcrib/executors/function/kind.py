"""Kind `function`: a Python function that is registered in this process."""

from __future__ import annotations

from pathlib import Path

from toolcrib.executors.host import Host
from toolcrib.manifest.kinds import Kind, in_process
from toolcrib.spec import Executor, FunctionExec, Tool


def _executor(tool: Tool, host: Host) -> Executor:
    assert isinstance(tool.config, FunctionExec)
    return host.function(tool, tool.config.reference)


KIND = Kind(
    name="function",
    config=FunctionExec,
    executor=_executor,
    schema=Path(__file__).with_name("schema.json"),
    docs=(
        "your own process, a thread, or a process of its own",
        "**nothing**: it is your code, with your rights",
    ),
    fixed=("reference",),
    touches=in_process,
    of_program=True,
    traced=lambda _: {"gen_ai.tool.type": "function"},
    untraceable=(
        "is a registered function: it runs in this process, which is not observed",
        "Make it a tool of kind python, which runs confined.",
    ),
)
