"""The parameters of an operation, and the request that they are collected in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.manifest.openapi.document import MAX_NAME, Node, OpenApiDocument, RefProblem, clean, unique
from toolcrib.manifest.openapi.schemas import Schemas, is_scalar
from toolcrib.manifest.openapi.translation import Schema, flag
from toolcrib.manifest.requests import SET_BY_CLIENT, TOKEN
from toolcrib.spec import BodyPart, ParameterStyle, SecretSpec
from toolcrib.spec.record import record
from toolcrib.template.styles import STYLES

_PLACES = frozenset({"path", "query", "header", "cookie", "querystring"})
_IGNORED = frozenset({"accept", "content-type", "authorization"})
"""Headers that are ignored as parameters (OpenAPI 3.0.0, Parameter Object)."""
_NEVER_NEEDED = ("is not a parameter of OpenAPI", "is set by the client itself")
_DEFAULTS = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_COLLECTIONS = {
    "csv": (None, False),
    "multi": ("form", True),
    "pipes": ("pipeDelimited", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
}
_OF_2_0 = frozenset({"in", "name", "required", "description", "collectionFormat", "allowEmptyValue"})


@record
class Parameter:
    """One parameter as the document has it."""

    name: str
    place: str
    node: Node

    @property
    def required(self) -> bool:
        """True if a value is needed; a path parameter always needs one."""
        return self.place == "path" or flag(self.node.object.get("required")) is True


def collect(document: OpenApiDocument, shared: Node, own: Node, notes: list[str]) -> list[Parameter]:
    """Return the parameters of a path and an operation; those of the operation come first.

    Raises Unusable if a required one cannot be read.
    """
    found: dict[tuple[str, str], Parameter] = {}
    for parameters in (shared, own):
        for item in parameters.items():
            try:
                node = document.follow(item)
            except RefProblem as problem:
                raise Unusable(f"a parameter cannot be read: {problem}") from None
            name, position = node.object.get("name"), str(node.object.get("in"))
            if position in ("body", "formData"):
                found[position, str(name)] = Parameter(str(name), position, node)
            elif isinstance(name, str) and name and position in _PLACES:
                # Names of headers have no case (RFC 9110, 5.1).
                key = name.lower() if position == "header" else name
                found[position, key] = Parameter(name, position, node)
            elif flag(node.object.get("required")) is True:
                raise Unusable(f"a required parameter has no name or position: {name!r} in {position!r}")
            else:
                notes.append(f"a parameter without a name or position is left out: {name!r} in {position!r}")
    return list(found.values())


def place(parameter: Parameter, request: Request, schemas: Schemas, document: OpenApiDocument) -> None:
    """Add a parameter to the request. Raises Unusable for a required one that cannot be sent."""
    reason = _left_out(parameter, request)
    if reason:
        if parameter.required and reason not in _NEVER_NEEDED:
            raise Unusable(f"the {parameter.place} parameter {parameter.name!r} {reason}")
        request.notes.append(f"the {parameter.place} parameter {parameter.name!r} {reason}; it is left out")
        return
    if (secret := request.bound(parameter.name, required=parameter.required)) is not None:
        _entries(parameter, request)[parameter.name] = (
            secret if parameter.place == "path" else f"${{{secret}}}"
        )
        return
    value = parameter.node.object
    schema_node, style = _described(parameter, document)
    schema, needs = schemas.use(schema_node)
    name = request.argument(
        parameter.name,
        schema,
        needs,
        required=parameter.required,
        description=value.get("description"),
        deprecated=flag(value.get("deprecated")) is True,
        instead=f"{parameter.name}_{parameter.place}",
        wire=parameter.name,
    )
    position = "query" if parameter.place == "querystring" else parameter.place
    if style.style not in STYLES[position]:
        request.notes.append(f"the style {style.style!r} of {parameter.name!r} is not valid in a {position}")
        style = ParameterStyle(_DEFAULTS[position], position in ("query", "cookie"))
    # Other styles write a single value as it is, so only lists and objects need them.
    always = style.allow_reserved or style.style in ("label", "matrix", "json", "cookie")
    if always or not is_scalar(schema, schemas):
        request.styles[name] = style
    _entries(parameter, request)[parameter.name] = name if position == "path" else f"${{{name}}}"


def _entries(parameter: Parameter, request: Request) -> dict[str, Any]:
    if parameter.place == "path":
        return request.path
    return {"header": request.headers, "cookie": request.cookies}.get(parameter.place, request.query)


def _left_out(parameter: Parameter, request: Request) -> str:
    """Return the reason that a parameter cannot be sent, or an empty text."""
    name, lower = parameter.name, parameter.name.lower()
    if parameter.place == "header":
        if lower in _IGNORED:
            return "is not a parameter of OpenAPI"
        if lower in (*SET_BY_CLIENT, "accept-encoding"):
            return "is set by the client itself"
        if any(lower == other.lower() for other in request.headers):
            return "is defined twice"
    # A name with a line break or a colon would add headers to the request.
    if parameter.place in ("header", "cookie") and not TOKEN.fullmatch(name):
        return f"has a name that is not valid in a {parameter.place}"
    if "${" in name and parameter.place != "path":
        return "has a name that cannot be written"
    if parameter.place == "querystring" and _media(parameter)[0] != "application/x-www-form-urlencoded":
        return "is a whole query that is not encoded as a form"
    return ""


def _described(parameter: Parameter, document: OpenApiDocument) -> tuple[Node, ParameterStyle]:
    """Return the node of the schema, and the style."""
    node, value = parameter.node, parameter.node.object
    if document.version == "2.0":
        return _of_2_0(parameter)
    if "content" in value and "schema" not in value:
        media, inner = _media(parameter)
        if parameter.place == "querystring":
            return inner, ParameterStyle("form", explode=True)
        return inner, ParameterStyle("json" if "json" in media else _DEFAULTS[parameter.place])
    style = value.get("style")
    if not isinstance(style, str):
        style = _DEFAULTS[parameter.place]
    explode = flag(value.get("explode"))
    return node.at("schema"), ParameterStyle(
        style,
        # The default of `explode` is true for `form` and `cookie` only (OpenAPI 3.2, Parameter Object);
        # `deepObject` is always written so.
        explode=style in ("form", "cookie", "deepObject") if explode is None else explode,
        name=parameter.name if style == "matrix" else None,
        allow_reserved=flag(value.get("allowReserved")) is True,
    )


def _of_2_0(parameter: Parameter) -> tuple[Node, ParameterStyle]:
    """Return the schema and style of a parameter of 2.0, which is its own schema."""
    node, value = parameter.node, parameter.node.object
    schema = {key: item for key, item in value.items() if key not in _OF_2_0}
    style, explode = _COLLECTIONS.get(str(value.get("collectionFormat", "csv")), (None, False))
    rule = Node(value.get("schema", schema), node.resource, node.pointer)
    return rule, ParameterStyle(style or _DEFAULTS.get(parameter.place, "form"), explode)


def _media(parameter: Parameter) -> tuple[str, Node]:
    """Return the content type of a parameter, and the node of its schema."""
    content = parameter.node.at("content")
    for media, node in content.entries():
        return media.partition(";")[0].strip().lower(), node.at("schema")
    return "", content.at("", "schema")


class Unusable(Exception):
    """The reason that an operation, or a part of it, is not supported."""


@dataclass(slots=True)
class Request:
    """The arguments and the `exec.http` block of a tool, while they are collected."""

    forbidden: frozenset[str] = frozenset()
    """Names that no argument may have: those of secrets."""
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
    bind: Mapping[str, str] = field(default_factory=dict)
    """Parameters and fields of the body that are a secret, and its name."""
    secrets: dict[str, SecretSpec] = field(default_factory=dict)
    """The secrets of `bind` that are used."""

    def bound(self, wire: str, *, required: bool) -> str | None:
        """Return `secret:NAME` if the parameter or field is a secret; None if it is an argument."""
        name = self.bind.get(wire, self.bind.get(argument_name(wire)))
        if name is None:
            return None
        # One secret may be bound twice, and is required if either place needs it.
        needed = required or (name in self.secrets and self.secrets[name].required)
        self.secrets[name] = SecretSpec(name, required=needed)
        return f"secret:{name}"

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
        wire: str | None = None,
    ) -> str:
        """Add an argument and return its name; `instead` is tried when the wished one is taken.

        `wire` is the name that the server reads; the description mentions one that differs.
        """
        name = argument_name(wished)
        if instead and name in self.properties:
            name = argument_name(instead)
        # A name that is both an argument and a secret is ambiguous in `${name}`, and templates refuse it.
        while name in self.forbidden:
            name = argument_name(f"{name[:60]}_arg")
        name = unique(name, self.properties)
        rule: Schema = dict(schema) if isinstance(schema, dict) else {}
        if text := clean(description):
            rule["description"] = _joined(text, rule.get("description", ""))
        if deprecated:
            rule["deprecated"] = True
        if wire is not None and (wire := clean(wire)) != name:
            text = rule.get("description", "").rstrip()
            end = "" if not text else " " if text.endswith((".", "!", "?", ":")) else ". "
            rule["description"] = f"{text}{end}Sent as `{wire}`."
        self.properties[name] = schema if schema is False else rule or schema
        if required:
            self.required.append(name)
        self.needs |= needs
        return name

    def input_schema(self, definitions: Schema) -> Schema:
        """Return the schema of the arguments, with the definitions that it needs."""
        schema: Schema = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        schema["additionalProperties"] = False
        if definitions:
            schema["$defs"] = definitions
        return schema


def _joined(description: str, own: str) -> str:
    """Return a parameter's description, plus the default of its schema if it is not mentioned."""
    at = own.rfind("Default: ")
    if at < 0 or own[at:].rstrip(".").removeprefix("Default: ").lower() in description.lower():
        return description
    return f"{description.rstrip('.')}. {own[at:]}"


def argument_name(wished: str) -> str:
    """Return a name of 1 to 64 letters, digits, `_`, `.` and `-`, which every model provider accepts."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", wished).strip("_") or "value"
    return plain[:MAX_NAME]
