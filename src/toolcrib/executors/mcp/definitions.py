"""Tools of an MCP server: their definitions as the server sends them, and as tools of the project."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from toolcrib.errors import ToolcribError
from toolcrib.schema import ArgumentCheck, SchemaCheck, to_json_text
from toolcrib.spec import Annotations, ApprovalRule, McpExec, Output, Tool
from toolcrib.spec.tools.policies import MCP_HINTS, McpForms

if TYPE_CHECKING:
    from mcp.shared.uri_template import UriTemplate
    from pydantic import BaseModel, ValidationError

    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

Definition = dict[str, Any]
"""One entry of `tools/list`: name, title, description, inputSchema, outputSchema, annotations."""
MAX_TOOLS = 1_000
_MAX_PAGES = 100
_MAX_BYTES = 131_072
_MAX_NAME = 64
_METHOD_NOT_FOUND = -32601
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""Method of a list to the key of its entries."""
_LEFT = "toolcrib/left"
"""The key in `_meta` of a list for the reasons why entries were removed from it."""
_OPTIONAL = frozenset({"title", "description", "outputSchema", "annotations", "icons", "_meta", "execution"})
"""Members without which an entry still says what it is and takes."""
PROMPT, RESOURCE = "prompt:", "resource:"
"""Beginnings of the names of definitions that are a prompt or a resource."""
_ADDRESS = ("url", "urls", "uri")
_TEXTS = ("title", "description")
_FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons")


def as_json(model: BaseModel) -> dict[str, Any]:
    """Return one of the official client's objects as it is on the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def fetch(client: Any) -> tuple[list[Definition], list[str]]:
    """Return every usable definition of a connected server, and the reasons why others are left out.

    Its prompts and resources are definitions too, as tools that get or read them.
    """
    from mcp import MCPError

    found: dict[str, Definition] = {}
    left: list[str] = []
    offers = client.server_capabilities
    for offered, fetch_page, key, write in (
        (offers.tools, client.list_tools, "tools", _of_tool),
        (offers.prompts, client.list_prompts, "prompts", _of_prompt),
        (offers.resources, client.list_resources, "resources", _of_resource),
        (offers.resources, client.list_resource_templates, "resource_templates", _of_resource),
    ):
        try:
            if offered is not None:
                await _fetch_list(fetch_page, key, write, found, left)
        except MCPError as error:  # Servers that have resources need not know templates of them.
            if key == "tools" or error.error.code != _METHOD_NOT_FOUND:
                raise
    return list(found.values()), left


async def _fetch_list(
    fetch_page: Callable[..., Any],
    key: str,
    write: Callable[[dict[str, Any]], Definition],
    found: dict[str, Definition],
    left: list[str],
) -> None:
    """Read the pages of one list."""
    cursor: str | None = None
    # A server can return a next cursor forever.
    for _ in range(_MAX_PAGES):
        page = await fetch_page(cursor=cursor)
        left.extend((page.meta or {}).get(_LEFT, ())[: MAX_TOOLS - len(left)])
        for entry in getattr(page, key):
            shown = as_json(entry)
            try:
                definition = write(shown)
                reason = _why_unusable(definition)
            except ValueError as error:
                definition, reason = shown, str(error)
            if shown.get("execution", {}).get("taskSupport") == "required":
                reason = "it can only be called as a task of protocol 2025-11-25, which is not supported"
            if definition["name"] in found:
                reason = "the server lists this name more than once; the first one counts"
            if reason is None and len(found) >= MAX_TOOLS:
                reason = f"it has more than {MAX_TOOLS:,} tools"
            if reason is None:
                found[definition["name"]] = definition
            elif len(left) < MAX_TOOLS:
                left.append(f"{definition['name'][:_MAX_NAME]!r}: {reason}")
        cursor = page.next_cursor
        if not cursor:
            return
    left.append(f"the {key} after {_MAX_PAGES} pages of the list")


def repair_list(method: str, version: str, result: dict[str, Any]) -> None:
    """Repair the entries of a list that the official client would refuse as a whole, and remove the others.

    The reasons why entries are removed go with the list, to `fetch`.
    """
    key = LISTS[method]
    meta = result.get("_meta")
    if isinstance(meta, dict):
        meta.pop(_LEFT, None)
    if not isinstance(result.get(key), list) or not _wrong_at(method, version, result):
        return
    kept, left = [], []
    for entry in result[key]:
        made, wrong = entry, ["entry"]
        if isinstance(entry, dict):
            made = _repaired(entry) if key == "tools" else entry
            wrong = _wrong_at(method, version, {**result, key: [made]})
            optional = {path.partition(".")[0] for path in wrong} & _OPTIONAL
            if optional:
                made = {word: part for word, part in made.items() if word not in optional}
                wrong = _wrong_at(method, version, {**result, key: [made]})
        if wrong:
            name = str(entry.get("name") if isinstance(entry, dict) else entry)[:_MAX_NAME]
            left.append(f"{name!r}: its definition is not one of MCP: see `{wrong[0]}`")
        else:
            kept.append(made)
    if left:
        result["_meta"] = {**(meta if isinstance(meta, dict) else {}), _LEFT: left[:MAX_TOOLS]}
    result[key] = kept


def _repaired(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool whose schemas have the type `object` where they leave it open.

    Null is as good as absent, and PHP writes an empty object as `[]`.
    """
    made = {word: part for word, part in tool.items() if part is not None}
    made.setdefault("inputSchema", {})
    for word in ("inputSchema", "outputSchema"):
        schema = made.get(word)
        if schema == []:
            schema = {}
        if isinstance(schema, dict):
            schema = {key: part for key, part in schema.items() if part is not None}
            kinds = schema.get("type", "object")
            if isinstance(kinds, list) and "object" in kinds:
                kinds = "object"
            if schema.get("properties") == []:
                schema["properties"] = {}
            made[word] = {**schema, "type": kinds}
    return made


