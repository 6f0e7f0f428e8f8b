"""Which manifests have passed their checks, kept so that they need not be checked again at the next start."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.manifest import Mark, kept_key, mark_of, read_kept, write_kept

__all__ = ["Passed", "Passing"]

_FORM = "toolcrib passed 1"
_FEWEST = 200
"""So many are worth a file."""
_STALE_PART = 20
"""The file is written anew once one part in so many of it does not count."""
_ROOMS = ("egress", "manifest", "schema", "spec", "template")
"""Whose code decides what passes."""
_KNOWN = 5
"""So many numbers has the mark of a file that was as it is for a while."""


class Passing(NamedTuple):
    """What was found about a manifest without errors."""

    mark: Mark
    warned: bool
    """Whether there were warnings."""
    wide: list[str]
    """What its permissions cover too much of, for which it needs approval."""


class Passed:
    """The manifests of the folder `base` that passed; kept in the file `path`, if there is one."""

    def __init__(self, path: Path | None, base: str) -> None:
        self._path = path
        self._base = base
        self._known: dict[str, list[Any]] | None = None
        self._new: dict[str, Passing] = {}

    def of(self, name: str, mark: Mark | None) -> Passing | None:
        """What was found about the manifest of this name and mark; None where it is still to be checked."""
        if not mark or self._path is None:
            return None
        if self._known is None:
            kept = read_kept(self._path, self._key())
            self._known = {} if kept is None else kept[2]
        entry = self._known.get(name)
        return None if entry is None or entry[0] != mark else Passing(*entry)

    def add(self, name: str, passing: Passing) -> None:
        """From now on this manifest need not be checked again, as far as its mark tells."""
        if len(passing.mark) == _KNOWN:
            self._new[name] = passing

    def keep(self, names: Collection[str]) -> None:
        """Write the file if it is worth it; `names` are those that there are."""
        if self._path is None or len(names) < _FEWEST or len(self._new) * _STALE_PART <= len(names):
            return
        known = {**(self._known or {}), **{name: list(passing) for name, passing in self._new.items()}}
        self._known = {name: entry for name, entry in known.items() if name in names}
        self._new = {}
        write_kept(self._path, self._key(), self._known)

    def _key(self) -> bytes:
        """For this folder, this code, and the libraries that lie where orjson does."""
        import orjson

        folder = Path(__file__).parents[2]
        files = sorted(path for room in _ROOMS for path in (folder / room).rglob("*.py"))
        libraries = os.path.dirname(os.path.dirname(orjson.__file__))  # noqa: PTH120 - as the others are written
        return kept_key(_FORM, self._base, *(repr(mark_of(str(path))) for path in (*files, libraries)))
