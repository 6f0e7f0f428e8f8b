"""Where what can be made anew is kept for a user: never inside a project, which others may have made."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["cache_folder", "cache_home"]


def cache_folder(root: Path) -> Path | None:
    """The folder for one project, perhaps not made yet; None where this user has no place for it."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    home = cache_home()
    return None if home is None else home / name


def cache_home() -> Path | None:
    """The folder that holds those of all projects; no tool may see it, what is kept of manifests is believed.

    `$TOOLCRIB_CACHE`, else `$XDG_CACHE_HOME/toolcrib`, else `~/.cache/toolcrib` (XDG Base Directory).
    """
    places = (("TOOLCRIB_CACHE", ""), ("XDG_CACHE_HOME", "toolcrib"), ("HOME", ".cache/toolcrib"))
    for variable, below in places:
        folder = os.environ.get(variable, "")
        if folder.startswith("/"):
            return Path(folder, below)
    return None
