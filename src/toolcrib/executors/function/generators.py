"""Tools that are generators: they yield progress, parts of the output, and at last the value."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any

from toolcrib.spec import CallContext
from toolcrib.spec.calls.reports import Chunk, Progress

_NOTHING = object()


class _Yielded:
    """The value of a generator, from what it has yielded so far."""

    def __init__(self, ctx: CallContext) -> None:
        self._ctx = ctx
        self._chunks: list[str] = []
        self._value: Any = _NOTHING

    def take(self, item: Any) -> None:
        if isinstance(item, Progress):
            self._ctx.progress(item.done, item.total, item.message)
        elif isinstance(item, Chunk):
            self._ctx.chunk(item.text)
            self._chunks.append(item.text)
        else:
            self._value = item

    @property
    def value(self) -> Any:
        if self._value is not _NOTHING:
            return self._value
        return "".join(self._chunks) if self._chunks else None


async def drained(generator: AsyncGenerator[Any, None], ctx: CallContext) -> Any:
    """Report what an async generator yields, and return its value: the last that is no report."""
    found = _Yielded(ctx)
    async with aclosing(generator):
        async for item in generator:
            found.take(item)
    return found.value


def exhausted(generator: Generator[Any, None, Any], ctx: CallContext) -> Any:
    """Do the same for a plain generator, in the thread that calls this. What it returns is its value."""
    found = _Yielded(ctx)
    with closing(generator):
        while True:
            try:
                found.take(next(generator))
            except StopIteration as end:
                return found.value if end.value is None else end.value
