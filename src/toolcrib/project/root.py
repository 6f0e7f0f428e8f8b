"""The place of a project: the nearest folder upward with `.toolcrib/` (or `.glee/`) in it."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path

from toolcrib.errors import ConflictError, NotTrusted, ProjectNotFound
from toolcrib.spec.record import record
from toolcrib.state import user_name

HOMES = (".toolcrib", ".glee")
"""Names of the folder that makes its parent a project; one of the two."""


@record
class Place:
    """A project's root and its home folder, both real paths."""

    root: Path
    home: Path

    @property
    def tools(self) -> Path:
        """The folder of manifests."""
        return self.home / "tools"

    @property
    def agents(self) -> Path:
        """The folder of agents."""
        return self.home / "agents"

    @property
    def workflows(self) -> Path:
        """The folder of workflows."""
        return self.home / "workflows"

    @property
    def config(self) -> Path:
        """The project's settings."""
        return self.home / "config.yml"

    @property
    def state(self) -> Path:
        """The project's database."""
        return self.home / "state.db"

    @property
    def audit(self) -> Path:
        """The audit log."""
        return self.home / "audit" / "tools.log"


def find(root: str | os.PathLike[str] | None = None) -> Place:
    """Find the project at `root`, at `TOOLCRIB_ROOT`, or the nearest one from the working folder upward.

    A root that is named must be a project itself. Raises ProjectNotFound, and ConflictError for a folder with
    both `.toolcrib/` and `.glee/`, and for one of them that is a link out of the project.
    """
    named = root if root is not None else os.environ.get("TOOLCRIB_ROOT")
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


def project_above(folder: Path) -> Path | None:
    """Return the nearest project around a folder."""
    homes = ((above, above / name) for above in folder.parents for name in HOMES)
    return next((above for above, home in homes if home.is_dir()), None)


def _at(folder: Path) -> Place | None:
    homes = [home for name in HOMES if _is_folder(home := folder / name)]
    if not homes:
        return None
    if len(homes) > 1:
        # A tool that may write in a project could otherwise turn it into the other kind, with its own rules.
        raise ConflictError(f"{folder} has both .toolcrib/ and .glee/", hint="Merge them, and remove one.")
    return Place(folder, require_inside(folder, homes[0]))


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
        owner = folder.stat().st_uid
        if owner not in (os.geteuid(), 0):
            raise NotTrusted(
                f"{folder} belongs to another user ({user_name(owner)}), so nothing of it is read",
                hint=f"If you know where it comes from, accept it: toolcrib trust --root {place.root}",
                details={"path": str(folder), "owner": owner},
            )
