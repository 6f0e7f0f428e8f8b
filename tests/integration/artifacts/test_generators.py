"""Tools that report while they work: generators, and commands line by line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Result, Toolset
from toolcrib.spec import CallEvent, Chunk, Progress


async def told(tools: Toolset, name: str, arguments: dict[str, Any] | None = None) -> tuple[list[Any], Any]:
    seen: list[Any] = []
    result: Any = None
    async for event in tools.stream(name, arguments or {}):
        if isinstance(event, Result):
            result = event.unwrap()
        elif event.kind == "progress":
            seen.append((event.done, event.total, event.message))
        elif event.kind == "chunk":
            seen.append(event.text)
    return seen, result


async def test_an_async_generator_reports_and_ends_with_its_value() -> None:
    tools = Toolset()

    @tools.tool
    async def work(n: int) -> AsyncIterator[Any]:
        """Work."""
        for done in range(n):
            yield Progress(done, n, "busy")
        yield Chunk("part")
        yield {"done": n}

    seen, value = await told(tools, "work", {"n": 2})
    assert seen == [(0, 2, "busy"), (1, 2, "busy"), "part"]
    assert value == {"done": 2}


async def test_chunks_alone_are_the_value_also_of_a_plain_generator() -> None:
    tools = Toolset()

    @tools.tool
    def write() -> Iterator[Any]:
        """Write."""
        yield Chunk("a")
        yield Chunk("b")

    assert await told(tools, "write") == (["a", "b"], "ab")


def plain_words(n: int) -> Iterator[str]:
    for number in range(n):
        yield f"{number} "


def plain_rows(n: int) -> Iterator[Any]:
    for number in range(n):
        yield {"n": number}


async def slow_words(n: int) -> AsyncIterator[str]:
    for text in plain_words(n):
        yield text


async def slow_rows(n: int) -> AsyncIterator[Any]:
    for row in plain_rows(n):
        yield row


def with_total(n: int) -> Generator[Any, None, Any]:
    yield from range(n)
    return {"total": n}


@pytest.mark.parametrize("isolation", ["thread", "inline", "process"])
@pytest.mark.parametrize(
    ("function", "value"),
    [
        (plain_words, "0 1 2 "),
        (slow_words, "0 1 2 "),
        (plain_rows, [{"n": 0}, {"n": 1}, {"n": 2}]),
        (slow_rows, [{"n": 0}, {"n": 1}, {"n": 2}]),
        (with_total, {"total": 3}),
    ],
)
async def test_a_generator_returns_all_that_it_yields(function: Any, value: Any, isolation: str) -> None:
    tools = Toolset()
    tools.register(function, isolation=isolation)

    assert (await tools.call(function.__name__, {"n": 3})).unwrap() == value


async def test_a_generator_of_nothing_and_of_one_row_is_a_list() -> None:
    tools = Toolset()
    tools.register(plain_rows)

    assert (await tools.call("plain_rows", {"n": 0})).unwrap() == []
    assert (await tools.call("plain_rows", {"n": 1})).unwrap() == [{"n": 0}]


async def test_leaving_early_ends_the_generator() -> None:
    tools = Toolset()
    ended = []

    @tools.tool
    async def endless() -> AsyncIterator[Any]:
        """Never end by itself."""
        import asyncio

        try:
            while True:
                yield Progress(1)
                await asyncio.sleep(0.01)
        finally:
            ended.append(True)

    stream = tools.stream("endless")
    async for event in stream:
        if isinstance(event, CallEvent) and event.kind == "progress":
            break
    await stream.aclose()
    assert ended == [True]


@pytest.mark.usefixtures("kernel")
async def test_a_command_gives_its_lines_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = Toolset()
    tools.register_builtins("exec", roots=tmp_path)
    go = tmp_path / "go"
    seen: list[str] = []
    async for event in tools.stream(
        "exec", {"command": "echo one; while [ ! -e go ]; do sleep 0.05; done; printf 'two\\nrest'"}
    ):
        if isinstance(event, CallEvent) and event.kind == "chunk":
            seen.append(event.text)
            go.touch()  # The command goes on only after its first line has arrived here.
        elif isinstance(event, Result):
            assert event.unwrap() == "one\ntwo\nrest"
    assert seen[0] == "one\n"
    assert "".join(seen) == "one\ntwo\nrest"
