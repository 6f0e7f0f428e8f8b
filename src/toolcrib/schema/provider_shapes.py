"""Tools in the forms of OpenAI's and Gemini's APIs, each of which supports a part of JSON Schema only.

Keywords that a provider refuses move into the description beside them, in words that a model can follow.
Calls are always checked against the tool's own schema. References are written out, because not all providers
follow them; OpenAI's strict tools keep those that lead back to themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Literal

from toolcrib.errors import DefinitionError
from toolcrib.schema.lenient import relaxed
from toolcrib.schema.providers import anthropic_tool, mcp_tool, wire_names
from toolcrib.schema.shapes.gemini import gemini_json, gemini_schema, merged, noted, single_types
from toolcrib.schema.shapes.parts import (
    LONGEST,
    compact,
    cut,
    renamed_properties,
    with_items,
    with_rules,
    without_unions,
    written_out,
)
from toolcrib.schema.shapes.strict import strict_schema
from toolcrib.schema.validate import SchemaCheck
from toolcrib.spec import Tool
from toolcrib.spec.record import record

_COMMON = frozenset({"type", "description", "enum", "properties", "required", "items", "anyOf", "format"})
_NUMBERS = frozenset({"minimum", "maximum", "minItems", "maxItems", "pattern"})
_OPENAI_STRICT = (
    _COMMON
    | _NUMBERS
    | {"additionalProperties", "const", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "$defs", "$ref"}
)
_STRICT_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
_GEMINI = _COMMON | _NUMBERS | {"nullable", "title", "minLength", "maxLength"}
_GEMINI_JSON = _COMMON | {"minimum", "maximum", "minItems", "maxItems", "nullable", "additionalProperties"}
_GEMINI_FORMATS = {
    "string": ("enum", "date-time"),
    "number": ("float", "double"),
    "integer": ("int32", "int64"),
}
_SILENT = frozenset({"$schema", "$id", "$comment", "$defs", "definitions", "$anchor"})
"""Keywords that mean nothing to a model."""


Shape = Literal["anthropic", "gemini", "gemini-json", "mcp", "openai", "openai-strict"]


@record
class Shaped:
    """A list of tools for one provider."""

    entries: tuple[dict[str, Any], ...]
    names: dict[str, str]
    """Name on the wire to the tool's own name."""
    refused: dict[str, str]
    """Tool name to the reason why it cannot be described to the provider."""
    meta: dict[str, dict[str, Any]]
    """Name on the wire to what does not fit into its entry: a `description` that is cut there."""
    tools: dict[str, Tool]
    """Name on the wire to the tool."""
    renames: bool = False
    """True if properties have other names where the provider does not accept their own."""

    def call(self, wire_name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the tool's own name and its arguments for a call that a model made by this list.

        What only the form of the provider needs is taken back: null for an optional argument, an object as
        JSON text, another name of an argument. Arguments that fit the tool's own schema stay as they are.
        Raises KeyError for a name that is not in the list.
        """
        tool = self.tools[wire_name]
        own = renamed_properties(without_unions(tool.input_schema)[0])[1] if self.renames else {}
        values = {own.get(name, name): value for name, value in arguments.items()}
        if not SchemaCheck(tool.input_schema).is_valid(values):
            values = relaxed(values, tool.input_schema)
        return tool.name, values


def shape_tools(tools: Iterable[Tool], shape: Shape) -> Shaped:
    """Return the tools in a provider's form and names; a bad schema leaves out only its own tool."""
    make = SHAPES[shape]
    entries: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    refused: dict[str, str] = {}
    meta: dict[str, dict[str, Any]] = {}
    made: dict[str, Tool] = {}
    wired = wire_names(tools)
    for wire_name, tool in wired.items():
        try:
            # First: a provider refuses the whole request for one bad schema.
            SchemaCheck(tool.input_schema)
            # Names of later tools count as taken too, so that those tools keep them.
            name = _leading(wire_name, {*wired, *names}) if shape.startswith("gemini") else wire_name
            entry = make(tool, name)
            entries.append(entry)
            names[name] = tool.name
            made[name] = tool
            if (
                "function" in entry
                and len(whole := _described(tool, without_unions(written_out(tool.input_schema))[1]))
                > LONGEST
            ):
                meta[name] = {"description": whole}
        except (DefinitionError, RecursionError) as error:
            refused[tool.name] = str(error) or type(error).__name__
    return Shaped(tuple(entries), names, refused, meta, made, renames=shape == "anthropic")


def _leading(name: str, taken: Container[str]) -> str:
    """Return a free name that begins with a letter or underscore, as Gemini requires."""
    if re.match(r"[A-Za-z_]", name):
        return name
    for count in range(1, 60):
        led = ("_" * count + name)[:64]
        if led not in taken:
            return led
    raise DefinitionError(f"no name that Gemini accepts is free for {name}")


def openai_tool(tool: Tool, wire_name: str, *, strict: bool = False) -> dict[str, Any]:
    """Return the tool as an entry of `tools` in OpenAI's Chat Completions API.

    Strict (structured outputs): every object is closed and all its properties are required, so an optional
    one may be null; DefinitionError for a schema without such a form (a value of any type).
    """
    written = written_out(tool.input_schema, recursion=strict)
    schema, rules = without_unions(merged(written) if strict else written)
    description = cut(_described(tool, rules))
    schema = with_items(schema)
    if strict:
        schema = strict_schema(
            _restricted(
                schema, _OPENAI_STRICT, lambda _, word, part: word != "format" or part in _STRICT_FORMATS
            )
        )
    function: dict[str, Any] = {"name": wire_name, "description": description, "parameters": schema}
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def gemini_tool(tool: Tool, wire_name: str) -> dict[str, Any]:
    """Return the tool as a function declaration of the Gemini API (its `Schema` is a part of OpenAPI 3.0)."""
    schema, rules = without_unions(written_out(tool.input_schema))
    entry: dict[str, Any] = {"name": wire_name, "description": _described(tool, rules)}
    if schema["properties"]:
        entry["parameters"] = gemini_schema(_restricted(single_types(schema), _GEMINI, _gemini_format))
    return entry


def gemini_json_tool(tool: Tool, wire_name: str) -> dict[str, Any]:
    """Return the tool as a function declaration with `parametersJsonSchema`."""
    schema, rules = without_unions(written_out(tool.input_schema))
    parameters = {"parametersJsonSchema": as_gemini_json(schema)} if schema["properties"] else {}
    return {"name": wire_name, "description": _described(tool, rules), **parameters}


def as_gemini_json(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references in the part of JSON Schema that Gemini's API takes."""
    return gemini_json(_restricted(single_types(with_items(dict(schema))), _GEMINI_JSON, _gemini_format))


SHAPES: dict[Shape, Callable[[Tool, str], dict[str, Any]]] = {
    "anthropic": anthropic_tool,
    "gemini": gemini_tool,
    "gemini-json": gemini_json_tool,
    "mcp": mcp_tool,
    "openai": openai_tool,
    "openai-strict": lambda tool, name: openai_tool(tool, name, strict=True),
}
"""Provider name to the function that writes its form."""


def _described(tool: Tool, rules: Mapping[str, Any]) -> str:
    """Return the description, the rules without a place in the schema, and as many examples as fit."""
    text = with_rules(tool.description, rules)
    examples = [f"- {one.description or 'Call'}: {compact(one.params)}" for one in tool.examples]
    for number, line in enumerate(examples):
        more = f"\n{line}" if number else f"\n\nExamples:\n{line}"
        if len(text) + len(more) > LONGEST:
            break
        text += more
    return text


# -- keywords that a provider refuses -----------------------------------------------------------------


def _restricted(
    rule: Any, known: frozenset[str], keeps: Callable[[Mapping[str, Any], str, Any], bool]
) -> dict[str, Any]:
    """Return a schema of known keywords only; the others move into its description."""
    if not isinstance(rule, Mapping):
        return {} if rule is not False else {"description": "nothing fits here"}
    made: dict[str, Any] = {}
    moved: dict[str, Any] = {}
    for word, part in rule.items():
        if word in ("properties", "$defs") and word in known:
            made[word] = {name: _restricted(inner, known, keeps) for name, inner in part.items()}
        elif word in ("items", "additionalProperties") and isinstance(part, Mapping) and word in known:
            made[word] = _restricted(part, known, keeps)
        elif word == "anyOf" and word in known:
            made[word] = [_restricted(branch, known, keeps) for branch in part]
        elif word in known and keeps(rule, word, part):
            made[word] = part
        elif word not in _SILENT and not (
            word == "title" or (word == "additionalProperties" and part is True)
        ):
            moved[word] = part
    if moved.get("additionalProperties") is False and made.get("properties"):
        del moved["additionalProperties"]
    if not moved:
        return made
    return noted(made, ", ".join(f"{word}: {compact(part)}" for word, part in moved.items()))


def _gemini_format(rule: Mapping[str, Any], word: str, part: Any) -> bool:
    if word == "format":
        return part in _GEMINI_FORMATS.get(str(rule.get("type")), ())
    return word != "enum" or (rule.get("type") == "string" and all(isinstance(one, str) for one in part))
