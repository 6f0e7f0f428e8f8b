"""Toolset: the registry a Python user holds. Functions, objects and manifest tools become callable."""

from __future__ import annotations

import asyncio
import inspect
import os
import unicodedata
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, TypeVar, overload

from toolcrib.context import Context
from toolcrib.errors import ConflictError, DefinitionError, ToolcribError, ToolUnavailable, UsageError
from toolcrib.executors.function import function_executor, isolation_of
from toolcrib.middleware import Middleware
from toolcrib.pipeline import Bound, Gate, Pipeline
from toolcrib.schema import ArgumentCheck, FunctionShape, SchemaCheck, inspect_function
from toolcrib.schema.fitting import fitting
from toolcrib.spec import (
    Annotations,
    Approval,
    CallContext,
    Caller,
    Clock,
    Executor,
    FunctionExec,
    Limits,
    Output,
    Result,
    Retry,
    Tool,
)

__all__ = ["BoundTool", "FunctionTool", "Toolset"]

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_TIMEOUT_MS = 300_000
_CONTEXTS = (Context, CallContext)


class BoundTool:
    """A described tool and the executor that runs it, which is made on first use."""

    lenient = False

    def __init__(
        self,
        tool: Tool,
        make_executor: Callable[[], Executor],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        timeout_source: str = "the project's limit",
        retry: Retry | None = None,
    ) -> None:
        self.name = tool.name
        self.tool = tool
        self._make_executor = make_executor
        self.check_output = _output_check(tool.output)
        self.retry = tool.retry or retry or Retry()
        self.retries_timeouts = tool.retry is not None
        self.approval_reason = _reason(tool.approval)
        self.timeout_ms, self.timeout_source = timeout_ms, timeout_source
        for own in (tool.limits.timeout_ms, getattr(tool.config, "timeout_ms", None)):
            if own is not None and own < self.timeout_ms:
                self.timeout_ms, self.timeout_source = own, "the tool's limit"

    @cached_property
    def executor(self) -> Executor:
        """Runs attempts; making it may raise a ToolcribError."""
        return self._make_executor()

    @cached_property
    def check(self) -> Callable[[Mapping[str, Any] | bytes | str], dict[str, Any]]:
        """Checks arguments; the schema is compiled on first use."""
        return ArgumentCheck(self.tool.input_schema, lenient=self.lenient).check

    def renew(self) -> None:
        """Have the executor made anew for the next call; calls that run keep theirs."""
        self.__dict__.pop("executor", None)


def _reason(approval: Approval) -> str | None:
    return (approval.reason or "no reason is given") if approval.required else None


def _output_check(output: Output) -> Callable[[Any], list[Any]] | None:
    if output.schema is None:
        return None
    schema, compiled = output.schema, None

    def check(value: Any) -> list[Any]:
        nonlocal compiled
        if compiled is None:
            compiled = SchemaCheck(schema)
        return [] if compiled.is_valid(value) else compiled.violations(value)

    return check


class FunctionTool:
    """A registered callable. Docstring, schema, converters and validator are made when first needed."""

    lenient = False

    def __init__(
        self, name: str, shape: FunctionShape, options: _Options, retry: Retry, timeout_ms: int
    ) -> None:
        self.name = name
        self._shape = shape
        self._options = options
        self.retry = options.retry or retry
        self.retries_timeouts = options.retry is not None
        self.approval_reason = _reason(options.approval)
        self.check_output = _output_check(options.output)
        self.timeout_ms, self.timeout_source = timeout_ms, "the toolset's limit"
        if options.timeout_ms is not None and options.timeout_ms < timeout_ms:
            self.timeout_ms, self.timeout_source = options.timeout_ms, "the tool's limit"

    @cached_property
    def tool(self) -> Tool:
        """What the tool is."""
        options, function = self._options, self._shape.function
        return Tool(
            name=self.name,
            description=options.description or self._shape.docs.description or self.name,
            kind="function",
            input_schema=options.input_schema or self._shape.schema(),
            config=FunctionExec(
                f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', self.name)}",
                options.isolation,  # type: ignore[arg-type]
            ),
            output=options.output,
            approval=options.approval,
            retry=options.retry,
            limits=Limits(timeout_ms=options.timeout_ms),
            annotations=options.annotations,
            tags=options.tags,
            version=options.version,
        )

    @cached_property
    def executor(self) -> Executor:
        """Runs attempts."""
        options, shape = self._options, self._shape
        adapt = options.adapt or shape.adapter()
        return function_executor(shape.function, options.isolation, adapt, shape.context_parameter)

    @cached_property
    def check(self) -> Callable[[Mapping[str, Any] | bytes | str], dict[str, Any]]:
        """Checks arguments; the schema is derived and compiled on first use."""
        return ArgumentCheck(self.tool.input_schema, lenient=self.lenient).check


