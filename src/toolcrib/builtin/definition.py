"""The definition of one built-in tool, from which its `Tool` is made."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field, replace
from typing import Any

from toolcrib.builtin.settings import BuiltinSettings
from toolcrib.errors import ToolUnavailable
from toolcrib.schema import SchemaCheck
from toolcrib.spec import (
    Annotations,
    CommandExec,
    Example,
    FunctionExec,
    Limits,
    McpForms,
    Output,
    Permissions,
    Source,
    Tool,
)
from toolcrib.spec.record import record
from toolcrib.state.installation import install_hint

BUILTIN_BUNDLE = "builtin"
"""The bundle of every built-in tool."""
BUILTIN_VERSION = "v1"


def string(description: str, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of an argument that is a text."""
    return {"type": "string", **more, "description": description}


def integer(description: str, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of an argument that is an integer."""
    return {"type": "integer", **more, "description": description}


def boolean(description: str, *, default: bool) -> dict[str, Any]:
    """Return the JSON Schema of an argument that is true or false."""
    return {"type": "boolean", "default": default, "description": description}


@record
class Builtin:
    """One built-in tool."""

    _: KW_ONLY
    name: str
    description: str
    properties: Mapping[str, Any]
    """Argument name to its JSON Schema."""
    run: Callable[..., Awaitable[Any]]
    """`async def run(site: Site, ctx: CallContext, **arguments)`; returns a value or an `Outcome`.

    Arguments without a default are required.
    """
    permissions: Callable[[BuiltinSettings], Permissions] = lambda _: Permissions()
    """Returns what it may touch, by the settings."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The JSON Schema of its options; each property has a description."""
    runs_shell: bool = False
    """It runs a shell line of its caller, confined."""
    annotations: Annotations = field(default_factory=Annotations)
    limits: Limits = field(default_factory=Limits)
    output: Output = field(default_factory=lambda: Output("text"))
    examples: Sequence[Example] = ()
    resource: str | None = None
    """The URI template by which MCP clients read it as a resource."""
    grace_s: float = 0.0
    """Seconds after its limit in which it ends its own work."""

    def tool(self, settings: BuiltinSettings) -> Tool:
        """Return the tool as these settings make it."""
        # The line is the caller's code on purpose.
        config = CommandExec("/bin/sh", ("-c", "${command}"), allow_code=True)
        tool = Tool(
            name=self.name,
            description=self.description,
            kind="command" if self.runs_shell else "function",
            input_schema=self.input_schema,
            config=config if self.runs_shell else FunctionExec(f"{self.run.__module__}.{self.run.__name__}"),
            output=self.output,
            permissions=self.permissions(settings),
            limits=self.limits,
            annotations=self.annotations,
            tags=(BUILTIN_BUNDLE,),
            examples=tuple(self.examples),
            mcp=McpForms(resource=self.resource),
            bundle=BUILTIN_BUNDLE,
            version=BUILTIN_VERSION,
            # Part of the manifest that `_source` writes, so another option is another version to trust.
            extensions={"builtin": dict(settings.of(self.name))} if settings.of(self.name) else {},
        )
        return replace(tool, source=self._source(tool))

    def option_faults(self, options: Any) -> list[tuple[str, str]]:
        """Return path and message of each option that does not exist or does not fit."""
        schema = {"type": "object", "properties": {}, **self.options, "additionalProperties": False}
        return [(path, message) for path, message in SchemaCheck(schema).violations(options)]

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        parameters = inspect.signature(self.run).parameters
        given = (name for name, one in parameters.items() if one.default is inspect.Parameter.empty)
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": [name for name in given if name in self.properties],
            "additionalProperties": False,
        }

    def _source(self, tool: Tool) -> Source:
        """Return the definition as a native manifest: trust in the tool is for these bytes."""
        from toolcrib.manifest.native.writer import write_manifest

        raw = write_manifest(tool)
        path = inspect.getfile(self.run)
        return Source("native", path, raw, hashlib.sha256(raw).hexdigest(), shared=True, shipped=True)


def missing_extra(tool: str, extra: str) -> ToolUnavailable:
    """Return the error of a tool whose library is not installed."""
    return ToolUnavailable(f"{tool} needs the extra `{extra}`", hint=install_hint(extra))
