"""Tools made ready to be called: limits, checks and executor, each made when first needed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from inspect import Parameter, signature
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from toolcrib.errors import DefinitionError, Violation
from toolcrib.schema import ArgumentCheck, SchemaCheck
from toolcrib.spec import Annotations, ApprovalRule, Executor, Limits, McpForms, Output, Retry, Tool
from toolcrib.spec.naming import nearest
from toolcrib.spec.tools.kinds import FunctionExec

if TYPE_CHECKING:
    from toolcrib.schema.derive import FunctionShape


def plan_of(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the plan as JSON, with the names of secrets in place of their values.

    Only URLs are encoded, and values in shell lines quoted.
    """
    from toolcrib.manifest import kind_of, reread
    from toolcrib.manifest.kinds import shown_secret
    from toolcrib.template import Values

    plan: dict[str, Any] = {"tool": tool.name, "kind": tool.kind, "arguments": arguments}
    document, kind = reread(tool), kind_of(tool)
    if document is None and not kind.templated:
        return plan
    block = kind.write(tool.config) if document is None else document.data["exec"][tool.kind]
    if kind.confined:
        names = (*tool.permissions.env, *(secret.name for secret in tool.permissions.secrets))
        plan["environment"] = sorted({*names, *(block.get("env") or {})})
        plan["cwd"] = arguments.get("workdir", ".") if tool.is_builtin else block.get("cwd", ".")
    values = Values(
        arguments,
        secrets={secret.name: shown_secret(secret.name) for secret in tool.permissions.secrets},
        env={name: os.environ[name] for name in tool.permissions.env if name in os.environ},
        context={"version": str(tool.version), "name": tool.name, "slug": tool.name},
    )
    return plan | kind.plan(tool, block, values)


DEFAULT_TIMEOUT_MS = 300_000
"""Limit of one attempt unless something says otherwise."""
_JSON, _NO_APPROVAL, _NO_HINTS, _NO_FORMS = Output(), ApprovalRule(), Annotations(), McpForms()
_NO_LIMITS = Limits()


class Bound:
    """A tool made ready to be called."""

    name: str
    lenient = False
    """True to read arguments that do not match once more, a number in a text as that number."""
    timeout_ms: int
    """Limit of one attempt."""
    timeout_source: str
    """The origin of that limit, in words."""
    idle_ms: int | None
    """Time for which an attempt may report nothing; None for any time."""
    text_limit: int | None
    """Bytes of the text that a model sees of an output; None for the usual limit."""
    limits: Limits
    """All limits that the tool states itself."""
    is_rated: bool
    """True if some of them limit how often it is called."""
    retry: Retry
    retries_timeouts: bool
    """True if an attempt that timed out is repeated as well."""
    approval_reason: str | None
    """The reason why a person must approve each call; None when nobody must."""

    def _set_rules(self, approval: ApprovalRule, retry: Retry | None, default: Retry) -> None:
        self.retry = retry or default
        # An attempt that timed out may have acted already. Only a rule of the tool's own says that a second
        # one does no harm; the default rule does not.
        self.retries_timeouts = retry is not None
        self.approval_reason = (approval.reason or "no reason is given") if approval.required else None

    def _limit(self, limits: Limits, timeout_ms: int, source: str, *own: int | None) -> None:
        self.limits, self.idle_ms, self.text_limit = limits, limits.idle_ms, limits.output_bytes
        self.is_rated = limits.are_rates
        self.timeout_ms, self.timeout_source = timeout_ms, source
        for limit in (limits.timeout_ms, *own):
            if limit is not None and limit < self.timeout_ms:
                self.timeout_ms, self.timeout_source = limit, "the tool's limit"

    def cap(self, timeout_ms: int) -> None:
        """Lower the limit of one attempt to that of the project."""
        if timeout_ms < self.timeout_ms:
            self.timeout_ms, self.timeout_source = timeout_ms, "the project's limit"

    @cached_property
    def tool(self) -> Tool:
        """The description of the tool."""
        raise NotImplementedError

    @property
    def may_repeat(self) -> bool:
        """True if a call may run again although nobody knows what its first run did."""
        hints = self.tool.annotations
        return bool(hints.idempotent or hints.read_only or self.retries_timeouts)

    @cached_property
    def output(self) -> Output:
        """The form of the tool's output."""
        return self.tool.output

    @cached_property
    def executor(self) -> Executor:
        """Runs attempts. Making it may raise a ToolcribError."""
        raise NotImplementedError

    @cached_property
    def arguments(self) -> ArgumentCheck:
        """Parses and checks arguments and fills in defaults. The schema is compiled on first use."""
        return ArgumentCheck(self.tool.input_schema, lenient=self.lenient)

    @cached_property
    def _output_check(self) -> SchemaCheck | None:
        return None if self.output.schema is None else SchemaCheck(self.output.schema)

    @cached_property
    def accepts(self) -> Callable[[Any], bool] | None:
        """Returns True for an output that matches the tool's output schema; None if the tool has none."""
        return None if self._output_check is None else self._output_check.is_valid

    def output_violations(self, value: Any) -> list[Violation]:
        """Return every place where an output does not match the tool's output schema."""
        if self._output_check is None or self._output_check.is_valid(value):
            return []
        return self._output_check.violations(value)