class _Options:
    """What registration may say beyond the function itself."""

    __slots__ = (
        "adapt",
        "annotations",
        "approval",
        "description",
        "input_schema",
        "isolation",
        "lifespan",
        "output",
        "retry",
        "tags",
        "timeout_ms",
        "version",
    )

    def __init__(
        self,
        *,
        description: str | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        on_violation: Literal["warn", "fail"] = "warn",
        isolation: str | None = None,
        retry: Retry | None = None,
        timeout_ms: int | None = None,
        approval: str | None = None,
        annotations: Annotations | None = None,
        tags: Sequence[str] = (),
        version: int | str = 1,
    ) -> None:
        self.adapt: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self.lifespan: _Lifespan | None = None
        self.description = description
        self.input_schema = input_schema
        self.output = _JSON
        if output_schema is not None:
            SchemaCheck(output_schema)
            self.output = Output(schema=output_schema, on_violation=on_violation)
        self.isolation = isolation or ""
        self.retry = retry
        self.timeout_ms = timeout_ms
        self.approval = _FREE if approval is None else Approval(True, approval)
        self.annotations = annotations or _NO_HINTS
        self.tags = tuple(tags)
        self.version = version
        if timeout_ms is not None and timeout_ms <= 0:
            raise DefinitionError(f"timeout_ms must be at least 1, not {timeout_ms}")
        if retry is not None:
            _check_retry(retry)


def _check_retry(retry: Retry) -> Retry:
    if retry.max_attempts < 1 or not 0 <= retry.jitter <= 1:
        raise DefinitionError("a Retry needs max_attempts of at least 1 and a jitter from 0 to 1")
    return retry


_JSON, _FREE, _NO_HINTS = Output(), Approval(), Annotations()


