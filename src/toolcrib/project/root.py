"""The place of a project: the nearest folder upward with `.toolcrib/` (or `.glee/`) in it, or a file."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from toolcrib.errors import ConflictError, NotFoundError, NotTrusted, ProjectNotFound, UsageError
from toolcrib.spec.record import record
from toolcrib.state import Vault, user_name

HOMES = (".toolcrib", ".glee")
"""Names of the folder that makes its parent a project; one of the two."""


@record
class Place:
    """A project's root and its home folder, both real paths.

    A Python file is a project too: its root is the folder around it, its home is in the user's data folder.
    """

    root: Path
    home: Path
    file: Path | None = None
    """The real path of the Python file; None for a folder."""
    toolset: str = ""
    """The name of the toolset in the file, where it has several."""
    above: Place | None = None
    """The project around the file whose settings apply."""

    @property
    def path(self) -> Path:
        """The path by which this user's data about the project is kept: the file, or the root."""
        return self.file or self.root

    @property
    def target(self) -> str:
        """The word that names the project: `FILE.py[:OBJECT]`, or the root."""
        return f"{self.path}:{self.toolset}" if self.toolset else str(self.path)

    @property
    def option(self) -> str:
        """The option, after a blank, that a command in a message needs for a file; empty for a folder."""
        return "" if self.file is None else f" --root {shlex.quote(self.target)}"

    @property
    def trust(self) -> str:
        """The command that trusts the settings that apply."""
        above = "" if self.above is None else f" --root {shlex.quote(str(self.above.root))}"
        return f"toolcrib trust{above}"

    @property
    def _folders(self) -> Path:
        """The folder of manifests, agents and workflows. Below a file nothing can be made."""
        return self.file or self.home

    def require_folder(self) -> None:
        """Refuse to make tools, agents or workflows in a file: `UsageError`."""
        if self.file is not None:
            raise UsageError(
                f"{self.file} is a Python file, so all its tools are functions in it",
                hint="For manifests, make the folder of a project: toolcrib init",
            )

    @property
    def tools(self) -> Path:
        """The folder of manifests."""
        return self._folders / "tools"

    @property
    def agents(self) -> Path:
        """The folder of agents."""
        return self._folders / "agents"

    @property
    def workflows(self) -> Path:
        """The folder of workflows."""
        return self._folders / "workflows"

    @property
    def config(self) -> Path:
        """The project's settings."""
        return (self.above or self).home / "config.yml"

    @property
    def state(self) -> Path:
        """The project's database."""
        return self.home / "state.db"

    @property
    def audit(self) -> Path:
        """The audit log."""
        return self.home / "audit" / "tools.log"


def is_program(text: str | os.PathLike[str] | None) -> bool:
    """Return True for `FILE.py` and `FILE.py:OBJECT`."""
    return text is not None and os.fspath(text).partition(":")[0].endswith(".py")


def names_file(root: str | os.PathLike[str]) -> bool:
    """Return True if the project of this name is a Python file, there or not."""
    return os.path.isfile(root) or (is_program(root) and not os.path.isdir(root))


def find(root: str | os.PathLike[str] | None = None, data: Path | None = None) -> Place:
    """Find the project at `root`, at `TOOLCRIB_ROOT`, or the nearest one from the working folder upward.

    A root that is named must be a project itself, or a Python file (`FILE.py[:OBJECT]`). `data` is the
    user's data folder. Raises ProjectNotFound, NotFoundError for a file, and ConflictError for a folder with
    both `.toolcrib/` and `.glee/`, and for one of them that is a link out of the project.
    """
    named = root if root is not None else os.environ.get("TOOLCRIB_ROOT")
    if named and names_file(named):
        return _of_file(os.fspath(named), data)
    if named:
        folder = Path(os.path.realpath(named))  # which a loop of links does not fail
        if (place := _at(folder)) is None:
            raise ProjectNotFound(
                f"{folder} is not a project: it has neither .toolcrib/ nor .glee/",
                hint=f"Make it one: toolcrib init {shlex.quote(str(folder))}",
            )
        return place
    start = Path.cwd().resolve()
    for folder in (start, *start.parents):
        if (place := _at(folder)) is not None:
            return place
    raise ProjectNotFound(
        f"neither {start} nor a folder above it has .toolcrib/ or .glee/",
        hint="Make a project here with `toolcrib init`, or name one with --root.",
    )


