"""Objects as tools: their state, and what they open and close with their toolset."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from toolcrib import Context, Toolset
from toolcrib.errors import DefinitionError, UsageError

# -- objects with state ------------------------------------------------------------------------


class Weather:
    """As in the Go interface, but with attributes."""

    name = "get_weather"
    description = "Get the weather"
    input_schema: ClassVar[Any] = {
        "type": "object",
        "properties": {"location": {"type": "string"}, "unit": {"enum": ["C", "F"], "default": "C"}},
        "required": ["location"],
    }

    def __init__(self, log: list[str] | None = None) -> None:
        self.cache: dict[str, int] = {}
        self.log = [] if log is None else log

    async def execute(self, arguments: dict[str, Any]) -> Any:
        self.cache[arguments["location"]] = self.cache.get(arguments["location"], 0) + 1
        return [arguments, self.cache[arguments["location"]]]


class Methods:
    """As in the Go interface."""

    def name(self) -> str:
        return "methods"

    def description(self) -> str:
        return "All methods"

    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"a": {"type": "integer"}}}

    def execute(self, arguments: dict[str, Any], ctx: Context) -> Any:
        return [arguments, ctx.tool]


async def test_an_object_keeps_its_state() -> None:
    tools = Toolset()
    tools.register(Weather())

    assert await tools.execute("get_weather", {"location": "Bern"}) == [{"location": "Bern", "unit": "C"}, 1]
    assert await tools.execute("get_weather", {"location": "Bern", "unit": "F"}) == [
        {"location": "Bern", "unit": "F"},
        2,
    ]
    assert (await tools.call("get_weather")).error.code == "invalid_input"  # type: ignore[union-attr]


async def test_an_object_of_methods_and_context() -> None:
    tools = Toolset()
    tools.register(Methods())
    tools.register("again", Methods(), description="Again", tags=["t"])

    assert await tools.execute("methods", {"a": 2.0}) == [{"a": 2}, "methods"]
    assert (tools.get("again").description, tools.get("again").tags) == ("Again", ("t",))


class TwoParameters(Weather):
    async def execute(self, location: str, unit: str) -> Any:  # type: ignore[override]
        return None


class BadSchema(Weather):
    input_schema: ClassVar[Any] = {"type": "string"}


@pytest.mark.parametrize(
    ("target", "options", "says"),
    [
        (Weather, {}, "is a class; register an instance"),
        (TwoParameters(), {}, "takes the arguments as one dict"),
        (BadSchema(), {}, "must have type: object"),
        (Methods(), {"isolation": "process"}, "cannot receive the context"),
        (Weather(), {"isolation": "process"}, "keeps its state here"),
    ],
)
def test_a_bad_object_is_refused(target: Any, options: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        Toolset().register(target, **options)


class Pool(Weather):
    """Opened and closed."""

    def __init__(self, name: str, log: list[str], fails: str = "") -> None:
        super().__init__(log)
        self.name = name
        self.fails = fails

    async def open(self) -> None:
        self.log.append(f"open {self.name}")
        if self.fails == "open":
            raise OSError(f"{self.name} cannot open")

    async def close(self) -> None:
        self.log.append(f"close {self.name}")
        if self.fails == "close":
            raise OSError(f"{self.name} cannot close")


class SyncPool(Pool):
    def open(self) -> None:  # type: ignore[override]
        self.log.append(f"open {self.name}")

    def close(self) -> None:  # type: ignore[override]
        self.log.append(f"close {self.name}")


class Managed(Weather):
    """An async context manager."""

    name = "managed"

    async def __aenter__(self) -> Managed:
        self.log.append("enter")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.log.append("exit")


HERE = {"location": "Bern"}


async def test_objects_are_opened_and_closed_with_their_toolset() -> None:
    tools, log = Toolset(), []  # type: tuple[Toolset, list[str]]
    for target in (Pool("a", log), SyncPool("b", log), Managed(log)):
        tools.register(target)
    async with tools as entered:
        assert entered is tools
        assert (await tools.call("a", HERE)).ok
    assert log == ["open a", "open b", "enter", "exit", "close b", "close a"]

    async with tools:
        assert (await tools.call("managed", HERE)).ok
    assert len(log) == 12


async def test_an_object_that_is_not_open_is_not_called() -> None:
    tools = Toolset()
    tools.register(Pool("a", []))
    before = await tools.call("a", HERE)
    async with tools:
        pass
    after = await tools.call("a", HERE)

    for result in (before, after):
        assert result.error is not None
        assert (result.error.code, result.error.message) == ("tool_unavailable", "a is not open")
        assert result.attempts == 1


async def test_all_are_closed_even_if_one_fails() -> None:
    tools, log = Toolset(), []  # type: tuple[Toolset, list[str]]
    for target in (Pool("a", log), Pool("b", log, "close"), Pool("c", log, "close")):
        tools.register(target)
    with pytest.raises(ExceptionGroup) as caught:
        async with tools:
            pass

    assert log[3:] == ["close c", "close b", "close a"]
    assert [str(error) for error in caught.value.exceptions] == ["c cannot close", "b cannot close"]


async def test_if_one_cannot_open_those_before_are_closed() -> None:
    tools, log = Toolset(), []  # type: tuple[Toolset, list[str]]
    for target in (Pool("a", log), Pool("b", log, "open"), Pool("c", log)):
        tools.register(target)
    with pytest.raises(OSError, match="b cannot open"):
        await tools.__aenter__()

    assert log == ["open a", "open b", "close a"]


async def test_an_object_in_two_toolsets_is_opened_once() -> None:
    tools, log = Toolset(), []  # type: tuple[Toolset, list[str]]
    tools.register(Pool("a", log))
    tools.register(Pool("b", log))
    view = tools.filter("a")
    async with tools:
        async with view:
            assert (await view.call("a", HERE)).ok
        assert (await tools.call("a", HERE)).ok
    assert log == ["open a", "open b", "close b", "close a"]

    async with view:
        assert (await view.call("a", HERE)).ok
    assert log[4:] == ["open a", "close a"]


def test_call_sync_opens_and_closes_around_its_one_call() -> None:
    tools, log = Toolset(), []  # type: tuple[Toolset, list[str]]
    tools.register(Pool("a", log))

    assert tools.call_sync("a", HERE).ok
    assert log == ["open a", "close a"]


def test_a_view_reads_arguments_as_its_toolset_does() -> None:
    tools = Toolset(lenient=True)

    @tools.tool
    def increased(number: int) -> int:
        """Add one."""
        return number + 1

    view = tools.filter("increased")
    assert view.call_sync("increased", {"number": "2"}).value == 3
    assert tools.call_sync("increased", {"number": "2"}).value == 3


async def test_a_toolset_says_why_it_cannot_be_run_in_a_coroutine() -> None:
    with pytest.raises(UsageError, match="an event loop runs here already"):
        Toolset().run()
