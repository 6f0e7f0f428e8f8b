"""The stored records: bundles and tools, as they are in their JSON files and in REST answers.

Field names are FlexiGPT's. Ids, timestamps, `isBuiltIn` and `schemaVersion` are set by the store. A file that
cannot be read is shown as a damaged record, with the reason.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from toolcrib.errors import BundleFull, InvalidId, InvalidInput, InvalidSlug, MissingField, StateUnavailable
from toolcrib.spec.moment import written

SCHEMA_VERSION = "2026-11-01"
"""The form of the records. A file of an earlier one is migrated when it is read."""
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TAG = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_LANGUAGE = re.compile(r"[a-zA-Z]{2,8}(-[a-zA-Z0-9]{1,8})*")
_LONGEST = 64
MOST_TOOLS = 10_000
"""Versions of tools in one bundle."""
_ALLOWED = frozenset(["Lu", "Ll", "Lt", "Lm", "Lo", "Nd"])


ToolType = Literal["go", "http", "native", "mcp"]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time in UTC, RFC 3339 with milliseconds."""
Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]


class Translation(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The texts of a record in one language. Where one is empty, the record's own counts."""

    display_name: str = ""
    description: str = ""


Translations = (
    Annotated[
        dict[str, Translation],
        Meta(
            description="Language tag (BCP 47) to the texts that people read in it. Models read the others.",
            examples=[{"de": {"displayName": "Wetter"}}],
        ),
    ]
    | UnsetType
)


class BundleBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The part of a bundle that a client writes."""

    slug: str
    display_name: str = ""
    description: str = ""
    translations: Translations = UNSET
    is_enabled: bool = True


class BundleRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A named container of tools with one switch."""

    id: Uuid
    """UUIDv7, chosen by the client that made the bundle."""
    slug: str
    display_name: str = ""
    description: str = ""
    translations: Translations = UNSET
    is_enabled: bool = True
    is_built_in: bool = False
    created_at: Moment
    modified_at: Moment
    soft_deleted_at: Moment | None = None
    """Set from its deletion until the reaper removes it."""
    schema_version: str = SCHEMA_VERSION


class ToolBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The part of a tool that a client writes."""

    display_name: str = ""
    description: str = ""
    translations: Translations = UNSET
    tags: tuple[str, ...] = ()
    type: Literal["go", "http", "native"]
    """`go`: a registered Python callable; `http`: requests; `native`: a manifest of our own format."""
    is_enabled: bool = True
    arg_schema: dict[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments. Without one the tool takes an empty object."""
    output_schema: dict[str, Any] | None = None
    impl: dict[str, Any]
    """The `impl` of FlexiGPT's `tool.json`; for `native` only `manifest`, the text of the manifest."""


class ToolRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One version of a tool in a bundle."""

    id: Uuid = field(name="toolID")
    """UUIDv7, made by the store."""
    bundle_id: Uuid = field(name="bundleID")
    slug: str
    version: str
    display_name: str = ""
    description: str = ""
    translations: Translations = UNSET
    tags: tuple[str, ...] = ()
    type: ToolType
    is_enabled: bool = True
    is_built_in: bool = False
    arg_schema: dict[str, Any] = field(default_factory=dict)
    output_schema: dict[str, Any] | None = None
    impl: dict[str, Any]
    created_at: Moment
    modified_at: Moment
    """The last change of anything but the switch."""
    schema_version: str = SCHEMA_VERSION


class _Versioned(Struct, rename="camel"):
    schema_version: str


_NEWEST = f'"schemaVersion": "{SCHEMA_VERSION}"\n}}\n'.encode()
_Form = TypeVar("_Form")
Migration = Callable[[dict[str, Any]], dict[str, Any]]
MIGRATIONS: dict[str, Migration] = {}
"""An earlier `schemaVersion` to the function that makes a record one of the next version, named in it."""


def decode_json(data: bytes, form: type[_Form]) -> _Form:
    """Read JSON text as a value of this type. Raises msgspec.DecodeError, whatever is wrong with the text.

    It may begin with a byte order mark, as some editors write one.
    """
    try:
        return msgspec.json.decode(data.removeprefix(BOM_UTF8), type=form)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def decode(data: bytes, form: type[_Form]) -> _Form:
    """Read a JSON file of this store. A record of an earlier version is migrated; the file stays as it is.

    Raises msgspec.DecodeError for anything else, such as a record of a newer version of this program.
    """
    # The end that this store writes saves a look for the version.
    if data.endswith(_NEWEST) or decode_json(data, _Versioned).schema_version == SCHEMA_VERSION:
        return decode_json(data, form)
    value = decode_json(data, dict[str, Any])
    while (version := value.get("schemaVersion")) != SCHEMA_VERSION:
        if version not in MIGRATIONS:
            raise msgspec.ValidationError(f"it has the version {version!r}, which this program does not know")
        value = MIGRATIONS[version](value)
    return msgspec.convert(value, type=form)


def check_id(value: str) -> None:
    """Raise InvalidId unless the text is a lower-case UUID of version 7 (RFC 9562)."""
    if not _ID.fullmatch(value):
        raise InvalidId(
            f"bundleID {value!r} is not a UUID of version 7",
            hint="Make one with `toolcrib bundle create`, or by RFC 9562, in lower case.",
        )


def check_slug(value: str) -> None:
    """Raise InvalidSlug unless the text is 1 to 64 letters, decimal digits and dashes."""
    _check_label(value, "slug", "letters, digits and dashes", "-")


def check_room(bundle_id: str, tools: int) -> None:
    """Raise BundleFull if a bundle would have so many tools."""
    if tools > MOST_TOOLS:
        raise BundleFull(
            f"the bundle {bundle_id} would have {tools:,} versions of tools; at most {MOST_TOOLS:,} fit",
            hint="Delete versions that nobody uses, or put the tools into another bundle.",
            details={"limit": MOST_TOOLS},
        )


def check_version(value: str) -> None:
    """Raise InvalidSlug unless the text is 1 to 64 letters, decimal digits, dashes and dots."""
    _check_label(value, "version", "letters, digits, dashes and dots", "-.")


def _check_label(value: str, what: str, allowed: str, marks: str) -> None:
    if not 1 <= len(value) <= _LONGEST:
        raise InvalidSlug(f"a {what} has 1 to {_LONGEST} characters, this one {len(value)}")
    for char in value:
        if char not in marks and unicodedata.category(char) not in _ALLOWED:
            raise InvalidSlug(f"the {what} {value!r} contains U+{ord(char):04X}: only {allowed} are allowed")
    # Two forms of what looks like one word would be two tools.
    if unicodedata.normalize("NFC", value) != value:
        raise InvalidSlug(f"the {what} {value!r} is not in Unicode form NFC")


def check_bundle_body(body: BundleBody) -> None:
    """Raise InvalidSlug or MissingField for values that the types allow and the rules do not."""
    if not body.slug:
        raise MissingField("a bundle needs a slug")
    check_slug(body.slug)
    check_translations(body.translations)


def check_tool_body(body: ToolBody) -> None:
    """Raise MissingField or InvalidInput for values that the types allow and the rules do not."""
    if not body.display_name and not body.description and body.type != "native":
        raise MissingField("a tool needs a displayName or a description")
    if wrong := [tag for tag in body.tags if not _TAG.fullmatch(tag)]:
        raise InvalidInput(
            f"the tag {wrong[0]!r} is not allowed",
            hint="A tag is a letter or `_`, then up to 63 letters, digits, `_` and `-`.",
        )
    if len(set(body.tags)) < len(body.tags):
        raise InvalidInput("a tag is given twice")
    check_translations(body.translations)


def check_translations(translations: Translations) -> None:
    """Raise InvalidInput for a key that is not a language tag."""
    if wrong := [tag for tag in translations or () if not _LANGUAGE.fullmatch(tag)]:
        raise InvalidInput(
            f"{wrong[0]!r} in translations is not a language tag",
            hint="Write it as in BCP 47, such as `de` or `pt-BR`.",
        )


def file_of(slug: str, version: str) -> str:
    """Return the name of a tool's file: a UUID (version 8) of slug and version.

    The same pair has the same name in every process, so creating the file can only succeed once. The text of
    a pair never gets into a file name: 64 characters of Chinese are longer than a file name may be.
    """
    text = hashlib.sha256(f"{slug}\0{version}".encode()).hexdigest()
    # Version and variant of RFC 9562, 5.8.
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}.json"


def fault_of(tool: ToolRecord, bundle_id: str, file: str) -> str:
    """Return why this store did not write the record into its file, or "": people copy and edit files."""
    if tool.bundle_id != bundle_id:
        return f"its bundleID is {tool.bundle_id}, not the name of its folder"
    if file_of(tool.slug, tool.version) != file:
        return f"the file of {tool.slug}@{tool.version} has another name"
    if not _ID.fullmatch(tool.id):
        return f"its id {tool.id!r} is not a UUID of version 7"
    for moment in tool.created_at, tool.modified_at:
        try:
            datetime.fromisoformat(moment)
        except ValueError:
            return f"{moment!r} is not a time as 2026-11-01T00:00:00.000Z"
    return ""


# O_NONBLOCK: to open a FIFO that somebody has put there would wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WHY = "its record cannot be read: "


class NotARecord(StateUnavailable):
    """A file in the place of a record is none of this store, or cannot be read at all."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} is not a record of this store: {reason}",
            hint="Put the record again, delete it, or restore the file from a backup.",
            details={"path": str(path)},
        )
        self.path, self.reason = str(path), reason


