"""The German of the server's sentences, as the web page looks it up."""

from __future__ import annotations

import json
import re
from pathlib import Path

import toolcrib

GERMAN: dict[str, dict[str, str]] = json.loads(
    Path(toolcrib.__file__).with_name("serve").joinpath("german.json").read_text()
)
_PHRASES = [re.compile(re.escape(one).replace(r"\{\}", "(.+?)"), re.DOTALL) for one in GERMAN["phrases"]]


def has_german(line: str) -> bool:
    """Return True if the page has this sentence in German, or each of its parts."""
    parts = line.split("; ")
    return any(phrase.fullmatch(line) for phrase in _PHRASES) or (
        len(parts) > 1 and all(map(has_german, parts))
    )
