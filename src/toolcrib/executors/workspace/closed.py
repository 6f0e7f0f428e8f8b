"""The places of a project that stay closed to tools, whatever a manifest grants."""

from __future__ import annotations

from typing import NamedTuple

from toolcrib.spec.record import record

KERNEL = ("/proc", "/sys", "/dev")
"""Never granted: they show other processes, also ours."""
SECRET_FILES = (".env",)
STATE = "state.db"
LOCK = "toolcrib.lock"
GIT_SETTINGS = ("config", "config.worktree", "commondir", "hooks", "modules", "worktrees")


class ClosedFolder(NamedTuple):
    """A folder, as a real path, whose files take effect by being there: no tool may add one."""

    folder: str
    why: str
    """The purpose of the files, in words that follow "may write X, and"."""
    deep: bool = True
    """True if the same applies to the folders in it."""


@record
class ClosedPlaces:
    """Places closed by the settings, the tools and this process, beside those that always are."""

    programs: tuple[str, ...] = ()
    """The project's programs: entrypoints and virtual environments, as written and as real paths. No
    tool may write them, or replace a link on the way to them."""
    folders: tuple[ClosedFolder, ...] = ()
    """Folders of which each file is run or read as a definition, whatever its name."""
    secret: tuple[str, ...] = ()
    """Further files and folders with secrets, as absolute paths. No tool may see them."""
    private: tuple[str, ...] = ()
    """The user's own places, with decisions about projects and the cache: no tool may see or create them."""
    own: tuple[str, ...] = ()
    """The files that this process itself runs from: no tool may write them."""
    writable: tuple[str, ...] = ()
    """Folders outside the project that some tool may write, as real paths."""


def hidden_places(root: str, home: str) -> tuple[str, ...]:
    """Return the files and folders of a project that no tool may read."""
    return (
        *(f"{root}/{name}" for name in SECRET_FILES),
        *(f"{home}/{STATE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
        # A tool that could open the audit log could lock it, and all other calls would wait.
        f"{home}/audit",
    )
