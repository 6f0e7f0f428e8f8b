"""Read `tools.yaml` of MCP Toolbox for Databases (genai-toolbox): SQL statements and HTTP requests.

This is the form with the maps `sources:` and `tools:`; `documents` reads the other form.
"""

from __future__ import annotations

import re
from typing import Any

from toolcrib.manifest.dialects.base import Draft, json_template, milliseconds
from toolcrib.manifest.yaml.diagnostics import quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec.naming import did_you_mean
from toolcrib.spec.tools.policies import MCP_HINTS

TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "float": {"type": "number"},
    "boolean": {"type": "boolean"},
}
_OF_TOOL = (
    "kind", "type", "name", "source", "description", "annotations", "authRequired", "templateParameters"
)  # fmt: skip
_OF_SQL = (*_OF_TOOL, "statement", "parameters")
_GROUPS = ("pathParams", "queryParams", "bodyParams", "headerParams")
_OF_HTTP = (*_OF_TOOL, "method", "path", "headers", "requestBody", *_GROUPS)
_OF_SOURCE = ("kind", "baseUrl", "headers", "queryParams", "timeout")
_OF_PARAMETER = (
    "name", "type", "description", "default", "required", "items", "valueType", "allowedValues",
    "excludedValues", "minValue", "maxValue", "authServices",
)  # fmt: skip
_TEXT = {"type": "string"}
_LIST = {
    "type": ["array", "null"],
    "items": {"type": "object", "required": ["name"], "properties": {"name": _TEXT}},
}
_TOOL_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["kind", "source", "description"],
    "properties": {
        **dict.fromkeys(
            ("kind", "source", "description", "statement", "method", "path", "requestBody"), _TEXT
        ),
        **dict.fromkeys(("parameters", *_GROUPS), _LIST),
        "headers": {"type": "object", "additionalProperties": _TEXT},
        "annotations": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
}
_SOURCE_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["kind"],
    "properties": {
        **dict.fromkeys(("kind", "database", "baseUrl", "timeout"), _TEXT),
        "headers": {"type": "object", "additionalProperties": _TEXT},
        "queryParams": {"type": "object", "additionalProperties": _TEXT},
    },
    "if": {"properties": {"kind": {"const": "http"}}},
    "then": {"required": ["baseUrl"]},
}
_TOOLSETS_FORM: dict[str, Any] = {
    "type": ["object", "null"],
    "additionalProperties": {"type": ["array", "null"], "items": _TEXT},
}
_TAG = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_HINTS = {theirs: ours for ours, theirs in MCP_HINTS.items()}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):([^{}]*)\}")
WORDS = {"description": "description", "default": "default", "minValue": "minimum", "maxValue": "maximum"}
"""Keys of a parameter, and their names in a schema."""
_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_FIELD = re.compile(r"(json\s+)?\.([A-Za-z_][A-Za-z0-9_]*)")


def drafts(document: Document) -> list[Draft]:
    """Return every tool of the file."""
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("tools"), dict):
        return [_alone(document)]
    sources = data.get("sources")
    sources = sources if isinstance(sources, dict) else {}
    whole = Draft(document, "toolbox")
    tags = _toolsets(whole, data)
    _rest(whole, data, sources)
    made = [whole] if whole.found else []
    for name, tool in data["tools"].items():
        draft = Draft(document, "toolbox", ("tools", name))
        made.append(draft)
        draft.put(("name",), name)
        if name in tags:
            draft.put(("tags",), tags[name])
        if not draft.fits(tool, _TOOL_FORM):
            continue
        source = sources.get(tool["source"])
        if source is None:
            draft.fault(f"the source {tool['source']!r} is not in `sources`", ("source",))
        elif (reason := _bad_source(source)) is not None:
            draft.fault(f"its source {tool['source']!r} is invalid: {reason}", ("source",))
        else:
            _tool(draft, tool["kind"], tool, source["kind"], _filled(source))
    return made


def _toolsets(whole: Draft, data: dict[str, Any]) -> dict[str, list[str]]:
    """Return the toolsets that name each tool: they become its tags."""
    toolsets = data.get("toolsets")
    if not whole.fits(toolsets, _TOOLSETS_FORM, ("toolsets",)) or toolsets is None:
        return {}
    tags: dict[str, list[str]] = {}
    for toolset, names in toolsets.items():
        if not _TAG.fullmatch(toolset):
            message = f"the toolset {quoted(toolset)} is not a valid tag: only letters, digits, `_` and `-`"
            whole.fault(message, ("toolsets", toolset), rule="unmapped", key=True)
            continue
        for number, name in enumerate(names or ()):
            if name in data["tools"]:
                tags.setdefault(name, []).append(toolset)
                continue
            hint = did_you_mean(name, data["tools"])
            message = f"the toolset {toolset} names {quoted(name)}, but the file has no such tool"
            whole.fault(message, ("toolsets", toolset, number), hint=hint)
    return {name: list(dict.fromkeys(found)) for name, found in tags.items()}


