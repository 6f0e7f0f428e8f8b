"""Read a `.env` file strictly: lines that other readers understand differently are refused.

    # A comment. Blank lines are ignored.
    export TOKEN=plain words up to a comment  # this one
    SINGLE='exactly ${this} \\n, and more lines'
    DOUBLE="escapes: \\n \\r \\t \\" \\\\ \\$"

`${NAME}` and `$NAME` are never expanded, whatever the quotes.
"""

from __future__ import annotations

import re

_assignment = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*").match
_single = re.compile(r"'([^']*)'").match
_double = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match
_rest = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)").match
_plain = re.compile(r"([^\n]*?)[ \t]*(?:(?<=[ \t])#[^\n]*)?(?:\n|\Z)").match
_escape = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def parse_env_file(text: str) -> dict[str, str]:
    """Return the variables of a `.env` file. ValueError names the line, never its content."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        raise ValueError(f"line {text.count(chr(10), 0, text.index(chr(0))) + 1} contains a NUL character")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        blank = _rest(text, position)
        if blank is not None and blank.end() > position:
            position = blank.end()
            continue
        begin = _assignment(text, position)
        if begin is None:
            raise ValueError(f"line {line} is not NAME=value")
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
        raise ValueError(f"line {line} has an unclosed quote")
    end = _rest(text, match.end())
    if end is None:
        raise ValueError(f"line {line} continues after the closing quote")
    if quote == "'":
        return match[1], end.end()
    unknown = next((e[1] for e in _escape.finditer(match[1]) if e[1] not in _ESCAPES), None)
    if unknown is not None:
        raise ValueError(f"line {line} has an unknown escape; write a backslash as \\\\")
    return _escape.sub(lambda e: _ESCAPES[e[1]], match[1]), end.end()
