"""Registered Python callables: coroutine functions, functions in threads, inline, or in their own process."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, closing
from functools import partial
from typing import Any, cast

from toolcrib.errors import DefinitionError
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.schema.derive import FunctionShape
from toolcrib.spec import Call, CallContext, Executor
from toolcrib.spec.calls.call import Chunk, Progress

_Run = Callable[[Call, CallContext], Coroutine[Any, Any, Any]]
_ISOLATIONS = ("async", "inline", "thread", "process")


class _Function:
    """The executor of one callable."""

    __slots__ = ("run",)

    def __init__(self, run: _Run) -> None:
        self.run = run


def function_executor(
    function: Callable[..., Any],
    isolation: str,
    adapt: Callable[[dict[str, Any]], dict[str, Any]] | None,
    context_parameter: str | None,
) -> Executor:
    """Return the executor of one callable. `isolation` is `async`, `inline`, `thread` or `process`.

    `adapt` makes keyword arguments of the checked arguments.
    """

    def arguments(call: Call, ctx: CallContext) -> dict[str, Any]:
        given: Any = call.arguments
        adapted = dict(given) if adapt is None else adapt(given)
        if context_parameter is not None:
            adapted[context_parameter] = ctx
        return adapted

    def plain(call: Call, ctx: CallContext) -> Coroutine[Any, Any, Any]:  # noqa: ARG001
        return function(**call.arguments)  # type: ignore[no-any-return, arg-type]

    def waiting(call: Call, ctx: CallContext) -> Coroutine[Any, Any, Any]:
        return function(**arguments(call, ctx))  # type: ignore[no-any-return]

    async def inline(call: Call, ctx: CallContext) -> Any:
        value = function(**arguments(call, ctx))
        if inspect.isasyncgen(value):
            return await drained(cast(Any, value), ctx)
        return exhausted(cast(Any, value), ctx) if inspect.isgenerator(value) else value

    async def in_thread(call: Call, ctx: CallContext) -> Any:
        value = await run_in_thread(partial(function, **arguments(call, ctx)))
        # Only the call shows it: a plain function may return any of these.
        if inspect.isasyncgen(value):
            return await drained(cast(Any, value), ctx)
        if inspect.isgenerator(value):
            return await run_in_thread(partial(exhausted, cast(Any, value), ctx))
        return await value if inspect.isawaitable(value) else value

    async def in_process(call: Call, ctx: CallContext) -> Any:
        from toolcrib.executors.function.isolated import run_in_process

        return await run_in_process(function, arguments(call, ctx))

    ways: tuple[_Run, ...] = (waiting, inline, in_thread, in_process)
    run = dict(zip(_ISOLATIONS, ways, strict=True))[isolation]
    if isolation == "async" and adapt is None and context_parameter is None:
        run = plain
    return cast(Executor, _Function(run))


def isolation_of(name: str, shape: FunctionShape, wanted: str) -> str:
    """Return the isolation of a function. Raises DefinitionError if the wanted one does not fit it."""
    function = shape.function
    is_async = inspect.iscoroutinefunction(function) or (
        not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)
    )
    if not wanted:
        return "async" if is_async else "thread"
    if wanted not in _ISOLATIONS:
        known = ", ".join(_ISOLATIONS)
        raise DefinitionError(f"{name}: there is no isolation {wanted!r}", hint=f"Use one of: {known}.")
    if wanted != "process" and (wanted == "async") != is_async:
        what = "a coroutine function" if is_async else "not a coroutine function"
        raise DefinitionError(f"{name}: isolation {wanted!r} does not fit: it is {what}")
    if wanted == "process":
        if shape.context_parameter is not None:
            raise DefinitionError(f"{name}: a function in its own process cannot receive the context")
        if "<" in getattr(function, "__qualname__", ""):
            raise DefinitionError(
                f"{name}: only a function at the top level of a module can run in its own process"
            )
    return wanted


class _Yielded:
    """The value of a generator, from all that it has yielded."""

    def __init__(self, ctx: CallContext | None) -> None:
        self._ctx = ctx
        self._chunks: list[str] = []
        self._values: list[Any] = []
        self._reports = False

    def take(self, item: Any) -> None:
        """Report a progress or a chunk; keep any other item."""
        if isinstance(item, Progress):
            self._reports = True
            if self._ctx is not None:
                self._ctx.progress(item.done, item.total, item.message)
        elif isinstance(item, Chunk):
            self._reports = True
            self._chunks.append(item.text)
            if self._ctx is not None:
                self._ctx.chunk(item.text)
        else:
            self._values.append(item)

    @property
    def value(self) -> Any:
        """All items: text in one piece, else a list. A single item beside reports is the value itself."""
        items = self._values
        if not items and self._reports:
            return "".join(self._chunks) if self._chunks else None
        if items and all(isinstance(item, str) for item in items):
            return "".join(items)
        return items[0] if self._reports and len(items) == 1 else items


async def drained(generator: AsyncGenerator[Any, None], ctx: CallContext | None) -> Any:
    """Report what an async generator yields, and return its value."""
    found = _Yielded(ctx)
    async with aclosing(generator):
        async for item in generator:
            found.take(item)
    return found.value


def exhausted(generator: Generator[Any, None, Any], ctx: CallContext | None) -> Any:
    """Do the same for a plain generator, in the thread that calls this. What it returns is its value."""
    found = _Yielded(ctx)
    with closing(generator):
        while True:
            try:
                found.take(next(generator))
            except StopIteration as end:
                return found.value if end.value is None else end.value
