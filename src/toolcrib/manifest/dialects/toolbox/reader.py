"""`tools.yaml` of MCP Toolbox for Databases (genai-toolbox): SQL statements, and HTTP requests.

The form with the maps `sources:` and `tools:`, where `kind` says which. `toolbox_documents` reads the other.
"""

from __future__ import annotations

import re
from typing import Any

from toolcrib.manifest.dialects.base import Draft, host_of, secrets_in
from toolcrib.manifest.dialects.durations import milliseconds
from toolcrib.manifest.dialects.fields import Field, Fields
from toolcrib.manifest.yaml.diagnostics import quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec.naming import nearest

__all__ = ["FIELDS", "TYPES", "WORDS", "drafts"]

TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "float": {"type": "number"},
    "boolean": {"type": "boolean"},
}
_LISTED = "list of parameters"
FIELDS: Fields = {
    "": {
        "sources": Field("mapping", "", "What the tools use, by name."),
        "tools": Field("mapping", "required", "A tool each, by `name`."),
        "toolsets": Field("mapping of lists", "", "`tags`: a tool has those of the toolsets that name it."),
    },
    "sources.NAME (sql)": {
        "kind": Field("text", "required", "`exec.sql.engine`; `sqlite` is run, the others are listed only."),
        "database": Field(
            "text", "", "`exec.sql.database`; of `sqlite` its folder is `permissions.fs.read`."
        ),
        "*": Field("any", "", "`exec.sql.connection`; each `${NAME}` is a secret."),
    },
    "sources.NAME (http)": {
        "kind": Field("`http`", "required", "What it is known by."),
        "baseUrl": Field("text", "required", "Begins `exec.http.url`; its host is `permissions.network`."),
        "headers": Field("mapping of texts", "", "`exec.http.headers`, unless the tool has the same."),
        "queryParams": Field("mapping of texts", "", "`exec.http.query`"),
        "timeout": Field("duration", "`30s`", "`exec.http.timeout_ms`"),
    },
    "tools.NAME": {
        "kind": Field("text", "required", "`kind`: `http`, or `sql` for any kind with a `statement`."),
        "type": Field("text", "", "Not read; `kind` says it."),
        "name": Field("text", "", "Not read; the key of the tool in `tools` is its `name`."),
        "source": Field("text", "required", "Which of `sources` it uses."),
        "description": Field("text", "required", "`description`"),
        "annotations": Field("mapping of true or false", "", "`annotations`: `readOnlyHint` and its like."),
        "authRequired": Field(
            "list of texts", "", "Refused: without it, those it shuts out could call the tool."
        ),
        "templateParameters": Field("list", "", "Refused: a value never becomes a part of a statement."),
    },
    "tools.NAME (sql)": {
        "statement": Field("text", "required", "`exec.sql.statement`; a placeholder in it is refused."),
        "parameters": Field(_LISTED, "", "`inputs.schema`, and `exec.sql.parameters` in this order."),
    },
    "tools.NAME (http)": {
        "method": Field("text", "`GET`", "`exec.http.method`"),
        "path": Field("text", "", "Ends `exec.http.url`; `{{.name}}` is an argument."),
        "headers": Field("mapping of texts", "", "`exec.http.headers`"),
        "requestBody": Field("text", "", "`exec.http.body`: JSON with `{{.name}}` or `{{json .name}}`."),
        "pathParams": Field(_LISTED, "", "`inputs.schema`"),
        "queryParams": Field(_LISTED, "", "`inputs.schema`, and `exec.http.query`."),
        "bodyParams": Field(_LISTED, "", "`inputs.schema`"),
        "headerParams": Field(_LISTED, "", "`inputs.schema`, and `exec.http.headers`."),
    },
    "PARAMETER": {
        "name": Field("text", "required", "The argument."),
        "type": Field(
            "`string`, `integer`, `float`, `boolean`, `array` or `map`",
            "required",
            "`type`; `float` is number.",
        ),
        "description": Field("text", "", "`description`"),
        "default": Field("any", "", "`default`"),
        "required": Field("true or false", "`true` without a default", "Whether it stands in `required`."),
        "items": Field("PARAMETER", "required for `array`", "`items`"),
        "valueType": Field("a type", "", "`additionalProperties` of a `map`."),
        "allowedValues": Field("list", "", "`anyOf`: values, or patterns the whole text fits."),
        "excludedValues": Field("list", "", "`not`, likewise."),
        "minValue": Field("number", "", "`minimum`"),
        "maxValue": Field("number", "", "`maximum`"),
        "authServices": Field("list", "", "Refused: the value would come from another system's login."),
    },
}
"""Every field that is read. Others of a tool are kept, and told."""
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
        **dict.fromkeys(("parameters", "pathParams", "queryParams", "bodyParams", "headerParams"), _LIST),
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
_HINTS = {"readOnlyHint": "read_only", "destructiveHint": "destructive", "idempotentHint": "idempotent",
          "openWorldHint": "open_world"}  # fmt: skip
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):([^{}]*)\}")
WORDS = {"description": "description", "default": "default", "minValue": "minimum", "maxValue": "maximum"}
"""Keys of a parameter that a schema has too, and what it calls them."""
_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_FIELD = re.compile(r"(json\s+)?\.([A-Za-z_][A-Za-z0-9_]*)")


