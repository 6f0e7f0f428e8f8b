"""How messages name places and mend names."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["json_path", "nearest"]

_MAX_NAME = 200
"""Characters; comparing costs the product of both lengths, so longer names have no nearest."""


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