def _rest(whole: Draft, data: dict[str, Any], sources: dict[str, Any]) -> None:
    """Report the keys of the file and of its HTTP sources that have no meaning here."""
    for key in data:
        if key not in ("sources", "tools", "toolsets"):
            whole.unmapped((key,))
    for name, source in sources.items():
        if isinstance(source, dict) and source.get("kind") == "http":
            for key in source:
                if key not in _OF_SOURCE:
                    whole.unmapped(("sources", name, key))


def _bad_source(source: Any) -> str | None:
    from toolcrib.schema import SchemaCheck

    return next((f"{one.path} {one.message}" for one in SchemaCheck(_SOURCE_FORM).violations(source)), None)


def _filled(source: Any) -> Any:
    """Return a source with `${NAME | default:…}` for Toolbox's `${NAME:default}`."""
    if isinstance(source, str):
        return _VARIABLE.sub(r"${\1 | default:\2}", source)
    if isinstance(source, dict):
        return {key: _filled(value) for key, value in source.items()}
    return source


def _alone(document: Document) -> Draft:
    draft = Draft(document, "toolbox")
    hint = "write the maps `sources:` and `tools:`, or a document with `kind: tool` for each"
    draft.fault("the file has no tools", hint=hint)
    return draft


def _tool(draft: Draft, kind: str, tool: dict[str, Any], engine: str, source: dict[str, Any]) -> None:
    draft.put(("description",), tool.get("description"), ("description",))
    draft.put(("version",), 1)
    for key, value in tool.get("annotations", {}).items():
        if key in _HINTS:
            draft.put(("annotations", _HINTS[key]), value, ("annotations", key))
        else:
            draft.unmapped(("annotations", key))
    if "authRequired" in tool:
        # Without it, the tool would be open to callers that the file excludes.
        draft.fault(
            "`authRequired` cannot be enforced",
            ("authRequired",),
            hint="remove it, and set in the policy who may call the tool",
        )
    if tool.get("templateParameters"):
        message = "`templateParameters` are not supported: they write values into the statement"
        draft.fault(message, ("templateParameters",), hint="use `parameters`, one statement for each table")
    if kind == "http":
        _http(draft, tool, source)
    elif "statement" in tool:
        _sql(draft, tool, engine, source)
    else:
        draft.fault(
            f"tools of kind {kind} are not supported: only http, and kinds with a `statement`", ("kind",)
        )


def _sql(draft: Draft, tool: dict[str, Any], engine: str, source: dict[str, Any]) -> None:
    names = _inputs(draft, {"parameters": tool.get("parameters")})
    at: KeyPath = ("exec", "sql")
    draft.put(("kind",), "sql", ("kind",))
    draft.put((*at, "engine"), engine, ("source",))
    draft.put((*at, "statement"), tool.get("statement"), ("statement",))
    draft.put((*at, "parameters"), [f"${{{name}}}" for name in names], ("parameters",))
    if "database" in source:
        draft.put((*at, "database"), source["database"], ("source",))
    if engine == "sqlite":
        folder = str(source.get("database", "")).rpartition("/")[0] or "."
        draft.put(("permissions", "fs"), {"read": [folder]}, ("source",))
    rest = {key: value for key, value in source.items() if key not in ("kind", "database")}
    if rest:
        draft.put((*at, "connection"), rest, ("source",))
    draft.grant_secrets(rest, (), ("source",))
    draft.keep(tool, _OF_SQL)


def _http(draft: Draft, tool: dict[str, Any], source: dict[str, Any]) -> None:
    names = _inputs(draft, {group: tool.get(group) for group in _GROUPS})
    at: KeyPath = ("exec", "http")
    draft.put(("kind",), "http", ("kind",))
    base, path = str(source.get("baseUrl", "")), str(tool.get("path", ""))
    url = _template(draft, base.rstrip("/") + "/" + path.lstrip("/") if path else base, ("path",))
    draft.put((*at, "method"), tool.get("method", "GET"), ("method",))
    draft.put((*at, "url"), url, ("path",))
    headers = _headers(source.get("headers"), tool.get("headers"), _dynamic(tool, "headerParams"))
    if headers:
        draft.put((*at, "headers"), headers, ("headers",))
    query = {**(source.get("queryParams") or {}), **_dynamic(tool, "queryParams")}
    if query:
        draft.put((*at, "query"), query, ("queryParams",))
    if tool.get("requestBody"):
        _body(draft, str(tool["requestBody"]))
    timeout = milliseconds(source.get("timeout", "30s"))
    if timeout is not None:
        draft.put((*at, "timeout_ms"), timeout)
    draft.grant_host(base, ("source",))
    draft.grant_secrets(draft.manifest["exec"], names)
    draft.keep(tool, _OF_HTTP)


