"""Kind `greeting`: a text with the arguments of a call filled in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolcrib.errors import UsageError
from toolcrib.executors import Host
from toolcrib.manifest import Answers, Kind, Made, Starter
from toolcrib.spec import Annotations, Call, CallContext, ExecConfig, Executor, Outcome, Tool
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


def _touches(tool: Tool) -> Iterator[str]:
    """Yield what a person must trust: only a loud greeting does more than its permissions say."""
    assert isinstance(tool.config, GreetingExec)
    if tool.config.loud:
        yield "wake the neighbours"


def _begun(answers: Answers) -> Made:
    """Make the block of a new tool of what a person has answered."""
    if not answers.runs:
        raise UsageError("a greeting needs its text", hint="--run 'Hello, ${name}!'")
    return Made({"text": answers.runs})


KIND = Kind(
    name="greeting",
    config=GreetingExec,
    executor=_executor,
    schema=Path(__file__).with_name("schema.json"),
    templated=("text",),
    docs=("in the process of Toolcrib", "its own code: it only writes a text"),
    starter=Starter(_begun, runs="What does it say? (such as: Hello, ${name}!)", format="text"),
    touches=_touches,
    annotations=lambda _: Annotations(read_only=True, idempotent=True),
    traced=lambda config: {"greeting.volume": "loud" if config.loud else "normal"},
)
