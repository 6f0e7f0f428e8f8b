"""Kind `greeting`: a text with the arguments of a call filled in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from toolcrib.executors import Host
from toolcrib.manifest import Kind
from toolcrib.spec import Call, CallContext, ExecConfig, Executor, Outcome, Tool
from toolcrib.template import Namespaces, Values, parse, render_value


@dataclass(frozen=True, slots=True)
class GreetingExec(ExecConfig):
    """The block `exec.greeting`."""

    text: str
    loud: bool = False


class GreetingExecutor:
    """Fills in one text. Templates are parsed when the executor is made."""

    def __init__(self, tool: Tool) -> None:
        assert isinstance(tool.config, GreetingExec)
        self._tool = tool
        self._loud = tool.config.loud
        self._text = parse(tool.config.text, Namespaces.of(tool))

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Run one attempt."""
        text = str(render_value(self._text, Values.of(self._tool, call, ctx)))
        return Outcome(text.upper() if self._loud else text)


def _executor(tool: Tool, host: Host) -> Executor:  # noqa: ARG001 - it needs nothing of its project
    return GreetingExecutor(tool)


KIND = Kind(
    name="greeting",
    config=GreetingExec,
    executor=_executor,
    schema=Path(__file__).with_name("schema.json"),
    templated=("text",),
)
