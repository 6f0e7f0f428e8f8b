"""How names are matched by patterns, and how messages name places and mend names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

__all__ = ["fits", "json_path", "nearest"]

_MAX_NAME = 200
"""Characters; comparing costs the product of both lengths, so longer names have no nearest."""


def fits(pattern: str, name: str) -> bool:
    """Whether a name is one that a pattern stands for: `*` for any text, `?` for one character.

    Case counts. Both are compared in their composed form (Unicode NFC), as names are kept.
    """
    return _expression(pattern).match(unicodedata.normalize("NFC", name)) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    # Brackets are text, not a choice of characters: a tool's name may hold them.
    return re.compile(translate(unicodedata.normalize("NFC", pattern).replace("[", "[[]")))


def json_path(parts: Iterable[str | int]) -> str:
    """`["a", 0, "b c"]` as `$.a[0]["b c"]`."""
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
    """The known name most like `name` (case and `-` for `_` aside), or None when none is near."""
    if len(name) > _MAX_NAME:
        return None
    import difflib

    folded = {option.lower().replace("-", "_"): option for option in known}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None
