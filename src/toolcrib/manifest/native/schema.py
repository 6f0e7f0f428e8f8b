"""The JSON Schema of `tool.yml`: the common part, and that of each kind in use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from toolcrib.errors import ConfigError
from toolcrib.manifest.kinds import KINDS, manifest_kinds
from toolcrib.manifest.yaml.diagnostics import Diagnostic
from toolcrib.manifest.yaml.form import Form, Misfit
from toolcrib.manifest.yaml.source import Document

_COMMON = Path(__file__).with_name("schema.json")
_ARGUMENTS = ("args", "argSchema", "arguments", "inputSchema", "input_schema", "parameters", "params")
"""Names of the arguments in other formats."""
_KNOWN = (
    Misfit(
        ("approval", "reason"),
        "required",
        "approval-reason",
        "add `reason:`, which the person asked sees",
        "`approval.required` is true, but there is no `reason`",
    ),
    Misfit(
        ("inputs", "schema", "type"),
        "required",
        "input-schema",
        "add `type: object`",
        "the schema of the arguments must say `type: object`",
    ),
    Misfit(
        ("permissions", "network", "allow"),
        "required",
        hint="write `network: {allow: [api.example.com]}`",
        message="a mapping here must have `allow`",
    ),
    Misfit(
        ("permissions", "secrets"),
        "type",
        hint="write each name as a key: `NAME: {type: string, required: true}`",
    ),
    Misfit(("name",), rule="name"),
    Misfit(("description",), rule="description"),
    Misfit(("version",), rule="version"),
    Misfit(("approval", "reason"), rule="approval-reason"),
    Misfit(("approval", "required"), "type"),
    Misfit(("approval",), "type", hint="write `approval: {required: true, reason: …}`"),
    Misfit(("permissions", "network", "allow"), "type"),
    Misfit(("permissions", "network"), "type", hint="write `network: {allow: [api.example.com]}`"),
    Misfit(("inputs", "schema"), rule="input-schema"),
    Misfit(("outputs", "schema"), rule="output-schema"),
    *(
        Misfit((word,), "additionalProperties", hint="the arguments are a JSON Schema under `inputs.schema`")
        for word in _ARGUMENTS
    ),
    *(
        Misfit((block, word), "additionalProperties", hint=f"move it below `{block}.schema`")
        for block in ("inputs", "outputs")
        for word in ("type", "properties", "required", "additionalProperties")
    ),
)


@cache
def tool_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of `tool.yml`: the common part, and that of each kind in use."""
    import orjson

    schema: dict[str, Any] = orjson.loads(_COMMON.read_bytes())
    block, names = schema["properties"]["exec"], []
    for kind in manifest_kinds():
        assert kind.schema is not None
        part = orjson.loads(kind.schema.read_bytes())
        parts = {kind.name: part, **part.pop("$defs", {})}
        if clash := schema["$defs"].keys() & parts.keys():
            raise ConfigError(f"the JSON Schema of the kind {kind.name} defines {', '.join(clash)} again")
        schema["$defs"] |= parts
        block["properties"][kind.name] = {"$ref": f"#/$defs/{kind.name}"}
        names.append(kind.name)
    schema["properties"]["kind"]["enum"] = names
    block["description"] = block["description"].format(kinds=", ".join(names))
    return schema


@cache
def block_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one block of `tool.yml`, without references."""
    import orjson

    common = orjson.loads(_COMMON.read_bytes())
    found: dict[str, Any] = inlined(common["properties"][name], common["$defs"])
    return found


def inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a part of a JSON Schema with these definitions in place of references to them."""
    if isinstance(schema, list):
        return [inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    own = {key: inlined(value, definitions) for key, value in schema.items() if key != "$ref"}
    if "$ref" not in schema:
        return own
    return {**inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions), **own}


def kind_names() -> list[str]:
    """Return the names of the kinds in the schema."""
    return list(tool_schema()["properties"]["exec"]["properties"])


@cache
def _form() -> Form:
    one_kind = f"`exec` must have exactly one of {', '.join(kind_names())}"
    known = [
        Misfit(("exec", kind.name, *one.path), *one[1:]) for kind in manifest_kinds() for one in kind.misfits
    ]
    known += (
        Misfit(("exec",), f"{bound}Properties", "exec-kind", message=one_kind) for bound in ("min", "max")
    )
    return Form(tool_schema(), (*known, *_KNOWN))


def fits(data: Any) -> bool:
    """Return True if data have the form of a manifest. Raises ConfigError for a broken kind of a package."""
    return _form().fits(data) or (_extend(data) and _form().fits(data))


def _extend(data: Any) -> bool:
    """Take the kind that data name into the schema, if it comes from an installed package."""
    name = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(name, str) or KINDS.is_builtin(name) or name in kind_names():
        return False
    kind = KINDS.get(name)
    if kind is None or kind.schema is None:
        return False
    tool_schema.cache_clear()
    _form.cache_clear()
    return True


def misfits(document: Document) -> list[Diagnostic]:
    """Return every misfit of a document, in the order of the file."""
    return _form().misfits(document, document.data)
