"""One more entry in a JSON file that a person keeps: everything else in it stays as it is written."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    start: int
    """The position at which its name begins."""
    value: int
    """The position at which its value begins."""
    end: int


def with_member(text: str, key: str, name: str, value: Any) -> str:
    """Return the text of an object with `name` added to the object under `key`.

    Raises ValueError for a text that is not plain JSON, such as one with comments, and KeyError if the name
    is there already.
    """
    if not text.strip():
        return json.dumps({key: {name: value}}, indent=2) + "\n"
    json.loads(text)
    outer = _members(text, _BLANK.match(text).end())  # type: ignore[union-attr]
    if key not in outer:
        return _inserted(text, _BLANK.match(text).end(), outer, key, {name: value})  # type: ignore[union-attr]
    inner = _members(text, outer[key].value)
    if name in inner:
        raise KeyError(name)
    return _inserted(text, outer[key].value, inner, name, value)


def _members(text: str, at: int) -> dict[str, _Member]:
    """Return the members of the object that begins at a position."""
    if text[at : at + 1] != "{":
        raise ValueError("not an object")
    found: dict[str, _Member] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        start = at
        name, at = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, at) + 1)
        _, at = _DECODER.raw_decode(text, value)
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = _Member(start, value, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _inserted(text: str, at: int, members: dict[str, _Member], name: str, value: Any) -> str:
    """Add a member as the last one, indented like those before it."""
    step = (re.search(r"\n([ \t]+)\S", text) or [None, "  "])[1] or "  "
    line = text[text.rfind("\n", 0, at) + 1 : at]
    indent = line[: len(line) - len(line.lstrip())] + step
    if members:
        last = max(members.values())
        before = text[text.rfind("\n", 0, last.start) + 1 : last.start]
        indent = before if not before.strip() else indent
    written = json.dumps(value, indent=step, ensure_ascii=False).replace("\n", f"\n{indent}")
    entry = f"\n{indent}{json.dumps(name)}: {written}"
    if members:
        end = max(members.values()).end
        return f"{text[:end]},{entry}{text[end:]}"
    close = _skip(text, at + 1)
    return f"{text[: at + 1]}{entry}\n{indent[: -len(step)]}{text[close:]}"
