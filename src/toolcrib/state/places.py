"""The user's own folders (XDG Base Directory), and the user's name.

None is ever inside a project, because projects are untrusted.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from pathlib import Path

from toolcrib.errors import StateUnavailable


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
