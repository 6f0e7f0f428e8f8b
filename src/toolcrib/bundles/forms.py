"""The texts that a tool is put as: a record in JSON, or a native manifest. And records as tools again."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from toolcrib.bundles.answers import ToolAnswer
from toolcrib.bundles.records import (
    DamagedTool,
    ToolBody,
    ToolRecord,
    Translations,
    check_slug,
    check_tool_body,
    check_version,
)
from toolcrib.errors import ConflictError, InvalidInput, ManifestError, MissingField, Violation

if TYPE_CHECKING:
    from toolcrib.manifest import Entry

_FOREIGN = re.compile("[^A-Za-z0-9-]")
_NAMED = ("bundleID", "slug", "version")
"""Fields of a record that say which one it is: they must be those of its place."""
_OF_MANIFEST = ("description", "tags", "arg_schema", "output_schema")
"""Fields of a record that its native manifest has too."""
_KNOWN = {one.encode_name for one in msgspec.structs.fields(ToolAnswer)} - set(_NAMED)
_WRITTEN = {one.encode_name for one in msgspec.structs.fields(ToolBody)}


class NamedTool(Protocol):
    """A tool with its slug, stored or on its way."""

    @property
    def slug(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def impl(self) -> dict[str, Any]: ...


class GivenTool(Protocol):
    """The fields of a record as it was sent."""

    @property
    def is_enabled(self) -> bool: ...
    @property
    def translations(self) -> Translations: ...


class PutTool(NamedTuple):
    """A tool that is to be put into a bundle."""

    slug: str
    version: str
    body: ToolBody


def read_record(
    data: bytes, bundle_id: str, *, slug: str | None = None, version: str | None = None
) -> PutTool:
    """Read FlexiGPT's record of a tool. `slug` and `version` are those that the caller names, if any.

    The fields that the store sets are left out. Raises InvalidInput with each of bundleID, slug and version
    that is another one, InvalidSlug, MissingField, ManifestError if it is not JSON or lint finds an error.
    """
    value = _object(data)
    asked = dict(zip(_NAMED, (bundle_id, slug, version), strict=True))
    wrong = [
        Violation(f"$.{key}", f"is {value[key]!r} here, not {right!r}")
        for key, right in asked.items()
        if right is not None and value.get(key, right) != right
    ]
    if wrong:
        raise InvalidInput(
            f"{wrong[0].path} {wrong[0].message}", hint="Leave it out, or write the same.", violations=wrong
        )
    found_slug, found_version = (value.get(key, asked[key]) for key in _NAMED[1:])
    pair = _pair(found_slug, found_version)
    ignored = {*_NAMED, *_KNOWN - _WRITTEN}
    body = _body({key: part for key, part in value.items() if key not in ignored})
    if body.type != "native":
        check_tool_body(body)
        made = PutTool(*pair, body)
        require_usable(made)
        return made
    return native_tool(body, str(body.impl.get("manifest", "")), *pair)


def native_tool(given: GivenTool, manifest: str, slug: str, version: str) -> PutTool:
    """Read the manifest of a record. `given` are the fields of the record, which may repeat the manifest's.

    Raises InvalidInput with each that differs, and as `read_manifest`.
    """
    made = read_manifest(manifest.encode(), f"{slug}.yml", slug=slug, version=version)
    wrong = [
        Violation(f"$.{one.encode_name}", "differs from the manifest")
        for one in msgspec.structs.fields(ToolBody)
        if one.name in _OF_MANIFEST
        and (value := getattr(given, one.name))
        and value != getattr(made.body, one.name)
    ]
    if wrong:
        hint = "Change it in impl.manifest, and leave it out here."
        raise InvalidInput(f"{wrong[0].path} {wrong[0].message}", hint=hint, violations=wrong)
    own = {"is_enabled": given.is_enabled, "translations": given.translations}
    return made._replace(body=msgspec.structs.replace(made.body, **own))


def require_usable(made: PutTool) -> None:
    """Raise ManifestError if lint finds an error in a record."""
    from toolcrib.manifest import check_tool, entries, failure

    entry = entries(f"{made.slug}.json", _text(*made), "flexigpt")[0]
    found = [*entry.found, *(() if entry.tool is None else check_tool(entry.tool, entry.document))]
    if wrong := [finding for finding in found if finding.is_error]:
        raise failure(wrong)


def own_record(data: bytes) -> PutTool:
    """Read a record as another program wrote it: without ids, times and unknown fields.

    Raises as `read_record`.
    """
    value = _object(data)
    body = _body({key: part for key, part in value.items() if key in _WRITTEN})
    return PutTool(*_pair(value.get("slug"), value.get("version")), body)


def _object(data: bytes) -> dict[str, Any]:
    from toolcrib.manifest.yaml.json_source import load_json

    value = load_json(data, "tool.json").data
    if not isinstance(value, dict):
        hint = "A native manifest ends in .yml or .yaml; over HTTP it is application/yaml."
        raise InvalidInput("the tool is not a JSON object", hint=hint)
    return value


def _pair(slug: Any, version: Any) -> tuple[str, str]:
    for name, text in (("slug", slug), ("version", version)):
        if text is None:
            raise MissingField(f"a tool needs a {name}", hint=f"Name it in the record, or give --{name}.")
        if not isinstance(text, str):
            raise InvalidInput(
                f"$.{name} is not a text", violations=[Violation(f"$.{name}", "is not a text")]
            )
    check_slug(slug)
    check_version(version)
    return slug, version


def _body(value: dict[str, Any]) -> ToolBody:
    for name in ("type", "impl"):
        if name not in value:
            raise MissingField(f"a tool needs {name}")
    try:
        return msgspec.convert(value, ToolBody)
    except msgspec.ValidationError as error:
        # msgspec names the place at the end of its message only.
        message, _, path = str(error).partition(" - at `")
        violation = Violation(path.rstrip("`") or "$", message)
        raise InvalidInput(f"{violation.path} {message}", violations=[violation]) from None


def read_manifest(raw: bytes, path: str, *, slug: str | None = None, version: str | None = None) -> PutTool:
    """Read a native manifest, whose text is kept byte for byte. `slug` and `version`: see `read_record`.

    The slug is made of the name. Raises ManifestError if lint finds an error, InvalidInput, InvalidSlug.
    """
    from toolcrib.manifest import check_tool, failure, load, parse_tool

    tool = parse_tool(load(raw, path))
    if wrong := [finding for finding in check_tool(tool) if finding.is_error]:
        raise failure(wrong)
    pair = {"slug": (slug_of(tool.name), slug), "version": (str(tool.version), version)}
    for name, (own, asked) in pair.items():
        if asked not in (None, own):
            key = "name" if name == "slug" else name
            raise InvalidInput(
                f"the manifest has the {name} {own!r}, not {asked!r}",
                hint=f"Change `{key}` in the manifest too.",
            )
    own_slug, own_version = _pair(*(own for own, _ in pair.values()))
    schema = tool.output.schema
    body = ToolBody(
        description=tool.description,
        tags=tuple(tool.tags),
        type="native",
        arg_schema=dict(tool.input_schema),
        output_schema=dict(schema) if isinstance(schema, dict) else None,
        impl={"manifest": raw.decode()},
    )
    return PutTool(own_slug, own_version, body)


def keep_translations(body: ToolBody, versions: Iterable[ToolRecord]) -> ToolBody:
    """Return a tool of a manifest, which has no place for translations, with those of its newest version."""
    newest = next(iter(versions), None)
    return body if newest is None else msgspec.structs.replace(body, translations=newest.translations)


def slug_of(name: str) -> str:
    """Return the slug of a manifest's name: characters that a slug cannot have become dashes."""
    return _FOREIGN.sub("-", name).strip("-") if name.isascii() else _fitting(name, "-").strip("-")


