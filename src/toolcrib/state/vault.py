"""The user's own folder: grants, tokens, trust, heads of audit logs: nothing a project may bring.

A project is a folder that others may have made. What decides over it lies where only its user writes:
`$TOOLCRIB_DATA`, else `$XDG_DATA_HOME/toolcrib`, else `~/.local/share/toolcrib` (XDG Base Directory).
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from pathlib import Path

from toolcrib.errors import StateUnavailable
from toolcrib.state.private import put_private

__all__ = ["Vault"]

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Vault:
    """What the user keeps about one project, in a folder of its own, named by the project's real path.

    Nothing is made on disk before `folder` is asked for.
    """

    def __init__(self, root: Path, data: Path | None = None) -> None:
        self.root = root
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        self._data = data or _data_folder()
        self._path = self._data / "projects" / name

    @property
    def data(self) -> Path:
        """The user's data folder, which holds what is kept about every project. No tool may see it."""
        return self._data

    @property
    def path(self) -> Path:
        """Where the folder is, or would be."""
        return self._path

    @property
    def folder(self) -> Path:
        """The folder, made if need be. `StateUnavailable` where others could write in it."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self._data, self._path.parent, self._path):
                _own(folder)
            label = self._path / "root"
            if not label.exists():
                label.write_bytes(os.fsencode(self.root) + b"\n")
        except OSError as error:
            raise StateUnavailable(
                f"{self._path} cannot be made: {error.strerror}",
                hint="Name another folder for the user's data in TOOLCRIB_DATA.",
                details={"path": str(self._path)},
            ) from None
        return self._path

    def origin(self) -> str:
        """A random name that the project's database bears too: one that came with the project does not."""
        path = self.folder / "origin"
        if not path.exists():
            put_private(path, os.urandom(16).hex().encode(), first=True)
        name = path.read_text().strip()
        if not name:
            raise StateUnavailable(
                f"{path} is empty, so nothing tells whether the project's state was made here",
                hint="Remove it, and the project's state.db with it; both are made anew.",
                details={"path": str(path)},
            )
        return name


def _data_folder() -> Path:
    named = os.environ.get("TOOLCRIB_DATA")
    if named:
        return Path(named).absolute()
    shared = os.environ.get("XDG_DATA_HOME", "")
    if shared.startswith("/"):
        return Path(shared, "toolcrib")
    home = os.environ.get("HOME", "")
    if not home.startswith("/"):
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise StateUnavailable(
                "this user has no home folder to keep grants and tokens in",
                hint="Name a folder for the user's data in TOOLCRIB_DATA.",
            ) from None
    return Path(home, ".local", "share", "toolcrib")


def _own(folder: Path) -> None:
    """Refuse a folder that somebody else could put something into."""
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & _OTHERS:
        raise StateUnavailable(
            f"{folder} can be written by others, and decides what tools may do",
            hint=f"Make it yours alone: chown {os.geteuid()} {folder} && chmod go-w {folder}",
            details={"path": str(folder)},
        )