def _dynamic(tool: dict[str, Any], group: str) -> dict[str, str]:
    """Return a template for each parameter of a group, by name."""
    return {entry["name"]: f"${{{entry['name']}}}" for entry in tool.get(group) or []}


def _headers(*layers: dict[str, str] | None) -> dict[str, str]:
    """Merge headers, ignoring the case of names; later layers override earlier ones."""
    found: dict[str, tuple[str, str]] = {}
    for layer in layers:
        found |= {name.lower(): (name, value) for name, value in (layer or {}).items()}
    return dict(found.values())


def _body(draft: Draft, text: str) -> None:
    """Read a request body as JSON, so that values cannot change its structure."""
    try:
        value = json_template(_template(draft, text, ("requestBody",)))
    except ValueError as error:
        message = f"`requestBody` is not JSON with placeholders for values: {error}"
        draft.fault(message, ("requestBody",), hint='write `{{.name}}` alone, or inside a text: "{{.name}}"')
        return
    draft.put(("exec", "http", "body"), value, ("requestBody",))


def _template(draft: Draft, text: str, origin: KeyPath) -> str:
    """Return Go's `{{.x}}` and `{{json .x}}` as `${x}`; anything else is refused."""

    def action(found: re.Match[str]) -> str:
        inner = _FIELD.fullmatch(found[1])
        if inner is None:
            draft.fault(
                f"`{found[0][:60]}` is not supported: only `{{{{.name}}}}` and `{{{{json .name}}}}` are",
                origin,
            )
            return ""
        return f"${{{inner[2]}}}"

    return _ACTION.sub(action, text)


def _inputs(draft: Draft, groups: dict[str, Any]) -> list[str]:
    """Set the input schema of all parameters, and return their names in order."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for group, entries in groups.items():
        for number, entry in enumerate(entries or []):
            origin: KeyPath = (group, number)
            name = entry["name"]
            if name in properties:
                draft.fault(f"the parameter {name} is defined twice", origin)
            if entry.get("authServices"):
                message = (
                    f"`authServices` of the parameter {name} is not supported: no other system logs in here"
                )
                draft.fault(message, (*origin, "authServices"))
            properties[name] = _rule(draft, entry, origin)
            draft.places[("inputs", "schema", "properties", name)] = (*draft.place, *origin)
            if entry.get("required", "default" not in entry):
                required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    draft.put(("inputs", "schema"), schema)
    return list(properties)


def _rule(draft: Draft, entry: dict[str, Any], origin: KeyPath) -> dict[str, Any]:
    """Return the schema of one parameter."""
    rule = _type(draft, entry, origin)
    rule |= {word: entry[key] for key, word in WORDS.items() if key in entry}
    if entry.get("allowedValues"):
        rule["anyOf"] = [_value(value) for value in _several(entry["allowedValues"])]
    if entry.get("excludedValues"):
        rule["not"] = {"anyOf": [_value(value) for value in _several(entry["excludedValues"])]}
    for key in entry:
        if key not in _OF_PARAMETER:
            draft.unmapped((*origin, key))
    return rule


def _type(draft: Draft, entry: dict[str, Any], origin: KeyPath) -> dict[str, Any]:
    kind = entry.get("type")
    if isinstance(kind, str) and kind in TYPES:
        return dict(TYPES[kind])
    if kind == "array":
        items = entry.get("items")
        if isinstance(items, dict):
            return {"type": "array", "items": _rule(draft, items, (*origin, "items"))}
        draft.fault("an array needs `items`", origin)
        return {"type": "array"}
    if kind == "map":
        value = TYPES.get(str(entry.get("valueType")))
        return {"type": "object", **({"additionalProperties": value} if value is not None else {})}
    draft.fault(f"`type` must be one of {', '.join((*TYPES, 'array', 'map'))}", (*origin, "type"))
    return {}


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(value: Any) -> dict[str, Any]:
    """Return the schema of an allowed value; a text may be a pattern of the whole value."""
    if isinstance(value, str) and re.fullmatch(r"[\w -]*", value) is None:
        return {"pattern": f"^(?:{value})$"}
    return {"const": value}
