"""The history of a store: of each change, by any interface, a line in a log and the record before it.

The log has the form of a project's audit log, and is in the user's data folder beside the bundles. Records
of a tool as they were before their changes are in

<data>/bundles/<bundle id>/revisions/<file of the tool>/<UUIDv7>.json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from toolcrib.bundles.files import create_file, make_folder
from toolcrib.bundles.records import (
    SCHEMA_VERSION,
    BundleRecord,
    Moment,
    ToolRecord,
    Uuid,
    file_of,
    read_file,
    visible,
)
from toolcrib.errors import StateUnavailable
from toolcrib.spec.identifier import new_id
from toolcrib.spec.moment import written

if TYPE_CHECKING:
    from toolcrib.guard import AuditLog

_MOST_LOOKED_AT = 100_000
"""Changes of a bundle among which the name of a damaged record is looked for."""
MOST_LINES = 256
"""Changes of a tool that are returned."""
REVISIONS = "revisions"
MOST_REVISIONS = 50
"""Records that are kept of one version of a tool; the oldest go first."""
ToolChange = Literal["enabled", "disabled", "deleted", "replaced"]


class RecordedChange(Struct, frozen=True, kw_only=True):
    """A change of one version of a tool."""

    at: Moment
    event: str
    """`TOOL_PUT`, `TOOL_ENABLED`, `TOOL_DISABLED`, `TOOL_DELETED`, `TOOL_RESTORED`."""
    version: str
    tool_id: Uuid = field(name="toolID")
    by: str
    """The caller: `cli`, `local` for a program, `page`, or `token:NAME`."""


class Revision(Struct, frozen=True, kw_only=True, rename="camel"):
    """The record of a tool before a change."""

    id: Uuid
    """UUIDv7: sorts by the time of the change."""
    change: ToolChange
    """The change that ended it."""
    changed_at: Moment
    changed_by: str
    """The caller: `cli`, `local` for a program, `page`, or `token:NAME`."""
    tool: ToolRecord
    schema_version: str = SCHEMA_VERSION


def log_of(data: Path) -> tuple[Path, Path]:
    """Return the paths of the log of a store and of its anchor."""
    return data / "audit" / "store.log", data / "audit.anchor"


class History:
    """Writes log and revisions of the store in one folder. A change that cannot be recorded is refused."""

    def __init__(self, data: Path) -> None:
        self._data = data

    @cached_property
    def _log(self) -> AuditLog:
        from toolcrib.guard import AuditLog

        path, anchor = log_of(self._data)
        return AuditLog(path, anchor)

    def ensure(self) -> None:
        """Raise AuditUnavailable unless a line could be written now."""
        self._log.ensure()

    def bundle(self, event: str, bundle: BundleRecord, by: str, **fields: Any) -> None:
        """Record a change of a bundle."""
        self._record(event, {"bundle": bundle.id, "slug": bundle.slug, **fields, "caller": by})

    def tool(self, event: str, tool: ToolRecord, by: str) -> None:
        """Record a change of a tool."""
        named = {"name": tool.slug, "version": tool.version, "bundle": tool.bundle_id, "id": tool.id}
        self._record(event, {**named, "caller": by})

    def _record(self, event: str, fields: Mapping[str, Any]) -> None:
        self._log.record(event, **fields)
        self._log.close()  # A store has no end of its own, at which the file could be closed.

    def of_tool(self, bundle_id: str, slug: str) -> list[RecordedChange]:
        """Return the latest changes of all versions of a tool, the newest first."""
        from toolcrib.guard.audit.search import AuditQuery, AuditReader

        lines = AuditReader(log_of(self._data)[0]).newest(AuditQuery(tool=slug, text=bundle_id), MOST_LINES)
        return [
            RecordedChange(
                at=written(entry.time.timestamp()),
                event=entry.event,
                version=str(entry.fields.get("version")),
                tool_id=str(entry.fields.get("id")),
                by=str(entry.fields.get("caller")),
            )
            for line in reversed(lines)
            if (entry := line.entry) is not None and entry.fields.get("bundle") == bundle_id
        ]

    def slug_of(self, bundle_id: str) -> str | None:
        """Return the slug that a bundle had last, by the log; None if it says nothing."""
        named = (fields.get("slug") for fields in self._of(bundle_id))
        return next((slug for slug in named if isinstance(slug, str)), None)

    def label_of(self, bundle_id: str, file: str) -> tuple[str, str] | None:
        """Return slug and version of the tool that has this file, by the log; None if it says nothing."""
        for fields in self._of(bundle_id):
            listed = [str(one).rpartition("@")[::2] for one in fields.get("tools") or ()]
            for slug, version in (*listed, (str(fields.get("name")), str(fields.get("version")))):
                if file_of(slug, version) == file:
                    return slug, version
        return None

    def _of(self, bundle_id: str) -> Iterator[Mapping[str, Any]]:
        """Yield the fields of the changes of a bundle and its tools, the newest first."""
        from toolcrib.guard.audit.search import AuditQuery, AuditReader

        with suppress(OSError):
            lines = AuditReader(log_of(self._data)[0]).newest(AuditQuery(text=bundle_id), _MOST_LOOKED_AT)
            for line in reversed(lines):
                if line.entry is not None and line.entry.fields.get("bundle") == bundle_id:
                    yield line.entry.fields

    def keep(self, tool: ToolRecord, change: ToolChange, by: str, seconds: float, now: str) -> None:
        """Keep a record that is about to be replaced or removed. The caller alone has the store's lock."""
        folder = self._folder_of(tool.bundle_id, tool.slug, tool.version)
        make_folder(folder)
        made = Revision(id=new_id(seconds), change=change, changed_at=now, changed_by=by, tool=tool)
        create_file(folder / f"{made.id}.json", made)
        for oldest in _files(folder)[MOST_REVISIONS:]:
            oldest.unlink(missing_ok=True)

    def revisions(self, bundle_id: str, slug: str, version: str) -> list[Revision]:
        """Return one version of a tool as it was before each change, the latest change first."""
        return list(_read(_files(self._folder_of(bundle_id, slug, version))))

    def deleted(self, bundle_id: str, slug: str, version: str) -> Revision | None:
        """Return one version of a tool as it was before it was deleted; None if it was not."""
        return _deleted(self._folder_of(bundle_id, slug, version))

    def all_deleted(self, bundle_id: str) -> list[Revision]:
        """Return all tools of a bundle whose last change was that they were deleted."""
        found = map(_deleted, visible(self._data / "bundles" / bundle_id / REVISIONS))
        return [one for one in found if one is not None]

    def _folder_of(self, bundle_id: str, slug: str, version: str) -> Path:
        return self._data / "bundles" / bundle_id / REVISIONS / file_of(slug, version).removesuffix(".json")


def _files(folder: Path) -> list[Path]:
    """Return the files of the revisions of a tool, the newest first."""
    # A name that begins with a dot is a file that is being written.
    return sorted(folder.glob("[!.]*.json"), reverse=True)


def _read(files: Iterable[Path]) -> Iterator[Revision]:
    for path in files:
        with suppress(StateUnavailable):  # One damaged file does not hide the others.
            if (found := read_file(path, Revision)) is not None:
                yield found


def _deleted(folder: Path) -> Revision | None:
    latest = next(_read(_files(folder)), None)
    return latest if latest is not None and latest.change == "deleted" else None
