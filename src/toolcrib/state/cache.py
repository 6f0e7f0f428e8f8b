"""The user's folder for what can be computed again. It is never inside a project: projects are untrusted."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_folder(root: Path) -> Path | None:
    """Return the cache folder of one project, which may not exist yet; None if this user has none."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    home = cache_home()
    return None if home is None else home / name


def cache_home() -> Path | None:
    """Return the folder above those of all projects. No tool may see it, because its content is trusted.

    `$TOOLCRIB_CACHE`, else `$XDG_CACHE_HOME/toolcrib`, else `~/.cache/toolcrib` (XDG Base Directory).
    """
    places = (("TOOLCRIB_CACHE", ""), ("XDG_CACHE_HOME", "toolcrib"), ("HOME", ".cache/toolcrib"))
    for variable, below in places:
        folder = os.environ.get(variable, "")
        if folder.startswith("/"):
            return Path(folder, below)
    return None
