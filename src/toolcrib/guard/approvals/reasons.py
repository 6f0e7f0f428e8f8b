"""Reasons that an agent has written, read with suspicion: what is in them that a reason should not hold."""

from __future__ import annotations

import re

_LONGEST = 200
_WORDS = {
    "claims that it is safe": "safe|harmless|risk-free|no risk|read-only|trusted|routine",
    "claims that somebody has agreed": "approved|authorised|authorized|reviewed|allowed|confirmed|already",
    "tells you what to do": "please|must|just|simply|approve|accept|press|click|ignore|always|no need",
    "presses for time": "urgent|urgently|immediately|asap|quickly|hurry|now",
}
_LABELS = "tool|digest|reason|rule|asked by|made by|may touch|expires|arguments|would run"
_found = {what: re.compile(rf"\b({words})\b", re.IGNORECASE) for what, words in _WORDS.items()} | {
    "names an address": re.compile(r"(https?://|www\.|@)\S+", re.IGNORECASE),
    "looks like a line of this screen": re.compile(rf"(?m)^\s*({_LABELS})\s*:", re.IGNORECASE),
}


def doubts_about(reason: str) -> list[str]:
    """Return what a person should notice about a reason that an agent has written; empty if nothing."""
    doubts = [what for what, pattern in _found.items() if pattern.search(reason)]
    if len(reason) > _LONGEST:
        doubts.append("is long")
    if not all(char.isprintable() for char in reason):
        doubts.append("has characters that do not show")
    return doubts
