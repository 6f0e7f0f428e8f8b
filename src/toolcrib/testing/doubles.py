"""A toolset of mocks, a store in memory, and a clock that a test moves."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from toolcrib.bundles import Store
from toolcrib.core import toolset as core
from toolcrib.errors import InvalidInput, InvalidOutput, NotFoundError
from toolcrib.schema import SchemaCheck, to_json
from toolcrib.spec.record import record
from toolcrib.toolset import Toolset


class _Any:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "ANY"


ANY: Any = _Any()
"""Matches any value of an argument."""


@record
class Recorded:
    """One call that a mock has received."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Stub:
    """The answers of one tool to calls whose arguments match."""

    matches: Mapping[str, Any]
    answers: list[Any] = field(default_factory=list)
    delay_s: float = 0.0
    calls: int = 0
    check: SchemaCheck | None = None
    """The schema of the answers, if the mocked tool has one."""

    def returns(self, *values: Any) -> Self:
        """Answer with these values, one a call; the last one is repeated.

        Raises `InvalidOutput` for a value that the tool itself would not return.
        """
        for value in values if self.check is not None else ():
            _refuse(InvalidOutput, "the answer", self.check, to_json(value))
        self.answers += values
        return self

    def raises(self, *errors: Exception) -> Self:
        """Fail with these errors, one a call, after the answers given so far; the last one is repeated."""
        self.answers += errors
        return self

    def after(self, seconds: float) -> Self:
        """Wait before each answer."""
        self.delay_s = seconds
        return self

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if each argument that was named has the value that was named, or passes its test."""
        return all(
            name in arguments and _matches(wanted, arguments[name]) for name, wanted in self.matches.items()
        )

    async def answer(self) -> Any:
        """Return or raise the next answer; None if none was given."""
        number = min(self.calls, len(self.answers) - 1)
        self.calls += 1
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        found = self.answers[number] if self.answers else None
        if isinstance(found, Exception):
            raise found
        return found


def _matches(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, type):
        return isinstance(value, wanted)
    return bool(wanted(value)) if callable(wanted) else bool(wanted == value)


def _refuse(
    kind: type[InvalidInput | InvalidOutput], what: str, check: SchemaCheck | None, value: Any
) -> None:
    """Raise the error if the value does not match the schema."""
    if check is not None and not check.is_valid(value):
        violations = check.violations(value)
        listed = "; ".join(f"{one.path} {one.message}" for one in violations)
        raise kind(f"{what} does not match the tool's schema: {listed}", violations=violations)


class MockTools(Toolset):
    """A `Toolset` whose tools are mocks. `like`, another toolset, gives them its descriptions and schemas.

    A call that no stub matches fails with `not_found`. Errors of a stub take the call path like those of a
    real tool: a `RetryableError` is retried.
    """

    def __init__(self, *, like: core.Toolset | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._like = like
        self._stubs: dict[str, list[Stub]] = {}
        self.calls: list[Recorded] = []
        """Every call in order, with its checked arguments."""

    def on(self, tool: str, /, **arguments: Any) -> Stub:
        """Return the stub for calls with these arguments, whatever others there are.

        Each is a value, `ANY`, a type, or a function that returns True for a value that fits. The stub that
        was made last is tried first. Raises `InvalidInput` for arguments that the tool of `like` refuses.
        """
        if tool not in self._stubs:
            self._make(tool)
            self._stubs[tool] = []
        stub = self._wanted(tool, arguments)
        self._stubs[tool].insert(0, stub)
        return stub

    def _wanted(self, tool: str, arguments: Mapping[str, Any]) -> Stub:
        """Return a stub for arguments that the tool can have."""
        if self._like is None:
            return Stub(arguments)
        like = self._like.get(tool)
        words = ("$defs", "definitions", "properties", "additionalProperties")
        schema = {word: like.input_schema[word] for word in words if word in like.input_schema}
        rules = schema["properties"] = dict(schema.get("properties", {}))
        matches, given = dict(arguments), {}
        for name, wanted in arguments.items():
            if wanted is not ANY and not callable(wanted):
                given[name] = matches[name] = to_json(wanted)
                continue
            given[name] = None
            if name in rules or schema.get("additionalProperties", True) is not False:
                rules[name] = True
        _refuse(InvalidInput, f"an argument of {tool}", SchemaCheck(schema), given)
        output = like.output.schema
        return Stub(matches, check=None if output is None else SchemaCheck(output))

    def _make(self, name: str) -> None:
        async def mock(**arguments: Any) -> Any:
            self.calls.append(Recorded(name, arguments))
            for stub in self._stubs[name]:
                if stub.fits(arguments):
                    return await stub.answer()
            raise NotFoundError(f"no stub of {name} matches the arguments {arguments!r}")

        if self._like is not None:
            tool = self._like.get(name)
            options: dict[str, Any] = {"description": tool.description, "input_schema": tool.input_schema}
        else:
            options = {"description": f"A mock of {name}.", "input_schema": {"type": "object"}}
        self.register(name, mock, **options)

    def called(self, tool: str, /, **arguments: Any) -> list[Recorded]:
        """Return the calls of a tool with these arguments."""
        wanted = self._wanted(tool, arguments)
        return [one for one in self.calls if one.tool == tool and wanted.fits(one.arguments)]

    def assert_called(self, tool: str, /, times: int | None = None, **arguments: Any) -> None:
        """Raise AssertionError unless the tool was called with these arguments; exactly `times`, if given."""
        found = len(self.called(tool, **arguments))
        if found == 0 if times is None else found != times:
            wanted = "at least once" if times is None else f"{times} times"
            seen = "; ".join(f"{one.tool}({dict(one.arguments)})" for one in self.calls) or "no call"
            raise AssertionError(f"{tool} with {arguments} was to be called {wanted}, not {found}: {seen}")

    def assert_not_called(self, tool: str, /, **arguments: Any) -> None:
        """Raise AssertionError if the tool was called with these arguments."""
        self.assert_called(tool, times=0, **arguments)


_MEMORY = "/dev/shm"  # noqa: S108 - a folder of the kernel's, in memory


class MemoryStore(Store):
    """A `Store` in a folder in memory, removed by `close`. Options are those of `Store`."""

    def __init__(self, **options: Any) -> None:
        place = _MEMORY if Path(_MEMORY).is_dir() else None
        self._temporary = tempfile.TemporaryDirectory(prefix="toolcrib-", dir=place)
        super().__init__(Path(self._temporary.name), **options)

    def close(self) -> None:
        """Remove everything."""
        self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeClock:
    """A `Clock` that jumps. Give it to a `Toolset` to see how long it would have waited between attempts."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self.slept: list[float] = []
        """Every wait asked for, in seconds, in order."""

    def now(self) -> float:
        """Seconds, moved on only by `sleep` and `advance`."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Move on by this many seconds. Other tasks get their turn, as they would."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Move on by this many seconds."""
        self._now += seconds