class BoundTool(Bound):
    """A described tool and the executor that runs it, which is made on first use."""

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
        self._tool = tool
        self._make_executor = make_executor
        self._set_rules(tool.approval, tool.retry, retry or Retry())
        self._limit(tool.limits, timeout_ms, timeout_source, getattr(tool.config, "timeout_ms", None))

    @cached_property
    def tool(self) -> Tool:
        return self._tool

    @cached_property
    def executor(self) -> Executor:
        return self._make_executor()

    def renew(self) -> None:
        """Make a new executor for the next call; running calls keep theirs."""
        # `cached_property` keeps its value there; without it, the next use makes a new one.
        self.__dict__.pop("executor", None)


class FunctionTool(Bound):
    """A registered callable. Docstring, schema, converters and validator are made when first needed."""

    def __init__(
        self, name: str, shape: FunctionShape, options: Options, retry: Retry, timeout_ms: int
    ) -> None:
        self.name = name
        self._shape = shape
        self._options = options
        self._approval = _NO_APPROVAL if options.approval is None else ApprovalRule(True, options.approval)
        self._set_rules(self._approval, options.retry, retry)
        self._limit(options.limits, timeout_ms, "the toolset's limit")

    def again(self, make: Callable[[str, FunctionShape, Options], FunctionTool]) -> FunctionTool:
        """Return what `make` makes of the same function."""
        return make(self.name, self._shape, self._options)

    @cached_property
    def tool(self) -> Tool:
        options, function = self._options, self._shape.origin
        schema = options.output_schema or self._shape.output_schema()
        return Tool(
            name=self.name,
            description=options.description or self._shape.docs.description or self.name,
            kind="function",
            input_schema=options.input_schema or self._shape.schema(),
            config=FunctionExec(
                f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', self.name)}",
                options.isolation,  # type: ignore[arg-type]
            ),
            output=_JSON if schema is None else Output("json", schema, options.on_violation),
            approval=self._approval,
            retry=options.retry,
            limits=options.limits,
            annotations=options.annotations,
            mcp=options.mcp,
            tags=tuple(options.tags),
            version=options.version,
        )

    @cached_property
    def arguments(self) -> ArgumentCheck:
        schema = self.tool.input_schema
        settled = self._shape.settled() if self._options.input_schema is None else None
        return ArgumentCheck(schema, lenient=self.lenient, settled=settled)

    @cached_property
    def executor(self) -> Executor:
        from toolcrib.executors.function.executor import function_executor

        options, shape = self._options, self._shape
        adapt = options.adapt or shape.adapter()
        return function_executor(shape.function, options.isolation, adapt, shape.context_parameter)


