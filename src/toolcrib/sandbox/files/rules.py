"""The rules about each path of a sandbox, and the single mounts that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

State = Literal["none", "ro", "rw"]


class Mount(NamedTuple):
    """One step for the launcher: `mode` is ro, rw, link, hide or empty, with `?` when it may be missing.

    `symlink` makes a link to the text `source`; `own` is a read-only folder of the sandbox's own memory.
    """

    source: str
    target: str
    mode: str
    make: bool
    """Its place must be made, because nothing mounted before contains it."""


@dataclass(slots=True)
class AccessRules:
    """The kinds of rule that name each path; the access to any path follows from those above it."""

    at: dict[str, set[str]] = field(default_factory=dict)

    def add(self, kind: str, paths: Iterable[str]) -> None:
        """Add a rule of this kind for each path."""
        for path in paths:
            self.at.setdefault(path, set()).add(kind)

    def state(self, path: str) -> State:
        """Return the access of the command to `path` itself, hiding aside."""
        state: State = "none"
        protected = False
        for place in (*ancestors(path), path):
            kinds = self.at.get(place, ())
            if "base" in kinds or "read" in kinds:
                state = "ro"
            if "write" in kinds:
                state = "rw"
            if "protect" in kinds:
                protected = True
            if "scratch" in kinds:
                state, protected = "rw", False
            if protected and state == "rw":
                state = "ro"
        return state

    def hidden_by(self, path: str) -> str | None:
        """Return the hidden path that is, or contains, `path`."""
        return next((p for p in (*ancestors(path), path) if "hide" in self.at.get(p, ())), None)


@lru_cache(maxsize=4_096)
def ancestors(path: str) -> tuple[str, ...]:
    """Return the folders above an absolute path, from `/` down."""
    parts = path.split("/")[1:]
    if path == "/":
        return ()
    return ("/", *("/" + "/".join(parts[:n]) for n in range(1, len(parts))))


def pin(path: str, rules: AccessRules, found: dict[str, Mount]) -> None:
    """Mount the writable folders above `path` on themselves, up to the grant they come from."""
    # From the nearest up, and only as far as the command could rename a folder.
    for folder in reversed(ancestors(path)):
        if rules.state(folder) != "rw":
            return
        found.setdefault(folder, Mount(folder, folder, "rw?", False))