def _wrong_at(method: str, version: str, result: dict[str, Any]) -> list[str]:
    """Return the paths in the entries of a list that the protocol does not allow; none for a good list."""
    from mcp_types.methods import validate_server_result
    from pydantic import ValidationError

    try:
        validate_server_result(method, version, result)
    except ValidationError as error:
        return places_of(error, skip=2) or [LISTS[method]]
    except KeyError:  # The version has no such list.
        pass
    return []


def places_of(error: ValidationError, skip: int = 0) -> list[str]:
    """Return the paths that a validation error is about, without their first `skip` steps."""
    return [".".join(map(str, one["loc"][skip:])) for one in error.errors() if one["loc"][skip:]]


def _of_tool(whole: dict[str, Any]) -> Definition:
    return {key: whole[key] for key in _FIELDS if key in whole}


def _of_prompt(whole: dict[str, Any]) -> Definition:
    """Return the tool that gets a prompt: it takes the prompt's arguments, which are texts."""
    given = whole.get("arguments") or []
    described = {one["name"]: {"type": "string", "description": one.get("description", "")} for one in given}
    required = [one["name"] for one in given if one.get("required")]
    schema = {"type": "object", "properties": described, "required": required}
    about: Definition = {key: whole[key] for key in ("title", "description", "icons") if key in whole}
    return {"name": f"{PROMPT}{whole['name']}", **about, "inputSchema": schema}


def _of_resource(whole: dict[str, Any]) -> Definition:
    """Return the tool that reads a resource, or those of a template: it takes the template's variables.

    Raises ValueError for a template that is none.
    """
    uri = whole.get("uriTemplate") or whole["uri"]
    variables = _template(uri).variables if "{" in uri else []
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {
            one.name: {"type": "array", "items": text} if one.explode else text for one in variables
        },
        "required": [one.name for one in variables if one.operator not in ("?", "&")],
    }
    about: Definition = {
        key: whole[key] for key in ("title", "description", "mimeType", "icons") if key in whole
    }
    return {"name": f"{RESOURCE}{uri}", "title": whole["name"], **about, "inputSchema": schema}


