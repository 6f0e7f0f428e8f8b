"""Names: matched by patterns, made for clients, written as JSON paths; the nearest one to a mistyped one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

INKLESS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
    # These two choose the form of an emoji or a keycap, one after each.
    "|(?<![\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f](?!\u20e3)"
)
"""Finds one such character: blank letters and variation selectors (Default_Ignorable_Code_Point)."""


HOMES = (".toolcrib", ".glee")
"""Names of the folder that makes its parent a project; one of the two."""

_MAX_NAME = 200
"""Characters of a name that are compared."""
_is_wire_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_STEP = re.compile(r'\.([^\W\d]\w*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
_CONTROL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NEAR = 60
"""Likeness from 0 to 100 from which a name may have been meant."""
_PARTS = re.compile(r"(?:(?P<bundle>[^/@]+)/)?(?P<name>[^/@]+)(?:@(?P<version>.+))?")


def fits(pattern: str, name: str) -> bool:
    """Return True if a name matches a pattern: `*` is any text, `?` is one character.

    Case counts. Both are compared in their composed form (Unicode NFC), as names are kept.
    """
    return _expression(pattern).match(unicodedata.normalize("NFC", name)) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    # Brackets are text, not a choice of characters: a tool's name may hold them.
    return re.compile(translate(unicodedata.normalize("NFC", pattern).replace("[", "[[]")))


DRAFTS = "_draft"
"""The bundle of tools that are tried before they are stored. No slug has an underscore."""


def stored_name(bundle: str, slug: str, version: str) -> str:
    """Return the full name of a tool of the store, which is its name in a catalog."""
    return f"{bundle}/{slug}@{version}"


def short_name(name: str) -> str:
    """Return the slug of the full name of a tool of the store; any other name as it is."""
    return name.partition("/")[2].partition("@")[0] or name


def parts_of(text: str) -> tuple[str | None, str, str | None] | None:
    """Return the three parts of `[BUNDLE/]NAME[@VERSION]`; None for any other text."""
    found = _PARTS.fullmatch(text)
    return None if found is None else (found["bundle"], found["name"], found["version"])


def wire_name(name: str) -> str:
    """Return the name of a tool for MCP clients and model providers, which all accept `[a-zA-Z0-9_-]{1,64}`.

    Foreign characters become `_`. If the result is too long or empty, it ends in a hash of the name. So it
    depends on nothing but the name. The full name of a tool of the store, `bundle/slug@1.0`, becomes
    `bundle_slug__1_0`.
    """
    if _is_wire_name(name):
        return name
    if "/" in name:  # Slugs and versions hold no `_`, so two of these never get the same name.
        spelled = name.replace("/", "_").replace("@", "__").replace(".", "_")
        if _is_wire_name(spelled):
            return spelled
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", name)
    base = plain.strip("_-")
    if base and len(plain) <= 64 and "/" not in name:
        return plain
    import hashlib

    # A name with lone surrogates has no strict UTF-8, but must get a wire name too.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    length = 12 if "/" in name else 8  # A store can hold a hundred thousand tools.
    return f"{base[: 63 - length] or 'tool'}_{digest[:length]}"


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


def pointed(root: Any, pointer: str) -> Any:
    """Return the value that a local `$ref` leads to (`#/$defs/a`, RFC 6901); None if it leads nowhere."""
    found = root if pointer.startswith("#") else None
    for step in unquote(pointer).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            # At most 9 digits: Python refuses to read a number of thousands.
            found = found[int(key)] if key.isdecimal() and len(key) < 10 and int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, Mapping) else None
    return found


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name` (case and `-` for `_` aside), or None if none is near."""
    from rapidfuzz import fuzz, process
    from rapidfuzz.distance import OSA

    folded = {option: option.lower().replace("-", "_") for option in known}
    wanted = name[:_MAX_NAME].lower().replace("-", "_")
    found = process.extract(wanted, folded, scorer=fuzz.ratio, score_cutoff=_NEAR, limit=3)
    # Of equally near names the one with two letters swapped: `lsit` is list, not lint.
    return min(found, key=lambda one: (-one[1], OSA.distance(wanted, one[0])))[2] if found else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return the hint of a finding about a name that does not exist: the nearest one, else `otherwise`."""
    close = nearest(name, known)
    return otherwise if close is None else f"did you mean `{close}`?"


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the hint of an error about a name that does not exist: the nearest one, else `otherwise`."""
    close = nearest(name, known)
    return otherwise if close is None else f"Did you mean {close}?"


def printable(text: str, keep: str = "") -> str:
    """Replace every character that controls a terminal or reorders what it shows, but those in `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in keep or unicodedata.category(char) not in _CONTROL else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def cell_width(text: str) -> int:
    """Return the number of terminal cells that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        # Wide and fullwidth characters take two cells (UAX 11), combining ones none.
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
