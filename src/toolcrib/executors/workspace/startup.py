"""Files by which a tool could make the user's other programs run something.

What exists of them at the start of a call is read-only unless a grant names it. What a call has created is
reported: in its result, in the audit log and by the next `toolcrib trust`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from toolcrib.sandbox.files.named import NameSearch
from toolcrib.sandbox.files.paths import Paths, within
from toolcrib.spec.naming import HOMES

STARTUP: Mapping[str, str] = {
    ".claude": "Claude Code",
    ".cursor": "Cursor",
    ".envrc": "direnv",
    ".git": "git",
    ".github": "GitHub",
    ".gitlab-ci.yml": "GitLab",
    ".husky": "husky",
    ".idea": "IDEs of JetBrains",
    ".mcp.json": "MCP clients",
    ".pre-commit-config.yaml": "pre-commit",
    ".vscode": "VS Code",
    "AGENTS.md": "coding agents",
    "CLAUDE.md": "Claude Code",
}
"""The name of each file or folder, in whatever folder it is, and a program that does what it says."""
_SKIPPED = (*HOMES, "node_modules", "site-packages")
"""Installed packages bring such files too, which no program of the user takes for its own."""
_SEARCH = NameSearch(STARTUP, _SKIPPED)


def startup_files(folders: Iterable[str], paths: Paths | None = None) -> tuple[str, ...]:
    """Return what exists of them below these folders, given as real paths."""
    search = _SEARCH.below if paths is None else partial(paths.search, _SEARCH)
    return tuple(dict.fromkeys(path for folder in folders for path in search(folder)))


def startup_place(path: str, folder: str) -> str | None:
    """Return the file or folder of such a name that a path is, or is in, from `folder` down."""
    here = folder if within(path, folder) else ""
    for part in path[len(here) :].strip("/").split("/"):
        here = f"{here}/{part}"
        if part in STARTUP:
            return here
        if part in _SKIPPED:
            break
    return None


def startup_use(path: str) -> str:
    """Return what to do about one that a call has created."""
    program = STARTUP.get(path.rpartition("/")[2])
    return "check it before you use it" + ("" if program is None else f": {program} may do what it says")


def startup_warning(path: str) -> str:
    """Return the warning about one that a call has created."""
    return f"{path} was created while the tool ran: {startup_use(path)}"