def label_of(version: str) -> str:
    """Return a version with dashes in place of characters that a label cannot have."""
    return version if version.isalnum() and version.isascii() else _fitting(version, "-.")[:64]


def _fitting(text: str, marks: str) -> str:
    categories = ((char, unicodedata.category(char)) for char in unicodedata.normalize("NFC", text))
    return "".join(
        char if kind[0] == "L" or kind == "Nd" or char in marks else "-" for char, kind in categories
    )


def require_one_name(slug: str, body: ToolBody | NamedTool, others: Iterable[NamedTool]) -> None:
    """Raise ConflictError if one of the other tools has the same slug, and another name in its manifest."""
    # `a_b` and `a-b` have one slug: a version of one would count as a newer version of the other.
    name = _name(slug, body.type, body.impl)
    for other in others:
        same = other.slug == slug and not isinstance(other, DamagedTool)
        if same and (taken := _name(slug, other.type, other.impl)) != name:
            raise ConflictError(
                f"{name!r} and {taken!r} would both have the slug {slug!r} in this bundle",
                hint="Give one of them another name.",
            )


def _name(slug: str, kind: str, impl: dict[str, Any]) -> str:
    """Return the name in a tool's manifest; for a record it is the slug."""
    if kind != "native":
        return slug
    from toolcrib.manifest import load

    try:
        name = load(str(impl.get("manifest", "")).encode(), f"{slug}.yml").data["name"]
    except (ManifestError, KeyError, TypeError):
        return slug
    return str(name)


def record_text(tool: ToolRecord) -> bytes:
    """Return the text that puts this tool again: the manifest of a native one, else a JSON record."""
    if tool.type == "native":
        return str(tool.impl.get("manifest", "")).encode()
    body = ToolBody(**{name: getattr(tool, name) for name in ToolBody.__struct_fields__})
    return msgspec.json.format(_text(tool.slug, tool.version, body), indent=2) + b"\n"


def _text(slug: str, version: str, body: ToolBody) -> bytes:
    record = {"slug": slug, "version": version, **msgspec.to_builtins(body)}
    if body.output_schema is None:
        del record["outputSchema"]
    return msgspec.json.encode(record)


def entry_of(tool: ToolRecord) -> Entry:
    """Return the tool of a record as the path of calls knows it, or the findings why it cannot be used.

    Raises ManifestError if it cannot be read at all.
    """
    from toolcrib.manifest import entries

    if tool.type == "native":
        return entries(f"{tool.slug}.yml", record_text(tool), "native")[0]
    return entries(f"{tool.slug}.json", record_text(tool), "flexigpt")[0]
