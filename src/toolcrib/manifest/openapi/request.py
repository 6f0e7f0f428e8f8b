"""The request of one operation while it is put together: arguments, and where each of them goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolcrib.manifest.openapi.text import argument_name, clean, unique
from toolcrib.manifest.openapi.translation import Schema
from toolcrib.spec import BodyPart, ParameterStyle

__all__ = ["Request", "Unusable"]


class Unusable(Exception):
    """Why an operation, or a part of it, cannot be had."""


@dataclass(slots=True)
class Request:
    """What becomes the arguments and the `exec.http` block of a tool."""

    forbidden: frozenset[str] = frozenset()
    """Names that no argument can have: those of secrets."""
    properties: dict[str, Schema | bool] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    needs: set[str] = field(default_factory=set)
    """Definitions that the arguments' schemas refer to."""
    path: dict[str, str] = field(default_factory=dict)
    """Argument by the name in the path."""
    query: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, Any] = field(default_factory=dict)
    cookies: dict[str, Any] = field(default_factory=dict)
    styles: dict[str, ParameterStyle] = field(default_factory=dict)
    body: Any = None
    body_format: Any = None
    parts: dict[str, BodyPart] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def argument(
        self,
        wished: str,
        schema: Schema | bool,
        needs: set[str],
        *,
        required: bool = False,
        description: Any = "",
        deprecated: bool = False,
        instead: str = "",
    ) -> str:
        """Add an argument and return its name; `instead` is tried when the wished one is taken."""
        name = argument_name(wished)
        if instead and name in self.properties:
            name = argument_name(instead)
        while name in self.forbidden:
            name = argument_name(f"{name[:60]}_arg")
        name = unique(name, self.properties)
        said = clean(description)
        rule: Schema | bool = schema
        if isinstance(rule, dict) and (said or deprecated):
            rule = dict(rule)
            if said:
                rule["description"] = _joined(said, rule.get("description", ""))
            if deprecated:
                rule["deprecated"] = True
        elif said:
            rule = {"description": said} if rule else rule
        self.properties[name] = rule
        if required:
            self.required.append(name)
        self.needs |= needs
        return name

    def input_schema(self, definitions: Schema) -> Schema:
        """The schema of the arguments, closed and complete."""
        schema: Schema = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        schema["additionalProperties"] = False
        if definitions:
            schema["$defs"] = definitions
        return schema


def _joined(said: str, own: str) -> str:
    """A parameter's description, and from its schema's the default that it does not tell."""
    at = own.rfind("Default: ")
    if at < 0 or own[at:].rstrip(".").removeprefix("Default: ").lower() in said.lower():
        return said
    return f"{said.rstrip('.')}. {own[at:]}"
