"""The files that manifests and settings may be read from: none outside of a project, and no secret in it.

A manifest may be a symbolic link, as in a mounted ConfigMap of Kubernetes (`tool.yml` to `..data/tool.yml`).
But a link to a file of secrets would show its lines in the errors about it. So each file is opened first, and
then the place that it really has is checked: nothing can be swapped in between.
"""

from __future__ import annotations

import os
from functools import lru_cache

from toolcrib.manifest.yaml.diagnostics import failure, make
from toolcrib.spec.record import record


@record
class SourceFiles:
    """The folders that files may be read from, and the files and folders in them that are closed."""

    folders: tuple[str, ...] = ("/",)
    """Real paths."""
    closed: tuple[str, ...] = ()
    """Absolute paths."""

    def check(self, descriptor: int, path: str) -> None:
        """Refuse the file that was opened by a path, if it may not be read. Raises ManifestError."""
        if self is ANY_FILE:
            return
        # The kernel names the file that is open now. The path could lead to another one by the time it is
        # looked up.
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        place, closed = f"{real}/", self.closed
        # Reached by a link: a closed place may be a link too, so its target is closed as well.
        if real != path:
            closed = (*closed, *map(os.path.realpath, closed))
        why = ""
        if place.startswith(_prefixes(closed)):
            why = "which no tool may read"
        elif not place.startswith(_prefixes(self.folders)):
            why = "outside of the project"
        if why:
            message = f"this leads to {real}, {why}, so it is not read"
            hint = "put the file itself here, or a link to another file of the project"
            raise failure([make(path, (1, 1), "unreadable", message, hint=hint)])


ANY_FILE = SourceFiles()
"""No limits: for a file that its owner names."""


@lru_cache(maxsize=64)
def _prefixes(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{path.rstrip('/')}/" for path in paths)
