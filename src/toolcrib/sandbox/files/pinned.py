"""Mounts of copies in place of code that was approved, such that no change of the originals brings them back.

The kernel removes a mount when somebody renames another file to its place, or moves a folder above it. Then
the sandbox would see what is there now. So every read-only folder on the way to a copy is made of the
sandbox's own memory, and what lies beside is mounted into it one by one: no place of a mount is on a file
system that others can change. Only where a folder above is writable for the tool itself there is no such way.

What is mounted one by one stays the file that it was at the start, which is wrong for a command that runs for
days: for such a one only the folder of a script is made so.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from toolcrib.sandbox.files.rules import AccessRules, Mount, pin

if TYPE_CHECKING:
    from toolcrib.sandbox.files.paths import Paths
    from toolcrib.sandbox.job import Confinement

_MOST = 600
"""Names beside the copies that are mounted one by one; with more, only the copies are mounted."""


def put_in_place(job: Confinement, found: dict[str, Mount], rules: AccessRules, paths: Paths) -> list[str]:
    """Change the mounts so that they show the pinned copies; return the folders that the sandbox makes.

    `found` is by target. A copy of what the tool does not see is left out.
    """
    shown = {path: copy for path, copy in job.pinned if _is_shown(path, rules)}
    chain = {folder for path in shown for folder in _way_to(path, rules, job.stays)}
    if sum(len(paths.names(folder)) for folder in chain) > _MOST:
        chain = set()
    own = []
    for folder in sorted(chain):
        found.pop(folder, None)
        above = os.path.dirname(folder)
        if above not in chain:
            own.append(folder)
            found[folder] = Mount("", folder, "own", rules.state(above) == "none")
            pin(folder, rules, found)
        for name in paths.names(folder):
            path = f"{folder}/{name}"
            if path in found:
                found[path] = found[path]._replace(make=True)
            elif path not in chain and path not in shown and (kind := paths.look(path).kind):
                link = kind == stat.S_IFLNK
                found[path] = (
                    Mount(paths.look(path).text, path, "symlink", True)
                    if link
                    else Mount(path, path, "ro?", True)
                )
    for path, copy in shown.items():
        for place in [one for one in found if one.startswith(f"{path}/") and found[one].mode != "hide"]:
            del found[place]  # A grant of a file in the folder would show the file as it is now.
        above = os.path.dirname(path)
        found[path] = Mount(copy, path, "ro", above in chain or rules.state(above) == "none")
        if rules.state(above) == "rw":
            pin(path, rules, found)
    return own


def _is_shown(path: str, rules: AccessRules) -> bool:
    return rules.state(path) != "none" and rules.hidden_by(path) is None


def _way_to(path: str, rules: AccessRules, stays: bool) -> list[str]:
    """Return the read-only folders above a path; none where the system's own folders are among them."""
    way = []
    while rules.state(path := os.path.dirname(path)) == "ro":
        way.append(path)
        if "base" in rules.at.get(path, ()):
            return []
    return way[:1] if stays and len(way) > 1 else [] if stays else way
