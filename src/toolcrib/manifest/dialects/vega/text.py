"""Write data as the YAML of Vega's files, with conditions on lines of their own around entries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from toolcrib.manifest.yaml.source import flow
from toolcrib.spec import ABSENT, Choice

_PLAIN = re.compile(r"[A-Za-z_/][\w./@%+=~-]*(?:(?: |:(?=[^\s]))[\w./@%+=~(),-]+)*", re.ASCII)
"""Text that never needs quotes in YAML, unless it is one of `_WORDS`."""
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


class Bare(str):
    """Text that is written without quotes: quoted, it would have another meaning to other programs."""

    __slots__ = ()


def written(data: dict[str, Any]) -> str:
    """Return the text of a mapping that may contain `Choice` values."""
    return "\n".join(_mapping(data, 0)) + "\n"


def _mapping(data: dict[str, Any], indent: int) -> Iterator[str]:
    for key, item in data.items():
        yield from _entry(" " * indent, f"{_scalar(key)}:", item, indent)


def _list(data: list[Any], indent: int) -> Iterator[str]:
    for item in data:
        yield from _entry(" " * indent, "-", item, indent)


def _entry(margin: str, head: str, item: Any, indent: int) -> Iterator[str]:
    """Yield one entry of a mapping or a list: `head` is its key, or its dash."""
    if isinstance(item, Choice):
        yield from _choice(margin, head, item, indent)
    elif isinstance(item, dict) and item:
        inner = list(_mapping(item, indent + 2))
        if head == "-" and not inner[0].lstrip().startswith("{{"):
            yield f"{margin}- {inner.pop(0).lstrip()}"
        else:
            yield margin + head
        yield from inner
    elif isinstance(item, list) and any(isinstance(one, dict | list | Choice) for one in item):
        yield margin + head
        yield from _list(item, indent + 2)
    elif isinstance(item, str) and _is_block(item):
        lines = item.removesuffix("\n").split("\n")
        yield f"{margin}{head} {'|' if item.endswith(chr(10)) else '|-'}"
        yield from (f"{margin}  {line}" if line else "" for line in lines)
    else:
        yield f"{margin}{head} {_scalar(item) if isinstance(item, str) else flow(item)}"


def _choice(margin: str, head: str, choice: Choice, indent: int) -> Iterator[str]:
    """Yield a condition around one entry; a branch without a value has no lines."""
    for at, (test, value) in enumerate(choice.branches):
        word = "else" if test is None else f"if {test}" if at == 0 else f"else if {test}"
        yield f"{margin}{{{{{word}}}}}"
        if value is not ABSENT:
            yield from _entry(margin, head, value, indent)
    yield f"{margin}{{{{end}}}}"


def _scalar(text: str) -> str:
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return text if plain or isinstance(text, Bare) else flow(text)


def _is_block(text: str) -> bool:
    """Return True if a text can be written as a block of lines and be read back unchanged."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and bool(lines[0])
        and not lines[0].startswith(" ")
        and bool(lines[-1])
        and all(line.isprintable() and (not line or not line.isspace()) for line in lines)
    )