class Toolset:
    """A set of tools with one call path.

    `retry` is the rule for registered Python tools (two attempts, instant), `timeout_ms` the limit of one
    attempt (five minutes); `lenient` reads "12" for 12. Use it as an async context manager to open and close
    tools that hold resources.
    """

    def __init__(
        self,
        *,
        retry: Retry | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        gate: Gate | None = None,
        clock: Clock | None = None,
        missing: Callable[[str], ToolcribError | None] | None = None,
        lenient: bool = False,
    ) -> None:
        self._retry = _check_retry(retry or Retry(max_attempts=2))
        self._timeout_ms = timeout_ms
        self._lenient = lenient
        self._bound: dict[str, Bound] = {}
        self._lifespans: list[_Lifespan] = []
        self._opened: list[_Lifespan] = []
        self._revision = 0
        self._listeners: list[Callable[[], None]] = []
        self.pipeline = Pipeline(
            self._bound, gate=gate, clock=clock, call_attempts=self._retry.max_attempts, missing=missing
        )
        self.invoke = self.pipeline.invoke
        """The one call path: a `Call` in, a `Result` out."""

    # -- defining ------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, name: str | None = None, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, what: Any = None, /, **options: Any) -> Any:
        """Decorator: `@tools.tool` or `@tools.tool("name", retry=…, timeout_ms=…, approval="reason", …)`.

        Options are those of `register`. The function itself is returned unchanged.
        """
        if callable(what):
            self.register(what)
            return what

        def decorate(function: F) -> F:
            self.register(what or function.__name__, function, **options)
            return function

        return decorate

    def register(self, name: Any, target: Any = None, /, **options: Any) -> None:
        """Make a tool of a function or of an object with `name`, `description`, `input_schema`, `execute`.

        `register(function)`, `register("name", function, …)` or `register(object)`. Options: `description`,
        `input_schema` (instead of the derived one), `output_schema`, `isolation` (`thread`, `inline`,
        `async`, `process`), `retry` (a `Retry`), `timeout_ms` (one attempt), `approval` (the reason why a
        person must agree to each call), `on_violation` (`warn` or `fail`: what an output is that does not fit
        `output_schema`), `annotations`, `tags`, `version`. Raises `DefinitionError` when the function cannot
        be described, `ConflictError` when the name is taken.

        An object may hold resources: it has `open` and `close`, or is an async context manager, and can be
        called only while its toolset is open (`async with`). Run variables do not reach another process.
        """
        if target is None:
            name, target = None, name
        if hasattr(target, "execute") and hasattr(target, "input_schema"):
            if isinstance(target, type):
                raise DefinitionError(f"{target.__name__} is a class; register an instance of it")
            self._register_object(_said(target.name) if name is None else name, target, options)
        elif callable(target):
            given = getattr(target, "__name__", None) if name is None else name
            self._register_function(given, target, _Options(**options))
        else:
            raise DefinitionError(
                f"{target!r} is neither callable nor has it name, description, input_schema and execute"
            )

    def _register_function(self, name: Any, function: Callable[..., Any], options: _Options) -> None:
        self._claim(name)
        shape = inspect_function(function, _CONTEXTS, typed=options.input_schema is None)
        if options.input_schema is not None:
            options.input_schema = fitting(name, shape, options.input_schema)
        options.isolation = isolation_of(name, shape, options.isolation)
        self._add(name, FunctionTool(name, shape, options, self._retry, self._timeout_ms))

    def _register_object(self, name: Any, target: Any, given: dict[str, Any]) -> None:
        self._claim(name)
        schema, description = _said(target.input_schema), _said(target.description)
        options = _Options(**{"description": description, "input_schema": schema, **given})
        ArgumentCheck(options.input_schema or {})
        shape = inspect_function(target.execute, _CONTEXTS, typed=False)
        if len(shape.parameters) != 1:
            raise DefinitionError(
                f"{name}: execute takes the arguments as one dict, and a Context if it wants"
            )
        options.isolation = isolation_of(name, shape, options.isolation)
        if options.isolation == "process":
            raise DefinitionError(f"{name}: an object keeps its state here, not in a process of its own")
        if hasattr(target, "open") or hasattr(target, "__aenter__"):
            options.lifespan = _Lifespan(name, target)
            self._lifespans.append(options.lifespan)
        options.adapt = _as_one(shape.parameters[0].name, options.lifespan)
        self._add(name, FunctionTool(name, shape, options, self._retry, self._timeout_ms))

    def add(self, bound: Bound) -> None:
        """Add a tool that is bound already; `ConflictError` when its name is taken."""
        self._claim(bound.name)
        self._add(bound.name, bound)

    def load_directory(self, folder: str | os.PathLike[str], **options: Any) -> list[str]:
        """Add the tools of a folder, Vega's unless `dialect` says other; options and errors as of
        `open_directory`. Their names.
        """
        from toolcrib.executors.directory import open_directory

        made = open_directory(folder, self, **options)
        bound = [BoundTool(*one, timeout_ms=self._timeout_ms) for one in made]
        for one in bound:
            self._claim(one.name)
        self._bound |= {one.name: one for one in bound}
        self._revision += len(bound)
        return [one.name for one in bound]

    def remove(self, name: str) -> None:
        """Take a tool out; calls that run go on."""
        del self._bound[name]
        self._changed()

    def replace(self, bound: Bound) -> None:
        """Put a tool in the place of the one of its name; calls that run go on with the old one."""
        if bound.name not in self._bound:
            raise self.pipeline.unknown(bound.name)
        self._bound[bound.name] = bound
        self._changed()

    def _claim(self, name: Any) -> None:
        if not isinstance(name, str) or not _is_name(name):
            raise DefinitionError(
                f"{name!r} cannot be the name of a tool",
                hint="Use 1 to 64 letters, digits, '_', '-' or '.'; a lambda needs a name of its own.",
            )
        if name in self._bound:
            raise ConflictError(
                f"there is a tool named {name!r} already", hint="Register it under another name."
            )

    def _add(self, name: str, bound: Bound) -> None:
        bound.lenient = self._lenient
        self._bound[name] = bound
        self._changed()

    def _changed(self) -> None:
        self._revision += 1
        for listener in list(self._listeners):
            listener()

    def use(self, middleware: Middleware) -> None:
        """Wrap every call in a middleware, inside those added before. Views made before do not change."""
        self.pipeline.use(middleware)

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """What wraps every call, the outermost first."""
        return self.pipeline.middleware

    # -- listing -------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """Changes whenever a tool is added, replaced or taken out."""
        return self._revision

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after each change of the list; gives what ends it.

        It is called in the thread that changes the list, and must neither wait nor raise.
        """
        self._listeners.append(listener)
        return partial(_discard, self._listeners, listener)

    def __contains__(self, name: object) -> bool:
        """Whether there is a tool of this name."""
        return name in self._bound

    @property
    def names(self) -> list[str]:
        """The names of all tools, in the order they were added."""
        return list(self._bound)

    def tools(self, caller: str = "local", identity: Caller | None = None) -> list[Tool]:  # noqa: ARG002
        """Every tool that the caller's token covers, described, in the order they were added."""
        covered = [b for b in self._bound.values() if identity is None or identity.covers(b.name)]
        return [bound.tool for bound in covered]

    def get(self, name: str) -> Tool:
        """One tool; `ToolNotFound` names the nearest."""
        return self.bound(name).tool

    def schema(self) -> list[dict[str, Any]]:
        """The tools as models see them: `name`, `description`, `input_schema`."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in self.tools()
        ]

    def filter(self, *names: str, tags: Iterable[str] = ()) -> Toolset:
        """A toolset of only these names, or of tools with any of these tags; an unknown name is an error."""
        wanted = set(tags)
        chosen = {name: self.bound(name) for name in names}
        chosen |= {name: bound for name, bound in self._bound.items() if wanted & set(bound.tool.tags)}
        view = Toolset(retry=self._retry, timeout_ms=self._timeout_ms)
        view.pipeline = self.pipeline.over(view._bound)
        view.invoke = view.pipeline.invoke
        for bound in chosen.values():
            view.add(bound)
        view._lifespans = [lifespan for lifespan in self._lifespans if lifespan.name in chosen]
        return view

    def bound(self, name: str) -> Bound:
        """One tool made ready to be called; `ToolNotFound` names the nearest."""
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
        on_progress: Callable[[float, float | None, str], None] | None = None,
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool and get its `Result`; a failing tool never raises.

        `arguments` is a mapping or its JSON text. `variables` reach the tool unseen by any model.
        `timeout_ms` limits one attempt, `approved_by` names the person who agreed to this one call.
        """
        ctx = Context.__new__(Context)  # what `__init__` does, at two thirds of its cost
        ctx.tool = name
        ctx.arguments = {} if arguments is None else arguments
        ctx.variables = variables
        ctx.run_id = run_id
        ctx.session_id = session_id
        ctx.approved_by = approved_by
        ctx.timeout_ms = timeout_ms
        ctx.on_progress = on_progress
        return self.invoke(ctx)

    async def execute(
        self, name: str, arguments: Mapping[str, Any] | bytes | str | None = None, **options: Any
    ) -> Any:
        """Call a tool and get its value; a `ToolcribError` is raised when it does not give one."""
        return (await self.call(name, arguments, **options)).unwrap()

    def call_sync(
        self, name: str, arguments: Mapping[str, Any] | bytes | str | None = None, **options: Any
    ) -> Result:
        """`call` for code without an event loop; tools that hold resources are opened just for it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._call_once(name, arguments, options))
        raise UsageError("call_sync needs a thread without an event loop", hint="Use `await tools.call(…)`.")

    async def _call_once(self, name: str, arguments: Any, options: dict[str, Any]) -> Result:
        async with self:
            return await self.call(name, arguments, **options)

    # -- lifespan ------------------------------------------------------------------------------

    async def __aenter__(self) -> Toolset:
        try:
            for lifespan in self._lifespans:
                await lifespan.open()
                self._opened.append(lifespan)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what was opened, last first. Every tool is closed even if some fail: an `ExceptionGroup`."""
        failures: list[Exception] = []
        while self._opened:
            try:
                await self._opened.pop().close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise ExceptionGroup("tools failed to close", failures)


