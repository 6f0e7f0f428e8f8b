"""Reports that a tool yields while it works: its progress, and parts of its output. Pure data."""

from __future__ import annotations

from toolcrib.spec.record import record


@record
class Progress:
    """The share of its work that a tool has done."""

    done: float
    total: float | None = None
    message: str = ""


@record
class Chunk:
    """The next part of a tool's output. If the tool yields no value, its value is all chunks together."""

    text: str