def resource_uri(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the URI of a resource by the name of its definition, with the names of a template filled in."""
    uri = name[len(RESOURCE) :]
    return _template(uri).expand(arguments) if "{" in uri else uri


def _template(uri: str) -> UriTemplate:
    from mcp.shared.uri_template import UriTemplate

    return UriTemplate.parse(uri)


def _why_unusable(definition: Definition) -> str | None:
    """Return the reason why a definition cannot be used, or None."""
    if not definition["name"] or len(definition["name"]) > 256:
        return "its name is empty or too long"
    try:
        if len(to_json_text(definition)) > _MAX_BYTES:
            return f"its definition has more than {_MAX_BYTES // 1024} KiB"
        ArgumentCheck(definition["inputSchema"])
        if "outputSchema" in definition:
            SchemaCheck(definition["outputSchema"])
    except (ToolcribError, ValueError, TypeError) as error:
        return f"its schema cannot be used: {error}"
    return None


def takes_address(definition: Definition) -> bool:
    """Return True if a property of the input is the address of something, by its format or its name."""
    given = definition["inputSchema"].get("properties", {})
    return any(
        name.lower() in _ADDRESS or (isinstance(one, dict) and one.get("format") == "uri")
        for name, one in (given.items() if isinstance(given, dict) else ())
    )


def digest(definition: Definition) -> str:
    """Return the SHA-256 of a definition, in hex; the order of its keys does not count."""
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()


def masked(definition: Any, mask: Callable[[str], str]) -> Any:
    """Return a definition with secrets masked in its descriptions and titles.

    Names and values of arguments stay: calls are made with them.
    """
    if isinstance(definition, list):
        return [masked(one, mask) for one in definition]
    if not isinstance(definition, dict):
        return definition
    return {
        key: mask(one) if key in _TEXTS and isinstance(one, str) else masked(one, mask)
        for key, one in definition.items()
    }


def names_of(server: str, tools: Iterable[str], *, prefix: bool = True) -> dict[str, str]:
    """Return each tool's name in the project, `SERVER__TOOL`: unique, and valid for every client.

    Without `prefix` it is the tool's own name.

    An unsuitable name ends in a hash of the original, so it does not depend on the other tools.
    """
    names: dict[str, str] = {}
    all_of_them = tuple(tools)
    for tool in all_of_them:
        own = tool.removeprefix(PROMPT)
        # A tool has the name already, so the prompt keeps its prefix.
        if own in all_of_them and own != tool:
            own = tool
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", own)
        name = f"{server}__{plain}" if prefix else plain
        if plain != own or len(name) > _MAX_NAME:
            tail = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            # 9 characters: the underscore, and 8 digits of the hash.
            name = f"{name[: _MAX_NAME - 9]}_{tail}"
        names[tool] = name
    return names


def tool_of(
    spec: ServerSpec,
    name: str,
    shown: Definition,
    live: str,
    *,
    approval: ApprovalRule,
) -> Tool:
    """Return the tool that `shown` describes; `live` is the digest of the server's present definition."""
    hints: Mapping[str, Any] = shown.get("annotations") or {}
    schema = shown.get("outputSchema")
    description = shown.get("description") or shown.get("title") or shown["name"]
    return Tool(
        name=name,
        description=description,
        kind="mcp",
        input_schema=shown["inputSchema"],
        config=McpExec(spec.name, shown["name"], live, spec.identity),
        output=Output(schema=schema),
        permissions=spec.permissions,
        approval=approval,
        mcp=_forms(shown),
        annotations=Annotations(**{ours: hints.get(theirs) for ours, theirs in MCP_HINTS.items()}),
        bundle=spec.name,
    )


def _forms(definition: Definition) -> McpForms:
    """Return the forms in which our own clients find a definition: as it was with its server."""
    name, kind = definition["name"], definition.get("mimeType")
    # MCP, Icons: other schemes, such as `javascript:` and `file:`, are unsafe for those who show them.
    icons = [one for one in definition.get("icons", ()) if one["src"].startswith(("https:", "data:"))]
    if name.startswith(RESOURCE):
        return McpForms(listed=False, resource=name[len(RESOURCE) :], mime_type=kind, icons=icons)
    is_prompt = name.startswith(PROMPT)
    return McpForms(listed=not is_prompt, prompt=is_prompt, icons=icons)
