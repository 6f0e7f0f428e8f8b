"""Names: matched by patterns, written as JSON paths, and the nearest known one for a mistyped one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

__all__ = ["fits", "json_path", "nearest"]

_MAX_NAME = 200
"""Characters of a name that are compared."""
_NEAR = 60
"""Likeness from 0 to 100 from which a name may have been meant."""


def fits(pattern: str, name: str) -> bool:
    """Return True if a name matches a pattern: `*` is any text, `?` is one character.

    Case counts. Both are compared in their composed form (Unicode NFC), as names are kept.
    """
    return _expression(pattern).match(unicodedata.normalize("NFC", name)) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    # Brackets are text, not a choice of characters: a tool's name may hold them.
    return re.compile(translate(unicodedata.normalize("NFC", pattern).replace("[", "[[]")))


def json_path(parts: Iterable[str | int]) -> str:
    """Return `$.a[0]["b c"]` for `["a", 0, "b c"]`."""
    path = "$"
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier():
            path += f".{part}"
        else:
            path += '["' + part.replace("\\", "\\\\").replace('"', '\\"') + '"]'
    return path


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name` (case and `-` for `_` aside), or None if none is near."""
    from rapidfuzz import fuzz, process

    folded = {option: option.lower().replace("-", "_") for option in known}
    wanted = name[:_MAX_NAME].lower().replace("-", "_")
    found = process.extractOne(wanted, folded, scorer=fuzz.ratio, score_cutoff=_NEAR)
    return None if found is None else found[2]
