"""Registered Python callables: coroutine functions, functions in threads, inline, or in their own process."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, closing
from functools import partial
from typing import Any, cast

from toolcrib.errors import DefinitionError
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.schema import FunctionShape
from toolcrib.spec import Call, CallContext, Executor
from toolcrib.spec.calls.call import Chunk, Progress

_Adapter = Callable[[dict[str, Any]], dict[str, Any]]


class _Callable:
    """A callable, and the adapter from checked arguments to its keyword arguments."""

    __slots__ = ("_adapt", "_context_parameter", "_function", "_plain")

    def __init__(
        self, function: Callable[..., Any], adapt: _Adapter | None, context_parameter: str | None
    ) -> None:
        self._function = function
        self._adapt = adapt
        self._context_parameter = context_parameter
        self._plain = adapt is None and context_parameter is None

    def _arguments(self, call: Call, ctx: CallContext) -> Any:
        given: Any = call.arguments
        if self._plain:
            return given
        arguments = dict(given) if self._adapt is None else self._adapt(given)
        if self._context_parameter is not None:
            arguments[self._context_parameter] = ctx
        return arguments


class _Async(_Callable):
    """A coroutine function on the event loop."""

    __slots__ = ()

    def run(self, call: Call, ctx: CallContext) -> Coroutine[Any, Any, Any]:
        arguments: Any = call.arguments if self._plain else self._arguments(call, ctx)
        return self._function(**arguments)  # type: ignore[no-any-return]


class _Inline(_Callable):
    """A quick function called on the event loop itself."""

    __slots__ = ()

    async def run(self, call: Call, ctx: CallContext) -> Any:
        return self._function(**self._arguments(call, ctx))


class _Thread(_Callable):
    """A function that may block, in a thread. A coroutine that it returns is awaited on the event loop."""

    __slots__ = ()

    async def run(self, call: Call, ctx: CallContext) -> Any:
        value = await run_in_thread(partial(self._function, **self._arguments(call, ctx)))
        # Only the call shows it: a plain function may return any of these.
        if inspect.isasyncgen(value):
            return await drained(cast(Any, value), ctx)
        if inspect.isgenerator(value):
            return await run_in_thread(partial(exhausted, cast(Any, value), ctx))
        return await value if inspect.isawaitable(value) else value


class _Process(_Callable):
    """A function that may crash or hang, in a process of its own."""

    __slots__ = ()

    async def run(self, call: Call, ctx: CallContext) -> Any:
        from toolcrib.executors.function.isolated import run_in_process

        return await run_in_process(self._function, self._arguments(call, ctx))


_KINDS: dict[str, type[_Async | _Inline | _Thread | _Process]] = {
    "async": _Async,
    "inline": _Inline,
    "thread": _Thread,
    "process": _Process,
}


def function_executor(
    function: Callable[..., Any],
    isolation: str,
    adapt: _Adapter | None = None,
    context_parameter: str | None = None,
) -> Executor:
    """Return the executor of one callable. `isolation` is `async`, `inline`, `thread` or `process`."""
    return _KINDS[isolation](function, adapt, context_parameter)


def isolation_of(name: str, shape: FunctionShape, wanted: str) -> str:
    """Return the isolation of a function. Raises DefinitionError if the wanted one does not fit it."""
    function = shape.function
    is_async = inspect.iscoroutinefunction(function) or (
        not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)
    )
    if not wanted:
        return "async" if is_async else "thread"
    if wanted not in _KINDS:
        known = ", ".join(_KINDS)
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