class DamagedBundle(BundleRecord, frozen=True, kw_only=True):
    """The place of a bundle whose record cannot be read."""

    unavailable_because: str
    path: str
    """The path of its file."""


class DamagedTool(ToolRecord, frozen=True, kw_only=True):
    """The place of a tool whose record cannot be read."""

    unavailable_because: str
    path: str
    """The path of its file."""


def read_file(path: Path | str, form: type[_Form]) -> _Form | None:
    """Return the record in a file; None if there is no such file. Raises NotARecord."""
    try:
        return decode(_read(path), form)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotARecord(path, error.strerror or type(error).__name__) from None
    except msgspec.DecodeError as error:
        raise NotARecord(path, str(error)) from None


def _read(path: Path | str) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        # A record is replaced and never written in place, so its size is that of the whole.
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def damaged_bundle(error: NotARecord, id: str, slug: str | None) -> DamagedBundle:  # noqa: A002
    """Return what is shown of a bundle in the place of its record. It counts as disabled."""
    changed = written(mark_of(error.path) / 1e9)
    return DamagedBundle(
        id=id,
        slug=slug or id,
        is_enabled=False,
        created_at=changed,
        modified_at=changed,
        unavailable_because=f"{_WHY}{error.reason}",
        path=error.path,
    )


def damaged_tool(error: NotARecord, bundle_id: str, file: str, label: tuple[str, str] | None) -> DamagedTool:
    """Return what is shown of a tool in the place of its record. It counts as disabled.

    `label` is its slug and version; without one it has the name of its file and version `1`.
    """
    slug, version = label or (file.removesuffix(".json"), "1")
    changed = written(mark_of(error.path) / 1e9)
    return DamagedTool(
        id=file_of(file, bundle_id).removesuffix(".json"),
        bundle_id=bundle_id,
        slug=slug,
        version=version,
        type="native",
        impl={},
        is_enabled=False,
        created_at=changed,
        modified_at=changed,
        unavailable_because=f"{_WHY}{error.reason}",
        path=error.path,
    )


def require_whole(record: BundleRecord | ToolRecord) -> None:
    """Raise NotARecord for the place of a damaged record."""
    if isinstance(record, DamagedBundle | DamagedTool):
        raise NotARecord(record.path, record.unavailable_because.removeprefix(_WHY))


def with_text(tool: ToolRecord) -> ToolRecord:
    """Return a record to be kept; of a damaged one with the text of its file. Raises StateUnavailable."""
    if not isinstance(tool, DamagedTool):
        return tool
    try:
        return msgspec.structs.replace(tool, impl={"text": _read(tool.path).decode(errors="replace")})
    except OSError as error:  # Then it may be whole.
        raise NotARecord(tool.path, error.strerror or type(error).__name__) from None


def mark_of(path: str) -> int:
    """Return the time of the last change of a file in nanoseconds since the epoch; 0 if there is none."""
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def visible(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder, if it exists, without temporary files."""
    with suppress(FileNotFoundError):
        yield from (path for path in folder.iterdir() if not path.name.startswith("."))
