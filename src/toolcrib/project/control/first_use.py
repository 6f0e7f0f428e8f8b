"""First use: a tool that reaches beyond the project needs a review by a person before it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolcrib.guard import Reviews, ReviewStatus, ToolDigest, opened
from toolcrib.project.root import Place
from toolcrib.spec import Caller, Tool
from toolcrib.spec.caller import OWN_CALLERS
from toolcrib.spec.words import may_touch

__all__ = ["FIRST_USE", "FirstUse", "ReviewSheet"]

FIRST_USE = "first-use"
"""The name of the rule that asks for the review. To approve the rule itself is a review."""
_GRANTS = "grants/"
"""The parts of a digest with this beginning are the real paths of grants."""
_BEYOND = ("network", "secret ", "environment variable ", "code:")


@dataclass(frozen=True, slots=True)
class ReviewSheet:
    """One tool as it is shown to the person who reviews it."""

    tool: Tool
    digest: ToolDigest
    standing: ReviewStatus
    touches: list[str]
    """Everything that it may touch, in words."""
    beyond: list[str]
    """The part of that which lies outside of the project."""
    creator: str | None
    """The agent that made it."""

    @property
    def changed(self) -> list[str]:
        """Names of the parts that have changed since the last review: `manifest`, `files/run.sh`, …"""
        last = self.standing.last
        return [] if last is None else self.digest.changed_since(last.parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
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
    """The tools of one project that a person has to review before they run.

    `fingerprint` returns a tool's digest as it is now. With `asks` false (`review: off`) tools need no
    review; a tool that an agent made needs approval all the same.
    """

    def __init__(
        self, reviews: Reviews, fingerprint: Callable[[Tool], ToolDigest], place: Place, *, asks: bool
    ) -> None:
        self.reviews = reviews
        self._fingerprint = fingerprint
        self._place = place
        self._asks = asks

    def digest_of(self, tool: Tool) -> str:
        """Return a tool's digest as it is now."""
        return self._fingerprint(tool).digest

    def reasons(self, tool: Tool, caller: str, identity: Caller | None) -> tuple[str | None, str | None]:
        """Return why this caller may run the tool only after a review, and why each call needs approval.

        Each call of a tool that an agent made needs approval. Both reasons end with the first review of the
        tool as it is now.
        """
        if tool.source is None:
            return None, None
        creator = self.creator(tool)
        needs_review = self._asks and (identity is not None or caller not in OWN_CALLERS)
        beyond = self.beyond(tool) if needs_review else []
        if creator is None and not beyond:
            return None, None
        standing = self.reviews.status(tool, self._fingerprint(tool))
        if standing.status == "reviewed":
            return None, None
        made = None if creator is None else f"the agent {creator} made this tool, and nobody has reviewed it"
        if not needs_review:
            return None, made
        if standing.last is None:
            review = "nobody has reviewed this tool"
        else:
            review = f"this tool is not what {standing.last.by} reviewed"
        review += "" if creator is None else f", which the agent {creator} made"
        review += f"; it reaches beyond the project ({'; '.join(beyond)})" if beyond else ""
        return f"{review}. To review it: toolcrib review {tool.name}", made

    def accept(self, tool: Tool, digest: str, by: str) -> None:
        """Note that a person has reviewed a tool, if it still has this digest."""
        fingerprint = self._fingerprint(tool)
        if fingerprint.digest == digest:
            self.reviews.accept(tool, fingerprint, by)

    def reviewed_grants(self, tool: Tool) -> frozenset[tuple[str, str]] | None:
        """Return the grants that a person was shown at reviews of this manifest, each with its real path.

        None if nobody has reviewed it.
        """
        reviews = self.reviews.parts(tool)
        if not reviews:
            return None
        grants = [item for parts in reviews for item in parts.items() if item[0].startswith(_GRANTS)]
        return frozenset((name.removeprefix(_GRANTS), real) for name, real in grants)

    def creator(self, tool: Tool) -> str | None:
        """Return the agent that made a tool; None if a person made it."""
        return None if tool.source is None else self.reviews.creators().get(tool.name)

    def beyond(self, tool: Tool) -> list[str]:
        """Return everything outside of the project that a tool may touch, in words."""
        root = self._place.root
        found = [line for line in may_touch(tool) if line.startswith(_BEYOND)]
        permissions = tool.permissions
        paths = [("read", path) for path in permissions.read] + [
            ("write", path) for path in permissions.write
        ]
        paths += [("run", path) for _, path in opened(tool, root)]
        found += [f"{access} {path}" for access, path in paths if not self._inside(path)]
        return found + self.links(tool)

    def links(self, tool: Tool) -> list[str]:
        """Return the grants that pass through a symbolic link, in words. A review pins where each leads."""
        root, permissions = str(self._place.root), tool.permissions
        found = []
        for path in dict.fromkeys((*permissions.read, *permissions.write)):
            written = os.path.normpath(os.path.join(root, path))  # noqa: PTH118
            real = os.path.realpath(written)
            if real != written:
                found.append(
                    f"{path} is a link to {os.path.relpath(real, root) if self._inside(path) else real}"
                )
        return found

    def _inside(self, path: str) -> bool:
        try:
            real = os.path.realpath(self._place.root / path)
        except (OSError, ValueError):
            return False
        root = str(self._place.root).rstrip("/")
        return real == root or real.startswith(f"{root}/")

    def sheet(self, tool: Tool) -> ReviewSheet:
        """Return a tool as it is shown for review."""
        digest = self._fingerprint(tool)
        return ReviewSheet(
            tool,
            digest,
            self.reviews.status(tool, digest),
            [*may_touch(tool), *self.links(tool)],
            self.beyond(tool),
            self.creator(tool),
        )
