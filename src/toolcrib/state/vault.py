"""The user's own folders, and the data in them about projects: grants, tokens, trust, heads of audit logs.

A project is a folder that somebody else may have made. What decides about it is kept where only its user
writes: `$TOOLCRIB_DATA`, else `$XDG_DATA_HOME/toolcrib`, else `~/.local/share/toolcrib` (XDG Base Directory).
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from contextlib import suppress
from pathlib import Path

from toolcrib.errors import StateUnavailable
from toolcrib.state.private import is_shared, make_private, open_plain, put_file, put_private


def cache_folder(root: Path) -> Path | None:
    """Return a project's cache folder, which may not exist yet; None if this user has none."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    home = cache_home()
    return None if home is None else home / name


def cache_home() -> Path | None:
    """Return the folder above those of all projects. No tool may see it, because its content is trusted.

    `$TOOLCRIB_CACHE`, else `$XDG_CACHE_HOME/toolcrib`, else `~/.cache/toolcrib`.
    """
    return first_place(("TOOLCRIB_CACHE", ""), ("XDG_CACHE_HOME", "toolcrib"), ("HOME", ".cache/toolcrib"))


def data_home() -> Path:
    """Return the user's data folder, which may not exist yet. StateUnavailable if there is no home folder.

    `$TOOLCRIB_DATA`, else `$XDG_DATA_HOME/toolcrib`, else `~/.local/share/toolcrib`.
    """
    if named := os.environ.get("TOOLCRIB_DATA"):
        return Path(named).absolute()
    if (found := first_place(("XDG_DATA_HOME", "toolcrib"), ("HOME", ".local/share/toolcrib"))) is not None:
        return found
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir, ".local/share/toolcrib")
    except KeyError:
        raise StateUnavailable(
            "this user has no home folder for grants and tokens",
            hint="Set TOOLCRIB_DATA to a folder for the user's data.",
        ) from None


def first_place(*places: tuple[str, str]) -> Path | None:
    """Return the first place, a variable and a path below it, whose variable is an absolute path."""
    for variable, below in places:
        folder = os.environ.get(variable, "")
        if folder.startswith("/"):
            return Path(folder, below)
    return None


def user_name(uid: int | None = None) -> str:
    """Return the name of a user, by default this process's, from the system rather than the environment."""
    number = os.getuid() if uid is None else uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


_is_key = re.compile(r"[0-9a-f]{64}\Z").match


class Vault:
    """The user's folder about one project, named by a digest of the project's real path.

    Nothing is created on disk until `folder` is read.
    """

    def __init__(self, root: Path, data: Path | None = None) -> None:
        self.root = root
        self.data = data or data_home()
        """The user's data folder, above the folders of all projects. No tool may see it."""
        self.path = self.data / "projects" / hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        """The project's folder in it, which may not exist yet."""

    @property
    def folder(self) -> Path:
        """The project's folder, created if missing. `StateUnavailable` if other users could write to it."""
        return self._made(self.data, self.path.parent, self.path)

    @property
    def programs(self) -> Path:
        """The folder of what was downloaded for its servers, made as `folder` is: `DATA-servers/PROJECT`.

        It is beside the data folder because servers read it.
        """
        home = Path(f"{self.data}-servers")
        return self._made(home, home / self.path.name)

    def _made(self, *folders: Path) -> Path:
        """Create folders, each in the one before, and return the last, which names the project's root."""
        path = folders[-1]
        try:
            make_private(path)
            for folder in folders:
                _require_own(folder)
            label = path / "root"
            if not label.exists():
                put_file(label, os.fsencode(self.root) + b"\n", first=True)
        except OSError as error:
            raise StateUnavailable(
                f"{path} cannot be created: {error.strerror}",
                hint="Set TOOLCRIB_DATA to another folder for the user's data.",
                details={"path": str(path)},
            ) from None
        return path

    def key(self) -> bytes:
        """Return the key that signs this user's decisions in a database on a server; 32 bytes, made once.

        It is the file `grants-key` in the data folder. A user of several machines copies it to each of them.
        """
        path = self.folder.parent.parent / "grants-key"
        text = _made_once(path, 32)
        if not _is_key(text):
            raise StateUnavailable(
                f"{path} is damaged, so decisions in the database cannot be recognised",
                hint="Copy it from another machine, or remove it: then everything is asked again.",
                details={"path": str(path)},
            )
        return bytes.fromhex(text)

    def origin(self) -> str:
        """Return a random name that the project's database contains too, if it was created here."""
        path = self.folder / "origin"
        name = _made_once(path, 16)
        if not name:
            raise StateUnavailable(
                f"{path} is empty, so the project's state.db cannot be recognised as made here",
                hint="Remove this file and the project's state.db; both are created again.",
                details={"path": str(path)},
            )
        return name


def known_projects() -> list[Path]:
    """Return the paths of the projects that this user has data about; some may be gone."""
    found = []
    for label in sorted((data_home() / "projects").glob("*/root")):
        with suppress(OSError), open_plain(label) as file:
            found.append(Path(os.fsdecode(file.read().removesuffix(b"\n"))))
    return found


def _made_once(path: Path, size: int) -> str:
    """Return the random text of a file, which is made first if there is none."""
    if not path.exists():
        put_private(path, os.urandom(size).hex().encode(), first=True)
    # Read from the file in any case: of two processes that make it at once, one wins.
    with open_plain(path) as file:
        return file.read().decode(errors="replace").strip()


def _require_own(folder: Path) -> None:
    """Refuse a folder to which another user could add files."""
    if is_shared(folder.stat()):
        raise StateUnavailable(
            f"{folder} decides what tools may do, but other users can write to it",
            hint=f"Make it yours alone: chown {os.geteuid()} {folder} && chmod go-w {folder}",
            details={"path": str(folder)},
        )