class ToolOptions(TypedDict, total=False):
    """The keywords of `Toolset.tool` and `Toolset.register`."""

    description: str | None
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    on_violation: Literal["warn", "fail"]
    isolation: str | None
    retry: Retry | None
    idempotent: bool | None
    timeout_ms: int | None
    idle_ms: int | None
    limits: Limits | None
    approval: str | None
    annotations: Annotations | None
    mcp: McpForms | None
    tags: Sequence[str]
    version: int | str


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """The options of a registered function, beyond what the function itself says."""

    description: str | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    on_violation: Literal["warn", "fail"] = "warn"
    isolation: str = ""
    retry: Retry | None = None
    idempotent: bool | None = None
    timeout_ms: int | None = None
    idle_ms: int | None = None
    limits: Limits = _NO_LIMITS
    approval: str | None = None
    annotations: Annotations = _NO_HINTS
    mcp: McpForms = _NO_FORMS
    tags: Sequence[str] = ()
    version: int | str = 1
    adapt: Callable[[dict[str, Any]], dict[str, Any]] | None = field(default=None, init=False)
    """Makes keyword arguments of the checked arguments; None to derive that from the signature."""

    @classmethod
    def of(cls, given: ToolOptions) -> Options:
        """Check the keywords; TypeError names the one that was meant."""
        for name in given:
            if name not in ToolOptions.__annotations__:
                near = nearest(name, ToolOptions.__annotations__)
                raise TypeError(
                    f"{name!r} is not an option of a tool" + (f"; did you mean {near!r}?" if near else "")
                )
        for name, form in _FORMS.items():
            value = given.get(name)
            if value is not None and not isinstance(value, form):
                named = form.__name__ if isinstance(form, type) else form
                raise DefinitionError(f"{name} must be of type {named}, not {value!r}")
        present: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return cls(**present)

    def __post_init__(self) -> None:
        short = {"timeout_ms": self.timeout_ms, "idle_ms": self.idle_ms}
        self.limits = replace(self.limits, **{name: one for name, one in short.items() if one is not None})
        limit: Any  # Who writes no types gives texts too.
        for name, limit in asdict(self.limits).items():
            if limit is not None and (not isinstance(limit, int) or limit <= 0):
                raise DefinitionError(f"{name} must be a whole number of at least 1, not {limit!r}")
            if limit is not None and name in _CONFINED:
                raise DefinitionError(
                    f"limits.{name} does not hold for a function, which is not confined",
                    hint="Make it a tool of kind python, which runs confined.",
                )
        if _RESOURCE.fullmatch(self.mcp.resource or "x:y") is None:
            raise DefinitionError(
                f"mcp.resource is {self.mcp.resource!r}, which is not a URI",
                hint="Write docs://guide, or docs://{name} with the name of an argument.",
            )
        if self.on_violation not in ("warn", "fail"):
            raise DefinitionError(f"on_violation must be 'warn' or 'fail', not {self.on_violation!r}")
        if self.output_schema is not None:
            # Made only for its error: a wrong schema fails where it is written, not at the first call.
            SchemaCheck(self.output_schema)
        if self.retry is not None:
            check_retry(self.retry)
        if self.idempotent is not None:
            self.annotations = replace(self.annotations, idempotent=self.idempotent)
        self.tags = (self.tags,) if isinstance(self.tags, str) else tuple(self.tags)


def list_options(method: Callable[..., Any]) -> None:
    """Give a method with `ToolOptions` a signature that lists each of them, for `help` and notebooks."""
    own = signature(method)
    named = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    listed = own.replace(parameters=[*named, *signature(Options).parameters.values()])
    method.__signature__ = listed  # type: ignore[attr-defined]  # what `inspect` looks for first


def check_retry(retry: Retry) -> Retry:
    """Return the retry rule; `DefinitionError` if it makes no sense."""
    if retry.max_attempts < 1 or not 0 <= retry.jitter <= 1:
        raise DefinitionError("a Retry needs max_attempts of at least 1 and a jitter from 0 to 1")
    return retry


_FORMS: dict[str, type | UnionType] = {
    **dict.fromkeys(("description", "on_violation", "isolation", "approval"), str),
    "retry": Retry,
    "idempotent": bool,
    "annotations": Annotations,
    "limits": Limits,
    "mcp": McpForms,
    "tags": Iterable,
    "version": int | str,
}
"""Types of options: who writes no types learns of a wrong one here, not when the tool is first listed."""
_CONFINED = ("memory_bytes", "processes", "cpu_ms", "file_bytes", "open_files")
"""Limits that only the sandbox enforces."""
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:([^ {}]|\{\w+\})+")
