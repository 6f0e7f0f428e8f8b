"""What became of a document: each operation accounted for, each loss told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolcrib.spec import Tool

__all__ = ["Imported", "Made"]


@dataclass(slots=True)
class Made:
    """What became of one operation."""

    method: str
    path: str
    operation_id: str = ""
    tool: str | None = None
    """The name of its tool; None when it is skipped."""
    reason: str = ""
    """Why it is skipped."""
    notes: list[str] = field(default_factory=list)
    """What the tool does not have that the document says."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`; what is empty is left out."""
        said: dict[str, Any] = {"method": self.method, "path": self.path}
        for key in ("operation_id", "tool", "reason", "notes"):
            if getattr(self, key):
                said[key] = getattr(self, key)
        return said


@dataclass(slots=True)
class Imported:
    """The tools of a document, and the report."""

    source: str
    title: str
    version: str
    """Of OpenAPI: `2.0`, `3.0`, `3.1`, `3.2`."""
    tools: list[Tool] = field(default_factory=list)
    operations: list[Made] = field(default_factory=list)
    """Every operation of the document that `only` lets through, in its order."""
    losses: dict[str, str] = field(default_factory=dict)
    """What schemas lost, by the place in the document."""
    notes: list[str] = field(default_factory=list)
    """What holds for the whole document."""

    @property
    def skipped(self) -> list[Made]:
        """The operations without a tool."""
        return [made for made in self.operations if made.tool is None]

    def reasons(self) -> dict[str, int]:
        """Why operations were skipped, and how many for each reason; the most frequent first."""
        counted: dict[str, int] = {}
        for made in self.skipped:
            counted[made.reason] = counted.get(made.reason, 0) + 1
        return dict(sorted(counted.items(), key=lambda item: -item[1]))

    def as_json(self) -> dict[str, Any]:
        """The report as one JSON document."""
        return {
            "source": self.source,
            "title": self.title,
            "openapi": self.version,
            "operations": [made.as_json() for made in self.operations],
            "tools": len(self.tools),
            "skipped": len(self.skipped),
            "reasons": self.reasons(),
            "losses": [{"at": at, "lost": what} for at, what in self.losses.items()],
            "notes": self.notes,
        }
