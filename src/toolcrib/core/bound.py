"""Tools made ready to be called: what a tool is, its checks, its executor, each made when first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

from toolcrib.errors import DefinitionError
from toolcrib.executors.function.executor import function_executor
from toolcrib.schema import ArgumentCheck, FunctionShape, SchemaCheck
from toolcrib.spec import Annotations, Approval, Executor, FunctionExec, Limits, Output, Retry, Tool

__all__ = ["DEFAULT_TIMEOUT_MS", "BoundTool", "FunctionTool", "Options", "check_retry"]

DEFAULT_TIMEOUT_MS = 300_000
"""Limit of one attempt where nobody says other."""


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
    def arguments(self) -> ArgumentCheck:
        """Checks arguments; the schema is compiled on first use."""
        return ArgumentCheck(self.tool.input_schema, lenient=self.lenient)

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
        self, name: str, shape: FunctionShape, options: Options, retry: Retry, timeout_ms: int
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
    def arguments(self) -> ArgumentCheck:
        """Checks arguments; the schema is derived and compiled on first use."""
        return ArgumentCheck(self.tool.input_schema, lenient=self.lenient)


class Options:
    """What registration may say beyond the function itself."""

    __slots__ = (
        "adapt",
        "annotations",
        "approval",
        "description",
        "input_schema",
        "isolation",
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
            check_retry(retry)


def check_retry(retry: Retry) -> Retry:
    """The retry rule itself; `DefinitionError` where it makes no sense."""
    if retry.max_attempts < 1 or not 0 <= retry.jitter <= 1:
        raise DefinitionError("a Retry needs max_attempts of at least 1 and a jitter from 0 to 1")
    return retry


_JSON, _FREE, _NO_HINTS = Output(), Approval(), Annotations()
