"""The log of a store: one line for each change of a bundle or a tool, whatever interface made it.

It has the form of a project's audit log, and lies in the user's data folder beside the bundles.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolcrib.bundles.records import BundleRecord, ToolRecord

if TYPE_CHECKING:
    from toolcrib.guard import AuditLog

MOST_LINES = 256
"""Changes of a tool that are returned."""


class RecordedChange(Struct, frozen=True, kw_only=True):
    """A change of one version of a tool."""

    at: str
    """UTC, RFC 3339."""
    event: str
    """`TOOL_PUT`, `TOOL_ENABLED`, `TOOL_DISABLED`, `TOOL_DELETED`."""
    version: str
    id: str
    by: str
    """The caller: `cli`, `local` for a program, `page`, or `token:NAME`."""


def log_of(data: Path) -> tuple[Path, Path]:
    """Return the paths of the log of a store and of its anchor."""
    return data / "audit" / "store.log", data / "audit.anchor"


class ChangeLog:
    """Writes the log of the store in one folder. A change that cannot be recorded is refused."""

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
        from toolcrib.guard import AuditQuery, AuditReader

        with AuditReader(log_of(self._data)[0]) as reader:
            lines = reader.newest(AuditQuery(tool=slug, text=bundle_id), MOST_LINES)
        return [
            RecordedChange(
                at=entry.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
                event=entry.event,
                version=str(entry.fields.get("version")),
                id=str(entry.fields.get("id")),
                by=str(entry.fields.get("caller")),
            )
            for line in reversed(lines)
            if (entry := line.entry) is not None and entry.fields.get("bundle") == bundle_id
        ]
