"""Revisions: the records of a tool as they were before each change, in a folder beside the tools.

<data>/bundles/<bundle id>/revisions/<file of the tool>/<UUIDv7>.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolcrib.bundles.files import create_file, make_folder
from toolcrib.bundles.records import SCHEMA_VERSION, ToolRecord, file_of
from toolcrib.spec.identifier import new_id

FOLDER = "revisions"
MOST = 50
"""Records that are kept of one version of a tool; the oldest go first."""
ToolChange = Literal["enabled", "disabled", "deleted", "replaced"]


class Revision(Struct, frozen=True, kw_only=True, rename="camel"):
    """The record of a tool before a change."""

    id: str
    """UUIDv7: sorts by the time of the change."""
    change: ToolChange
    """The change that ended it."""
    changed_at: str
    changed_by: str
    """The caller: `cli`, `local` for a program, `page`, or `token:NAME`."""
    tool: ToolRecord
    schema_version: str = SCHEMA_VERSION


def keep(bundle: Path, tool: ToolRecord, change: ToolChange, by: str, seconds: float, now: str) -> None:
    """Keep a record that is about to be replaced or removed. The caller has the lock of the store alone."""
    file = file_of(tool.slug, tool.version)
    folder = bundle / FOLDER / file.removesuffix(".json")
    make_folder(folder)
    made = Revision(id=new_id(seconds), change=change, changed_at=now, changed_by=by, tool=tool)
    create_file(folder / f"{made.id}.json", made)
    for oldest in revision_files(bundle, tool.slug, tool.version)[MOST:]:
        oldest.unlink(missing_ok=True)


def revision_files(bundle: Path, slug: str, version: str) -> list[Path]:
    """Return the files of the revisions of one version of a tool, the newest first."""
    folder = bundle / FOLDER / file_of(slug, version).removesuffix(".json")
    # A name that begins with a dot is a file that is being written.
    return sorted(folder.glob("[!.]*.json"), reverse=True)
