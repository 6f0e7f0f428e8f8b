"""Reads a `.env` file, strictly: what one reader takes for a value and another does not is refused.

    # A comment. Blank lines are nothing.
    export TOKEN=plain words up to a comment  # this one
    SINGLE='exactly ${this} \\n, more lines if need be'
    DOUBLE="escapes: \\n \\r \\t \\" \\\\ \\$"

Nothing is put in for `${NAME}` or `$NAME`, whatever the quotes.
"""

from __future__ import annotations

import re

__all__ = ["parse_env_file"]

_assignment = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*").match
_single = re.compile(r"'([^']*)'").match
_double = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match
_rest = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)").match
_plain = re.compile(r"([^\n]*?)[ \t]*(?:(?<=[ \t])#[^\n]*)?(?:\n|\Z)").match
_nothing = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)").match
_escape = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def parse_env_file(text: str) -> dict[str, str]:
    """The variables of a `.env` file. ValueError names the line, and never what stands in it."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        raise ValueError(f"line {text.count(chr(10), 0, text.index(chr(0))) + 1} holds a NUL character")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        blank = _nothing(text, position)
        if blank is not None and blank.end() > position:
            position = blank.end()
            continue
        begin = _assignment(text, position)
        if begin is None:
            raise ValueError(f"line {line} is no NAME=value")
        name = begin[1]
        if name in found:
            raise ValueError(f"line {line} sets {name} a second time")
        found[name], position = _value(text, begin.end(), line)
    return found


def _value(text: str, position: int, line: int) -> tuple[str, int]:
    quote = text[position : position + 1]
    if quote not in ("'", '"'):
        plain = _plain(text, position)
        assert plain is not None
        return plain[1], plain.end()
    match = (_single if quote == "'" else _double)(text, position)
    if match is None:
        raise ValueError(f"line {line} has a quote that is not closed")
    end = _rest(text, match.end())
    if end is None:
        raise ValueError(f"line {line} goes on after the closing quote")
    if quote == "'":
        return match[1], end.end()
    unknown = next((e[1] for e in _escape.finditer(match[1]) if e[1] not in _ESCAPES), None)
    if unknown is not None:
        raise ValueError(f"line {line} has an escape that means nothing; a backslash itself is \\\\")
    return _escape.sub(lambda e: _ESCAPES[e[1]], match[1]), end.end()