def drafts(document: Document) -> list[Draft]:
    """Every tool of the file."""
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("tools"), dict):
        return [_alone(document, data)]
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
            draft.fault(f"its source {tool['source']!r} is not right: {reason}", ("source",))
        else:
            _tool(draft, tool["kind"], tool, source["kind"], _filled(source))
    return made


def _toolsets(whole: Draft, data: dict[str, Any]) -> dict[str, list[str]]:
    """By tool the toolsets that name it: they become its tags."""
    toolsets = data.get("toolsets")
    if not whole.fits(toolsets, _TOOLSETS_FORM, ("toolsets",)) or toolsets is None:
        return {}
    tags: dict[str, list[str]] = {}
    for toolset, names in toolsets.items():
        if not _TAG.fullmatch(toolset):
            told = f"the toolset {quoted(toolset)} becomes no tag: a tag has letters, digits, `_` and `-`"
            whole.fault(told, ("toolsets", toolset), rule="unmapped", key=True)
            continue
        for number, name in enumerate(names or ()):
            if name in data["tools"]:
                tags.setdefault(name, []).append(toolset)
                continue
            close = nearest(name, data["tools"])
            hint = f"did you mean `{close}`?" if close else None
            told = f"the toolset {toolset} names {quoted(name)}, and there is no such tool in the file"
            whole.fault(told, ("toolsets", toolset, number), hint=hint)
    return {name: list(dict.fromkeys(found)) for name, found in tags.items()}


def _rest(whole: Draft, data: dict[str, Any], sources: dict[str, Any]) -> None:
    """Tell what of the file, and of its HTTP sources, has no meaning here."""
    for key in data:
        if key not in FIELDS[""]:
            whole.fault(f"`{key}` has no meaning here", (key,), rule="unmapped", key=True)
    for name, source in sources.items():
        if isinstance(source, dict) and source.get("kind") == "http":
            for key in source:
                if key not in FIELDS["sources.NAME (http)"]:
                    told = f"`{key}` has no meaning here"
                    whole.fault(told, ("sources", name, key), rule="unmapped", key=True)


def _bad_source(source: Any) -> str | None:
    from toolcrib.schema import SchemaCheck

    return next((f"{one.path} {one.message}" for one in SchemaCheck(_SOURCE_FORM).violations(source)), None)


def _filled(source: Any) -> Any:
    """A source with Toolbox's `${NAME:default}` as `${NAME | default:…}`."""
    if isinstance(source, str):
        return _VARIABLE.sub(r"${\1 | default:\2}", source)
    if isinstance(source, dict):
        return {key: _filled(value) for key, value in source.items()}
    return source


def _alone(document: Document, data: Any) -> Draft:
    draft = Draft(document, "toolbox")
    missing = isinstance(data, dict) and "tools" not in data
    told = "holds no tools" if missing else "must hold the maps `sources:` and `tools:`"
    hint = "write the maps `sources:` and `tools:`, or a document with `kind: tool` for each"
    draft.fault(f"the file {told}", hint=hint)
    return draft


