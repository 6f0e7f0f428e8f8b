"""First use: a tool that reaches beyond the project waits until a person has reviewed it as it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolcrib.guard import Reviews, Standing, ToolDigest, opened
from toolcrib.project.control.checkpoint import Question
from toolcrib.project.root import Place
from toolcrib.spec import Caller, Tool
from toolcrib.spec.words import may_touch

__all__ = ["FIRST_USE", "FirstUse", "ReviewSheet"]

FIRST_USE = "first-use"
"""The name of the rule by which it is asked. A yes to the rule itself is a review."""
_OWN = ("local", "cli")
"""This machine's own user, in Python and on the command line."""
_BEYOND = ("network", "secret ", "environment variable ")


@dataclass(frozen=True, slots=True)
class ReviewSheet:
    """One tool as a person who reviews it is shown it."""

    tool: Tool
    digest: ToolDigest
    standing: Standing
    touches: list[str]
    """What it may touch, in words."""
    beyond: list[str]
    """What of that lies beyond the project."""
    creator: str | None
    """The agent that made it."""

    @property
    def changed(self) -> list[str]:
        """Names of the parts that are other than at the last review: `manifest`, `files/run.sh`, …"""
        last = self.standing.last
        return [] if last is None else self.digest.changed_since(last.parts)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        last = self.standing.last
        return {
            "name": self.tool.name,
            "status": self.standing.status,
            "digest": self.digest.digest,
            "permissions": self.tool.permissions.as_json(),
            "touches": self.touches,
            "beyond": self.beyond,
            "creator": self.creator,
            "reviewed_by": None if last is None else last.by,
            "last_digest": None if last is None else last.digest,
            "changed": self.changed,
            "diff": self.standing.diff(self.tool) if self.standing.status != "reviewed" else "",
        }


class FirstUse:
    """Who must look at which tool before it runs. `digest_of` gives a tool's digest as it is now.

    With `asks` false (`review: off`) nobody must; what an agent made needs approval all the same.
    """

    def __init__(
        self, reviews: Reviews, digest_of: Callable[[Tool], ToolDigest], place: Place, *, asks: bool
    ) -> None:
        self.reviews = reviews
        self._digest_of = digest_of
        self._place = place
        self._asks = asks

    def question(self, tool: Tool, caller: str, identity: Caller | None) -> Question | None:
        """Why a person must look at this tool before this caller may run it; None when nobody must."""
        if not self._asks or tool.source is None or (identity is None and caller in _OWN):
            return None
        creator = self.creator(tool)
        beyond = self.beyond(tool)
        if creator is None and not beyond:
            return None
        standing = self.reviews.standing(tool, self._digest_of(tool))
        if standing.status == "reviewed":
            return None
        if standing.last is None:
            told = "nobody has reviewed this tool"
        else:
            told = f"this tool is not what {standing.last.by} reviewed"
        made = f", which the agent {creator} made" if creator is not None else ""
        reach = f"; it reaches beyond the project ({'; '.join(beyond)})" if beyond else ""
        return Question(FIRST_USE, f"{told}{made}{reach}. To look at it: toolcrib review {tool.name}")

    def forced(self, tool: Tool) -> str | None:
        """Why each call of a tool needs approval though its manifest does not say so: an agent made it.

        A person who has reviewed the manifest as it is has taken it over.
        """
        creator = self.creator(tool)
        if creator is None or self.reviews.is_reviewed(tool, self._digest_of(tool).digest):
            return None
        return f"the agent {creator} made this tool, and nobody has reviewed it as it is"

    def creator(self, tool: Tool) -> str | None:
        """The agent that made a tool; None where a person has."""
        return None if tool.source is None else self.reviews.creators().get(tool.name)

    def beyond(self, tool: Tool) -> list[str]:
        """What of a tool's reach lies beyond the project, in words."""
        root = self._place.root
        found = [line for line in may_touch(tool) if line.startswith(_BEYOND)]
        permissions = tool.permissions
        paths = [("read", path) for path in permissions.read] + [
            ("write", path) for path in permissions.write
        ]
        paths += [("run", path) for _, path in opened(tool, root)]
        return found + [f"{access} {path}" for access, path in paths if not self._inside(path)]

    def _inside(self, path: str) -> bool:
        try:
            real = os.path.realpath(self._place.root / path)
        except (OSError, ValueError):
            return False
        root = str(self._place.root).rstrip("/")
        return real == root or real.startswith(f"{root}/")

    def sheet(self, tool: Tool) -> ReviewSheet:
        """A tool as a person is to look at it."""
        digest = self._digest_of(tool)
        return ReviewSheet(
            tool,
            digest,
            self.reviews.standing(tool, digest),
            may_touch(tool),
            self.beyond(tool),
            self.creator(tool),
        )
