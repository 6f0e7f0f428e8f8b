"""Names: matched by patterns, made for clients, written as JSON paths; the nearest one to a mistyped one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

__all__ = ["dotted", "fits", "json_path", "nearest", "steps_of", "wire_name"]

_MAX_NAME = 200
"""Characters of a name that are compared."""
_is_wire_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_STEP = re.compile(r'\.([^\W\d]\w*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
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


def wire_name(name: str) -> str:
    """Return the name of a tool for MCP clients and model providers, which all accept `[a-zA-Z0-9_-]{1,64}`.

    Foreign characters become `_`. If the result is too long or empty, it ends in a hash of the name. So it
    depends on nothing but the name.
    """
    if _is_wire_name(name):
        return name
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", name)
    base = plain.strip("_-")
    if base and len(plain) <= 64:
        return plain
    import hashlib

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{base[:55] or 'tool'}_{digest[:8]}"


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


def dotted(parts: Iterable[str | int]) -> str:
    """Return `a[0]["b c"]` for `["a", 0, "b c"]`."""
    return json_path(parts)[1:].removeprefix(".")


def steps_of(path: str) -> tuple[str | int, ...]:
    """Return `("a", 0, "b c")` for `$.a[0]["b c"]`."""
    return tuple(
        int(index) if index else name or re.sub(r"\\(.)", r"\1", key)
        for name, index, key in _STEP.findall(path)
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name` (case and `-` for `_` aside), or None if none is near."""
    from rapidfuzz import fuzz, process

    folded = {option: option.lower().replace("-", "_") for option in known}
    wanted = name[:_MAX_NAME].lower().replace("-", "_")
    found = process.extractOne(wanted, folded, scorer=fuzz.ratio, score_cutoff=_NEAR)
    return None if found is None else found[2]