def _tool(draft: Draft, kind: str, tool: dict[str, Any], engine: str, source: dict[str, Any]) -> None:
    draft.put(("description",), tool.get("description"), ("description",))
    draft.put(("version",), 1)
    for key, value in tool.get("annotations", {}).items():
        if key in _HINTS:
            draft.put(("annotations", _HINTS[key]), value, ("annotations", key))
        else:
            told = f"`{key}` has no meaning here"
            draft.fault(told, ("annotations", key), rule="unmapped", key=True)
    if "authRequired" in tool:
        # To leave it out would open the tool to those whom it is to be closed to.
        draft.fault(
            "`authRequired` cannot be held here", ("authRequired",), hint="say in the policy who may call it"
        )
    if tool.get("templateParameters"):
        told = "`templateParameters` write values into the statement, which is never done here"
        draft.fault(told, ("templateParameters",), hint="use `parameters`, one statement for each table")
    if kind == "http":
        _http(draft, tool, source)
    elif "statement" in tool:
        _sql(draft, tool, engine, source)
    else:
        draft.fault(f"tools of kind {kind} are not known: only http, and those with a `statement`", ("kind",))


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
    secrets = secrets_in(rest, ())
    if secrets:
        draft.put(("permissions", "secrets"), secrets, ("source",))
    draft.keep(tool, (*FIELDS["tools.NAME"], *FIELDS["tools.NAME (sql)"]))


def _http(draft: Draft, tool: dict[str, Any], source: dict[str, Any]) -> None:
    groups = ("pathParams", "queryParams", "bodyParams", "headerParams")
    names = _inputs(draft, {group: tool.get(group) for group in groups})
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
    host = host_of(base)
    if host is not None:
        draft.put(("permissions", "network"), {"allow": [host]}, ("source",))
    secrets = secrets_in(draft.manifest["exec"], names)
    if secrets:
        draft.put(("permissions", "secrets"), secrets)
    draft.keep(tool, (*FIELDS["tools.NAME"], *FIELDS["tools.NAME (http)"]))


def _dynamic(tool: dict[str, Any], group: str) -> dict[str, str]:
    """The parameters of a group, each under its own name."""
    return {entry["name"]: f"${{{entry['name']}}}" for entry in tool.get(group) or []}


def _headers(*layers: dict[str, str] | None) -> dict[str, str]:
    """Headers, the later layer before the earlier, whichever way a name is written."""
    found: dict[str, tuple[str, str]] = {}
    for layer in layers:
        found |= {name.lower(): (name, value) for name, value in (layer or {}).items()}
    return dict(found.values())


def _body(draft: Draft, text: str) -> None:
    """A request body: JSON, so that a value cannot add to it."""
    import json

    bare = re.compile(r'"(?:[^"\\]|\\.)*"|(\$\{[^{}"]*\})')
    template = _template(draft, text, ("requestBody",))
    try:
        value = json.loads(bare.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], template))
    except ValueError as error:
        told = f"`requestBody` is not JSON with placeholders for values: {error}"
        draft.fault(told, ("requestBody",), hint='write `{{.name}}` alone, or inside of a text: "{{.name}}"')
        return
    draft.put(("exec", "http", "body"), value, ("requestBody",))


def _template(draft: Draft, text: str, origin: KeyPath) -> str:
    """Go's `{{.x}}` and `{{json .x}}` as `${x}`; anything else is refused."""

    def action(found: re.Match[str]) -> str:
        inner = _FIELD.fullmatch(found[1])
        if inner is None:
            draft.fault(
                f"`{found[0][:60]}` cannot be read: only `{{{{.name}}}}` and `{{{{json .name}}}}` can", origin
            )
            return ""
        return f"${{{inner[2]}}}"

    return _ACTION.sub(action, text)


def _inputs(draft: Draft, groups: dict[str, Any]) -> list[str]:
    """The input schema of all parameters; their names in order."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for group, entries in groups.items():
        for number, entry in enumerate(entries or []):
            origin: KeyPath = (group, number)
            name = entry["name"]
            if name in properties:
                draft.fault(f"the parameter {name} stands twice", origin)
            if entry.get("authServices"):
                told = f"the parameter {name} comes from a login of another system, which cannot be held here"
                draft.fault(told, (*origin, "authServices"))
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
    """The schema of one parameter."""
    rule = _type(draft, entry, origin)
    rule |= {word: entry[key] for key, word in WORDS.items() if key in entry}
    if entry.get("allowedValues"):
        rule["anyOf"] = [_value(value) for value in _several(entry["allowedValues"])]
    if entry.get("excludedValues"):
        rule["not"] = {"anyOf": [_value(value) for value in _several(entry["excludedValues"])]}
    for key in entry:
        if key not in FIELDS["PARAMETER"]:
            draft.fault(f"`{key}` has no meaning here", (*origin, key), rule="unmapped", key=True)
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
    """An allowed value; text may be a pattern that the whole of the value fits."""
    if isinstance(value, str) and re.fullmatch(r"[\w -]*", value) is None:
        return {"pattern": f"^(?:{value})$"}
    return {"const": value}
