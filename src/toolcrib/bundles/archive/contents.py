"""The part of a bundle that travels: no ids of tools, and neither the switch nor the times of the bundle.

The age of a bundle decides which one of two goes by a slug here, so an archive cannot name it. The times of
tools stay: they decide only which version of a tool is the newest.
"""

from __future__ import annotations

import re
from typing import Self

from msgspec import UNSET, Struct

from toolcrib.bundles.records import (
    SCHEMA_VERSION,
    BundleRecord,
    ToolBody,
    Translations,
    check_id,
    check_slug,
    check_tool_body,
    check_translations,
    check_version,
    file_of,
)
from toolcrib.bundles.store import Store
from toolcrib.errors import InvalidInput

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


TEXTS = ("slug", "display_name", "description", "translations")
"""The fields of a bundle that travel with its id."""


class ArchivedBundle(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A bundle in an archive."""

    id: str
    slug: str
    display_name: str = ""
    description: str = ""
    translations: Translations = UNSET
    schema_version: str = SCHEMA_VERSION

    @classmethod
    def of(cls, bundle: BundleRecord) -> Self:
        """Return what of a bundle travels."""
        return cls(**{name: getattr(bundle, name) for name in ("id", *TEXTS)})


class ArchivedTool(ToolBody, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One version of a tool in an archive."""

    slug: str
    version: str
    created_at: str
    """UTC, RFC 3339 with milliseconds."""
    modified_at: str
    schema_version: str = SCHEMA_VERSION

    @property
    def file(self) -> str:
        """The name of its file."""
        return file_of(self.slug, self.version)


class Contents(Struct, frozen=True):
    """A bundle with its tools, to be written to an archive or read from one."""

    bundle: ArchivedBundle
    tools: tuple[ArchivedTool, ...]
    """Sorted by the names of their files."""


def contents_of(store: Store, bundle_id: str) -> Contents:
    """Return a bundle with all its tools. Raises as `Store.snapshot`."""
    bundle, tools = store.snapshot(bundle_id)
    names = ArchivedTool.__struct_fields__
    archived = [ArchivedTool(**{name: getattr(tool, name) for name in names}) for tool in tools]
    return Contents(ArchivedBundle.of(bundle), tuple(sorted(archived, key=lambda tool: tool.file)))


def check_record(record: ArchivedBundle | ArchivedTool) -> None:
    """Raise InvalidInput for values that the types allow and the rules of the store do not."""
    check_slug(record.slug)
    if isinstance(record, ArchivedBundle):
        check_id(record.id)
        check_translations(record.translations)
        return
    check_version(record.version)
    check_tool_body(record)
    for moment in (record.created_at, record.modified_at):
        if not _TIME.fullmatch(moment):
            raise InvalidInput(f"{moment!r} is not a time in UTC with milliseconds")
