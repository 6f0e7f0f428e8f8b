"""The form of a middleware, and functions of other forms as middleware."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from toolcrib.errors import DefinitionError
from toolcrib.spec import Call, CallContext, Outcome, Tool

Handler = Callable[[Call, CallContext], Awaitable[Outcome]]
"""Runs a call whose arguments are checked; raises if it fails."""
Middleware = Callable[[Handler], Handler]
"""Takes the next handler and returns the handler around it."""


def as_middleware(function: Callable[..., Any]) -> Middleware:
    """Return a middleware made of a function, by the number of its positional parameters.

    - `(following)`: a middleware already.
    - `(call, ctx)`, sync or async: sees each call before it runs. It returns None to continue, a mapping of
      new arguments, or an `Outcome`, which is the answer; or it raises.
    - `(call, ctx, proceed)`, async: runs around each call. `await proceed()` or `await proceed(arguments)`
      runs the rest and returns its `Outcome`; whatever it returns is the answer.

    Raises DefinitionError for any other function.
    """
    # Those that must be given by position: a partial, or a class with `__call__`, may have others.
    count = len(
        [one for one in _signature(function).parameters.values() if one.default is one.empty and one.kind < 2]
    )
    if count == 1:
        return function
    if count == 2:
        return named(lambda following: _before(function, following), middleware_name(function))
    if count == 3 and _is_async(function):
        return named(lambda following: _around(function, following), middleware_name(function))
    raise DefinitionError(
        f"{middleware_name(function)} cannot be a middleware",
        hint="It takes (following), (call, ctx), or as an async function (call, ctx, proceed).",
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib

        # It would evaluate annotations, which may name what is only imported for type checkers.
        return inspect.signature(function, annotation_format=annotationlib.Format.STRING)
    return inspect.signature(function)


def only(middleware: Middleware, *patterns: str) -> Middleware:
    """Return the middleware for the tools with these names (patterns such as `get_*`); others pass by it."""

    def wrap(following: Handler) -> Handler:
        inside = middleware(following)

        def handle(call: Call, ctx: CallContext) -> Awaitable[Outcome]:
            chosen = any(fnmatchcase(call.tool, pattern) for pattern in patterns)
            return (inside if chosen else following)(call, ctx)

        return handle

    wrap.tools = patterns  # type: ignore[attr-defined]
    return named(wrap, f"{middleware_name(middleware)} (only {', '.join(patterns)})")


def middleware_name(middleware: Callable[..., Any]) -> str:
    """Return the name by which a middleware is shown."""
    given = getattr(middleware, "shown_as", None)
    name = given or getattr(middleware, "__qualname__", type(middleware).__qualname__)
    return str(name).partition(".<locals>")[0].removesuffix("_middleware")


def names_for(middleware: Iterable[Callable[..., Any]], tool: str) -> list[str]:
    """Return the names of those that wrap the calls of a tool, in their order."""
    chosen = (one for one in middleware if any(fnmatchcase(tool, it) for it in getattr(one, "tools", ("*",))))
    return [middleware_name(one) for one in chosen]


def named(middleware: Middleware, name: str) -> Middleware:
    """Return a middleware that is shown by this name."""
    middleware.shown_as = name  # type: ignore[attr-defined]
    return middleware


def tool_of(ctx: CallContext) -> Tool | None:
    """Return the definition of the tool that is called."""
    return getattr(getattr(ctx, "bound", None), "tool", None)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _before(function: Callable[..., Any], following: Handler) -> Handler:
    async def handle(call: Call, ctx: CallContext) -> Outcome:
        answer = function(call, ctx)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Outcome):
            return answer
        if isinstance(answer, Mapping):
            return await following(replace(call, arguments=dict(answer)), ctx)
        if answer is not None:
            message = f"{middleware_name(function)} returned {type(answer).__name__}"
            raise DefinitionError(message, hint="Return None, new arguments, or an Outcome as the answer.")
        return await following(call, ctx)

    return handle


def _around(function: Callable[..., Any], following: Handler) -> Handler:
    async def handle(call: Call, ctx: CallContext) -> Outcome:
        async def proceed(arguments: Mapping[str, Any] | None = None) -> Outcome:
            changed = call if arguments is None else replace(call, arguments=dict(arguments))
            return await following(changed, ctx)

        answer = await function(call, ctx, proceed)
        return answer if isinstance(answer, Outcome) else Outcome(answer)

    return handle