def _of_file(text: str, data: Path | None) -> Place:
    name, _, toolset = (text, "", "") if os.path.isfile(text) else text.partition(":")
    file = Path(os.path.realpath(name))
    if not file.is_file():
        raise NotFoundError(f"there is no file {name}")
    return Place(file.parent, Vault(file, data).path, file, toolset)


def project_above(folder: Path) -> Path | None:
    """Return the nearest project around a folder or a file."""
    homes = ((above, above / name) for above in folder.parents for name in HOMES)
    return next((above for above, home in homes if home.is_dir()), None)


def beside_settings(place: Place, trusted: Callable[[Place], bool]) -> tuple[Place, str]:
    """Return the place of a file with the project above it, if its settings apply, and a note about that.

    They apply if that project is this user's own and `trusted`; else the place is returned as it is. The note
    is empty if there is no such project. Raises as `find` does.
    """
    folder = None if place.file is None else project_above(place.file)
    if folder is None:
        return place, ""
    homes = [home for name in HOMES if (home := folder / name).is_dir()]
    if other := next(filter(None, map(_other_owner, (folder, *homes))), None):
        return place, f"the project {folder} belongs to another user ({other}), so it is ignored"
    above = _at(folder)
    assert above is not None
    if not trusted(above):
        how = replace(place, above=above).trust
        return place, f"the project {folder} is not trusted, so its settings do not apply here: {how}"
    note = f"policy, secrets and settings are those of the project {folder}"
    return replace(place, root=above.root, above=above), note


def _at(folder: Path) -> Place | None:
    homes = [home for name in HOMES if _is_folder(home := folder / name)]
    if not homes:
        return None
    if len(homes) > 1:
        # A tool that may write in a project could otherwise turn it into the other kind, with its own rules.
        homes = [home for home in homes if os.path.realpath(home) == _accepted_home(folder)]
    if not homes:
        raise ConflictError(f"{folder} has both .toolcrib/ and .glee/", hint="Merge them, and remove one.")
    return Place(folder, require_inside(folder, homes[0]))


def _accepted_home(root: Path) -> str | None:
    """Return the home folder that this user has accepted with the project; None if they have not."""
    from toolcrib.guard import SETTINGS, Ledger

    with closing(Ledger(Vault(root))) as ledger:
        row = ledger.last(SETTINGS)
    return None if row is None else row.shown.get("home")


def _is_folder(path: Path) -> bool:
    # From Python 3.14 `is_dir` is False for what cannot be looked at: a project would seem to be missing.
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def require_inside(root: Path, folder: Path) -> Path:
    """Return the real path of a folder. Raises ConflictError if a link takes it out of the project."""
    real = Path(os.path.realpath(folder))
    if not real.is_relative_to(root):
        raise ConflictError(
            f"{folder} is a symbolic link that leads out of the project, to {real}",
            hint="Make it a folder of the project, or open the project that it leads to.",
        )
    return real


def require_own_folder(place: Place) -> None:
    """Refuse a project in a folder of another user, who could have put it above this one's: `NotTrusted`."""
    for folder in (place.root, place.home):
        if other := _other_owner(folder):
            raise NotTrusted(
                f"{folder} belongs to another user ({other}), so nothing of it is read",
                hint=f"If you know where it comes from, accept it: toolcrib trust --root {place.root}",
                details={"path": str(folder), "owner": folder.stat().st_uid},
            )


def _other_owner(folder: Path) -> str | None:
    """Return the user who owns a folder; None if that is this user or root."""
    owner = folder.stat().st_uid
    return None if owner in (os.geteuid(), 0) else user_name(owner)
