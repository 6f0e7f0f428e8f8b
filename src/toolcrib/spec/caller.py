"""Who makes a call, and what they may do at all. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

__all__ = ["SCOPES", "Caller", "Scope"]

Scope = Literal["read", "invoke", "approve", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""`read`: list and show. `invoke`: call. `approve`: decide on calls that wait. `admin`: all, and settings."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller that showed a token."""

    name: str
    """Unique among the project's tokens."""
    scopes: frozenset[Scope]
    tools: tuple[str, ...] | None = None
    """Names it may see and call, `*` and `?` as in file names; None for all."""
    owner: str = ""
    """The person it acts for: who may not approve its calls, unless the project says so."""

    def may(self, scope: Scope) -> bool:
        """Whether it has this right; `admin` has all, and who may call may also read."""
        held = self.scopes
        return scope in held or "admin" in held or (scope == "read" and "invoke" in held)

    def covers(self, tool: str) -> bool:
        """Whether this tool is among those it may see and call."""
        return self.tools is None or any(fnmatchcase(tool, pattern) for pattern in self.tools)