class _Lifespan:
    """A tool that holds resources: opened for the first toolset that needs it, closed after the last."""

    def __init__(self, name: str, target: Any) -> None:
        self.name = name
        self._target = target
        self._users = 0

    async def open(self) -> None:
        """Open it, unless it is."""
        if self._users == 0:
            target = self._target
            await _settled(target.open() if hasattr(target, "open") else target.__aenter__())
        self._users += 1

    async def close(self) -> None:
        """Close it, unless others still need it."""
        self._users -= 1
        if self._users == 0:
            target = self._target
            if hasattr(target, "open"):
                await _settled(target.close() if hasattr(target, "close") else None)
            else:
                await target.__aexit__(None, None, None)

    def check(self) -> None:
        """Refuse a call of a tool that is not open."""
        if self._users == 0:
            raise ToolUnavailable(
                f"{self.name} is not open", hint="Call it inside `async with` of its toolset or project."
            )


def _discard(listeners: list[Callable[[], None]], listener: Callable[[], None]) -> None:
    if listener in listeners:
        listeners.remove(listener)


async def _settled(value: Any) -> None:
    if inspect.isawaitable(value):
        await value


def _said(value: Any) -> Any:
    """An attribute that may be a method, as in the Go interface."""
    return value() if callable(value) else value


def _as_one(parameter: str, lifespan: _Lifespan | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def adapt(arguments: dict[str, Any]) -> dict[str, Any]:
        if lifespan is not None:
            lifespan.check()
        return {parameter: arguments}

    return adapt


def _is_name(name: str) -> bool:
    if name.isascii() and name.replace("_", "").isalnum() and len(name) <= 64:  # nearly all, much quicker
        return True
    return (
        0 < len(name) <= 64
        and unicodedata.is_normalized("NFC", name)
        and all(character.isalnum() or character in "_-." for character in name)
        and name.strip(".") != ""
    )
