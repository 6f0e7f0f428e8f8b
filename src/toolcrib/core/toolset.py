"""Toolset: the registry of a Python program. Functions, objects and manifest tools become callable."""

from __future__ import annotations

import asyncio
import os
import unicodedata
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from toolcrib.core.bound import (
    DEFAULT_TIMEOUT_MS,
    Bound,
    BoundTool,
    FunctionTool,
    Options,
    ToolOptions,
    check_retry,
    list_options,
)
from toolcrib.core.context import Context
from toolcrib.core.controls import Controls
from toolcrib.core.events import Subscription, stream_events
from toolcrib.core.lifespan import ToolLifespan
from toolcrib.core.pipeline import Pipeline
from toolcrib.errors import ConflictError, DefinitionError, ToolcribError, UsageError
from toolcrib.middleware import Middleware, as_middleware, only
from toolcrib.schema import ArgumentCheck
from toolcrib.spec import Call, CallContext, Caller, CallEvent, CallEvents, Clock, Result, Retry, Tool
from toolcrib.spec.naming import wire_name

if TYPE_CHECKING:
    from toolcrib.schema.derive import FunctionShape


def run_sync(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine to its end; in a thread of its own where an event loop runs, which stands still."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "toolcrib-call") as thread:
        return thread.submit(lambda: asyncio.run(work())).result()


F = TypeVar("F", bound=Callable[..., Any])
_CONTEXTS = (Context, CallContext)

reading_program: ContextVar[bool] = ContextVar("reading_program", default=False)
"""True while the command line reads a program for its tools."""


# Not an Exception, so an `except Exception` in the program does not swallow it.
class ProgramRead(BaseException):
    """Ends the reading of a program at the line where it would serve its tools."""


class Toolset:
    """A set of tools with one call path.

    A registered function runs once, because running it again could do harm. `safe_retry` (two attempts,
    instant) is the rule for functions that are idempotent and for a `RetryableError`; `retry` is the rule for
    all functions. `timeout_ms` is the limit of one attempt (five minutes); `lenient` reads "12" for 12. Use a
    toolset as an async context manager to open and close tools that hold resources.
    """

    def __init__(
        self,
        *,
        retry: Retry | None = None,
        safe_retry: Retry | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        controls: Controls | None = None,
        clock: Clock | None = None,
        lenient: bool = False,
    ) -> None:
        self._retry = None if retry is None else check_retry(retry)
        self._own_retry = retry or safe_retry
        self._safe_retry = check_retry(self._own_retry or Retry(max_attempts=2))
        self._timeout_ms = timeout_ms
        self._lenient = lenient
        self._bound: dict[str, Bound] = {}
        self._wire: dict[str, str] = {}
        """Wire name to name, of the tools for which these differ."""
        self._lifespans: list[ToolLifespan] = []
        self._opened: list[ToolLifespan] = []
        self._revision = 0
        self._listeners: list[Callable[[], None]] = []
        self.pipeline = Pipeline(self._bound, controls=controls, clock=clock, safe_retry=self._safe_retry)
        self.invoke = self.pipeline.invoke
        """The one call path: a `Call` in, a `Result` out."""

    def govern(
        self,
        controls: Controls,
        middleware: Iterable[Middleware],
        *,
        safe_retry: Retry,
        timeout_ms: int,
        missing: Callable[[str], ToolcribError | None],
        lenient: bool,
    ) -> None:
        """Put all calls from now on under a project: its controls, and its middleware, outermost.

        Its time limit counts where it is lower, its `safe_retry` where this toolset has no rule of its own.
        """
        own = self.middleware
        self._safe_retry = check_retry(self._own_retry or safe_retry)
        self._timeout_ms, self._lenient = min(self._timeout_ms, timeout_ms), self._lenient or lenient
        for name, bound in self._bound.items():
            again = bound.again(self._function_tool) if isinstance(bound, FunctionTool) else bound
            again.cap(timeout_ms)
            again.lenient = self._lenient
            self._bound[name] = again
        self.pipeline = self.pipeline.under(controls, self._safe_retry, missing)
        self.invoke = self.pipeline.invoke
        for one in (*middleware, *own):
            self.use(one)

    # -- defining ------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self, name: str | None = None, /, *, replace: bool = False, **options: Unpack[ToolOptions]
    ) -> Callable[[F], F]: ...
    def tool(self, what: Any = None, /, *, replace: bool = False, **options: Unpack[ToolOptions]) -> Any:
        """Decorator: `@tools.tool` or `@tools.tool("name", retry=…, timeout_ms=…, approval="reason", …)`.

        Options are those of `register`. The function itself is returned unchanged.
        """
        if callable(what):
            self.register(what)
            return what

        def decorate(function: F) -> F:
            self.register(what or function.__name__, function, replace=replace, **options)
            return function

        return decorate

    def register(
        self, name: Any, target: Any = None, /, *, replace: bool = False, **options: Unpack[ToolOptions]
    ) -> None:
        """Make a tool from a function or an object.

        `register(function)`, `register("name", function, …)` or `register(object)`. An object has `name`,
        `description`, `input_schema` and `execute`. Options: `description`,
        `input_schema` (instead of the derived one), `output_schema` (likewise), `isolation` (`thread`,
        `inline`, `async`, `process`), `retry` (a `Retry`), `idempotent` (true if it may be run again after a
        failure), `timeout_ms` (one attempt), `idle_ms` (one attempt without a report), `limits` (`Limits`:
        both of these, the rate of calls, and the size of the text for a model), `approval` (the reason why a
        person must approve each call), `on_violation` (`warn` or `fail`, for an output that does not match
        its schema), `annotations`, `mcp` (`McpForms`: also a prompt or a resource), `tags`, `version`,
        `replace` (take the place of a tool of this name). Raises `DefinitionError` when the function cannot
        be described, `ConflictError` when the name is taken.

        An object may hold resources: it has `open` and `close`, or is an async context manager, and can be
        called only while its toolset is open (`async with`). Run variables do not reach another process.
        """
        if target is None:
            name, target = None, name
        if hasattr(target, "execute") and hasattr(target, "input_schema"):
            if isinstance(target, type):
                raise DefinitionError(f"{target.__name__} is a class; register an instance of it")
            bound = self._bind_object(_value(target.name) if name is None else name, target, options)
        elif callable(target):
            given = getattr(target, "__name__", None) if name is None else name
            bound = self._bind_function(given, target, Options.of(options))
        else:
            raise DefinitionError(
                f"{target!r} is not callable, and does not have name, description, input_schema and execute"
            )
        if replace:
            self.replace(bound)
        else:
            self.add(bound)

    def _bind_function(self, name: Any, function: Callable[..., Any], options: Options) -> FunctionTool:
        _check_name(name)
        shape = _shape_of(name, function, options, typed=options.input_schema is None)
        if options.input_schema is not None:
            from toolcrib.schema.derive import fitting

            options.input_schema = fitting(name, shape, options.input_schema)
        return self._function_tool(name, shape, options)

    def _bind_object(self, name: Any, target: Any, given: ToolOptions) -> FunctionTool:
        _check_name(name)
        schema, description = _value(target.input_schema), _value(target.description)
        options = Options.of({"description": description, "input_schema": schema, **given})
        ArgumentCheck(options.input_schema or {})
        shape = _shape_of(name, target.execute, options, typed=False)
        if len(shape.parameters) != 1:
            raise DefinitionError(
                f"{name}: execute takes the arguments as one dict, and optionally a Context"
            )
        if options.isolation == "process":
            raise DefinitionError(f"{name}: an object keeps its state here, not in a process of its own")
        lifespan = None
        if hasattr(target, "open") or hasattr(target, "__aenter__"):
            lifespan = ToolLifespan(name, target)
            self._lifespans.append(lifespan)
        parameter = shape.parameters[0].name

        def adapt(arguments: dict[str, Any]) -> dict[str, Any]:
            if lifespan is not None:
                lifespan.require_open()
            return {parameter: arguments}

        options.adapt = adapt
        return self._function_tool(name, shape, options)

    def _function_tool(self, name: str, shape: FunctionShape, options: Options) -> FunctionTool:
        retry = self._retry or (self._safe_retry if options.annotations.idempotent else Retry())
        return FunctionTool(name, shape, options, retry, self._timeout_ms)

    def add(self, bound: Bound) -> None:
        """Add a tool that is bound already; `ConflictError` when its name is taken."""
        self.add_all([bound])

    def add_all(self, bound: Sequence[Bound]) -> None:
        """Add all of these tools, or none if a name is taken; listeners are called once."""
        added: list[str] = []
        try:
            for one in bound:
                name = one.name
                if (wire := wire_name(name)) in self._bound or wire in self._wire or name in self._bound:
                    self._check_free(name)
                one.lenient = self._lenient
                self._bound[name] = one
                if wire != name:
                    self._wire[wire] = name
                added.append(name)
        except ToolcribError:
            # All or nothing: after half of a folder, a second try would fail at the names of the first.
            for name in added:
                self.drop_quietly(name)
            raise
        self.announce()

    def load_directory(self, folder: str | os.PathLike[str], **options: Any) -> list[str]:
        """Add the tools of a folder and return their names. `dialect` is Vega's by default.

        Options and errors are those of `open_directory`.
        """
        from toolcrib.executors.directory import open_directory

        made = open_directory(folder, self, **options)
        bound = [BoundTool(*one, timeout_ms=self._timeout_ms) for one in made]
        self.add_all(bound)
        return [one.name for one in bound]

    def register_builtins(
        self,
        *names: str,
        roots: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
        read_only: Iterable[str] = (),
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[str]:
        """Add built-in tools and return their names; without names all of them.

        `roots` is the folder of file tools and commands, or several by name, of which the first is where
        relative paths begin; by default the working folder. Those named in `read_only` are only read.
        `options` are settings of single tools by name. Raises ToolNotFound, UsageError and ConflictError.
        """
        from toolcrib.builtin.table import open_builtins

        made = open_builtins(self, names, roots, tuple(read_only), options)
        bound = [BoundTool(*one, timeout_ms=self._timeout_ms) for one in made]
        self.add_all(bound)
        return [one.name for one in bound]

    def remove(self, name: str) -> None:
        """Remove a tool; its running calls continue."""
        self.drop_quietly(name)
        self.announce()

    def put_quietly(self, bound: Bound) -> None:
        """Put in a tool that the list has already, under the full name that the store gives it.

        Listeners are not called. `ConflictError` if another tool has the same name for clients.
        """
        if bound.name not in self._bound:
            self._check_free(bound.name)
            self._wire[wire_name(bound.name)] = bound.name
        bound.lenient = self._lenient
        self._bound[bound.name] = bound

    def drop_quietly(self, name: str) -> None:
        """Remove a tool without calling listeners."""
        del self._bound[name]
        self._wire.pop(wire_name(name), None)

    def replace(self, bound: Bound) -> None:
        """Replace the tool of its name, or add it; running calls continue with the old one."""
        if bound.name in self._bound:
            bound.lenient = self._lenient
            self._bound[bound.name] = bound
            self.announce()
        else:
            self.add(bound)

    def _check_free(self, name: str) -> None:
        other = self.same_name(name)
        if other == name:
            raise ConflictError(
                f"there is a tool named {name!r} already",
                hint="Register it under another name, or with replace=True.",
            )
        if other is not None:
            from toolcrib.schema.providers import wire_conflict

            raise wire_conflict(other, name)

    def same_name(self, name: str) -> str | None:
        """Return the tool with this name, or with the same one for clients; None if the name is free.

        A client may have asked its user about a tool by that name, so it never moves to another tool.
        """
        if name in self._bound:
            return name
        wire = wire_name(name)
        return wire if wire in self._bound else self._wire.get(wire)

    def announce(self) -> None:
        """Notify listeners that the list has changed."""
        self._revision += 1
        # A copy, because a listener may end its own registration.
        for listener in list(self._listeners):
            listener()

    def use(self, middleware: Callable[..., Any], *, tools: Sequence[str] = ()) -> None:
        """Wrap every call in a middleware, inside those added before. Views made before do not change.

        It is a `Middleware`, or a function of another form (`as_middleware`). With `tools` (names or patterns
        such as `get_*`), it wraps calls of these tools only.
        """
        made = as_middleware(middleware)
        self.pipeline.use(only(made, *tools) if tools else made)

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """Wrappers around every call, the outermost first."""
        return self.pipeline.middleware

    # -- listing -------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """Changes whenever a tool is added, replaced or removed."""
        return self._revision

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change of the list; return a function that ends this.

        The listener is called in the thread that changes the list, and must neither wait nor raise.
        """
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def __repr__(self) -> str:
        some = ", ".join([*list(self._bound)[:5], *["…"][: len(self._bound) > 5]])
        return f"<Toolset of {len(self._bound)}: {some}>" if some else "<Toolset without tools>"

    def __contains__(self, name: object) -> bool:
        """Return True if there is a tool of this name."""
        return name in self._bound

    @property
    def count(self) -> int:
        """The number of tools."""
        return len(self._bound)

    @property
    def names(self) -> list[str]:
        """The names of all tools, in the order they were added."""
        return list(self._bound)

    def tools(self, caller: str = "local", identity: Caller | None = None) -> list[Tool]:  # noqa: ARG002
        """Return every tool that the caller's token covers, in the order they were added."""
        return [b.tool for b in self._bound.values() if identity is None or identity.covers(b.name)]

    def listed(
        self, caller: str = "local", identity: Caller | None = None
    ) -> Mapping[str, Tool | memoryview]:
        """Return the `tools` by name."""
        return {tool.name: tool for tool in self.tools(caller, identity)}

    def get(self, name: str) -> Tool:
        """Return one tool; `ToolNotFound` names the nearest."""
        return self.bound(name).tool

    def schema(self) -> list[dict[str, Any]]:
        """Return the tools as models see them: `name`, `description`, `input_schema`."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in self.tools()
        ]

    def filter(self, *names: str, tags: Iterable[str] = ()) -> Self:
        """Return a toolset of only these names, or of tools with any of these tags.

        An unknown name is a `ToolNotFound`.
        """
        wanted = {tags} if isinstance(tags, str) else set(tags)
        chosen = {name: self.bound(name) for name in names}
        chosen |= {name: bound for name, bound in self._bound.items() if wanted & set(bound.tool.tags)}
        view = type(self).__new__(type(self))
        Toolset.__init__(
            view,
            retry=self._retry,
            safe_retry=self._safe_retry,
            timeout_ms=self._timeout_ms,
            lenient=self._lenient,
        )
        view.pipeline = self.pipeline.over(view._bound)  # noqa: SLF001 - of its own class
        view.invoke = view.pipeline.invoke
        for bound in chosen.values():
            view.add(bound)
        kept = [lifespan for lifespan in self._lifespans if lifespan.name in chosen]
        view._lifespans = kept  # noqa: SLF001 - of its own class
        return view

    def bound(self, name: str) -> Bound:
        """Return one tool made ready to be called; `ToolNotFound` names the nearest."""
        bound = self._bound.get(name)
        if bound is None:
            raise self.pipeline.unknown(name)
        return bound

    # -- calling -------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        variables: dict[str, Any] | None = None,
        run_id: str | None = None,
        session_id: str | None = None,
        timeout_ms: int | None = None,
        approved_by: str | None = None,
        on_event: Callable[[CallEvent], None] | None = None,
        dry_run: bool = False,
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool and return its `Result`; a failing tool never raises.

        `arguments` is a mapping or its JSON text. `variables` reach the tool but no model. `timeout_ms`
        limits one attempt, `approved_by` names the person who approved this one call. `on_event` is called
        on the event loop with each `CallEvent` of the call. With `dry_run` nothing is run: the value of the
        result is what the call would do.
        """
        # By position: with keywords, making a context would take twice as long.
        given = {} if arguments is None else arguments
        ctx = Context(
            name, given, "local", variables, run_id, session_id, approved_by, None, timeout_ms, on_event
        )
        ctx.dry_run = dry_run
        return self.invoke(ctx)

    def stream(
        self, name: str, arguments: Mapping[str, Any] | bytes | str | None = None, **options: Any
    ) -> AsyncGenerator[CallEvent | Result]:
        """Call a tool, yield each `CallEvent` of the call and, at last, its `Result`.

        Options are those of `call`. To leave early cancels the call.
        """
        return stream_events(lambda listener: self.call(name, arguments, on_event=listener, **options))

    def subscribe(
        self,
        caller: str = "local",  # noqa: ARG002 - a toolset has no rules about callers
        identity: Caller | None = None,
        *,
        size: int = 1_000,
    ) -> CallEvents:
        """Return the events of running calls, of tools that the caller's token covers. Close it in the end.

        At most `size` of them wait to be read; beyond that the oldest are dropped and counted in `missed` of
        the next event. Only the caller of a call hears the chunks of its output: see `stream`.
        """
        return self.subscribe_where(lambda name: identity is None or identity.covers(name), size)

    def untrusted(self) -> int:
        """Return 0: the functions of a program need no trust."""
        return 0

    def subscribe_where(self, visible: Callable[[str], bool], size: int = 1_000) -> Subscription:
        """Return the events of running calls of these tools, by name."""
        bus = self.pipeline.bus
        # Views share the bus of their toolset, so events of tools outside this view arrive too.
        return bus.subscribe(lambda event: event.tool in self._bound and visible(event.tool), size)

    async def execute(
        self, name: str, arguments: Mapping[str, Any] | bytes | str | None = None, **options: Any
    ) -> Any:
        """Call a tool and return its value; raise a `ToolcribError` if it has none."""
        return (await self.call(name, arguments, **options)).unwrap()

    def call_sync(
        self, name: str, arguments: Mapping[str, Any] | bytes | str | None = None, **options: Any
    ) -> Result:
        """Do the same as `call`, for code without `await`; resources are opened for this one call.

        Inside of a running event loop, as in a notebook, the call runs in a thread of its own, and the loop
        stands still meanwhile. Raises `UsageError` if the toolset was opened by that loop.
        """
        return self._invoke_once(lambda: self.call(name, arguments, **options))

    def invoke_sync(self, call: Call) -> Result:
        """Do the same as `invoke`, under the conditions of `call_sync`."""
        return self._invoke_once(lambda: self.invoke(call))

    def _invoke_once(self, begin: Callable[[], Awaitable[Result]]) -> Result:
        async def invoke() -> Result:
            async with self:
                return await begin()

        # What this loop has opened, such as a connection, does not work on the loop of another thread.
        if self._opened:
            raise UsageError("call_sync cannot use an open toolset", hint="Use `await tools.call(…)`.")
        return run_sync(invoke)

    # -- lifespan ------------------------------------------------------------------------------

    async def __aenter__(self) -> Toolset:
        try:
            for lifespan in self._lifespans:
                await lifespan.open()
                self._opened.append(lifespan)
        except BaseException:
            # Also for a cancellation: what is open by then would never be closed.
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all tools, last opened first, even if some fail: then an `ExceptionGroup` is raised."""
        failures: list[Exception] = []
        while self._opened:
            try:
                # Removed first: neither a failure nor a second `aclose` closes it twice.
                await self._opened.pop().close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise ExceptionGroup("tools failed to close", failures)


def _value(attribute: Any) -> Any:
    """Return the value of an attribute that may be a method, as in the Go interface."""
    return attribute() if callable(attribute) else attribute


def _shape_of(name: str, function: Callable[..., Any], options: Options, *, typed: bool) -> FunctionShape:
    from toolcrib.executors.function.executor import isolation_of
    from toolcrib.schema.derive import inspect_function

    shape = inspect_function(function, _CONTEXTS, typed=typed)
    options.isolation = isolation_of(name, shape, options.isolation)
    return shape


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _is_name(name):
        raise DefinitionError(
            f"{name!r} cannot be the name of a tool",
            hint="Use 1 to 64 letters, digits, '_', '-' or '.'; a lambda needs a name of its own.",
        )


def _is_name(name: str) -> bool:
    if name.isascii() and name.replace("_", "").isalnum() and len(name) <= 64:  # nearly all, much quicker
        return True
    return (
        0 < len(name) <= 64
        # Without this, two different names could look the same.
        and unicodedata.is_normalized("NFC", name)
        and all(character.isalnum() or character in "_-." for character in name)
        and name.strip(".") != ""
    )


for _method in (Toolset.tool, Toolset.register):
    list_options(_method)
