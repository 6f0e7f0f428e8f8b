"""Find the positions in an ordinary manifest: block style, one key a line. Much faster than a parser.

The data is known already, so the text is only followed line by line, key by key in the same order. Where a
line is not as expected the answer is None, and the exact and slow `positions` is asked instead.
"""

from __future__ import annotations

from typing import Any

from toolcrib.manifest.yaml.positions import KeyPath, Mark, Spot

_NODE_PROPERTIES = "&*!?"
_FLOW = "[{"
_MAX_CHARS = 1 << 18


class _Unclear(Exception):
    pass


def outline(text: str, data: Any) -> dict[KeyPath, Spot] | None:
    """Return the positions by path, without those inside `[…]` and `{…}`; None if it is not ordinary."""
    if not isinstance(data, dict) or not data or len(text) > _MAX_CHARS:
        return None
    follower = _Follower(text)
    try:
        indent = follower.next_content(-1)
        if follower.lines[follower.at].rstrip() == "---":
            indent = follower.next_content(-1)
        follower.put((), follower.mark(indent), None)
        follower.mapping(data, (), indent)
    except (_Unclear, RecursionError):
        return None
    return follower.finish()


class _Follower:
    """Walks down the lines of a text beside its data."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.starts: list[int] = []
        start = 0
        for line in self.lines:
            self.starts.append(start)
            start += len(line) + 1
        self.at = -1
        self._places: list[tuple[KeyPath, Mark, Mark | None]] = []
        self._length = len(text)

    def mark(self, column: int) -> Mark:
        """Return the mark of a column (from 0) in the current line."""
        return Mark(self.at + 1, column + 1, self.starts[self.at] + column)

    def put(self, path: KeyPath, start: Mark, key: Mark | None) -> None:
        """Record the position of a value."""
        self._places.append((path, start, key))

    def finish(self) -> dict[KeyPath, Spot]:
        """Return the positions; each value ends at the line of the next."""
        spots: dict[KeyPath, Spot] = {}
        for number, (path, start, key) in enumerate(self._places):
            end = self._length
            for _, later, later_key in self._places[number + 1 :]:
                following = (later_key or later).line
                if following > start.line:
                    end = self.starts[following - 1]
                    break
            spots[path] = Spot(start, end, key)
        return spots

    def next_content(self, deeper_than: int, at_most: int | None = None) -> int:
        """Go to the next line with content, none deeper than `at_most`, and return its indent."""
        while self.at + 1 < len(self.lines):
            self.at += 1
            line = self.lines[self.at]
            content = line.lstrip(" ")
            if not content.strip() or content[0] == "#":
                continue
            indent = len(line) - len(content)
            if at_most is not None and indent > at_most:
                continue
            if indent > deeper_than:
                return indent
            break
        raise _Unclear

    def mapping(self, data: dict[str, Any], path: KeyPath, indent: int) -> None:
        """Follow a block mapping whose first key is in the current line."""
        for number, (key, value) in enumerate(data.items()):
            if number and self.next_content(-1, indent) != indent:
                raise _Unclear
            column = self._after_key(key, indent)
            self._value(value, (*path, key), column, indent, self.mark(indent))

    def sequence(self, data: list[Any], path: KeyPath, indent: int) -> None:
        """Follow a block list whose first dash is in the current line."""
        for number, value in enumerate(data):
            if number and self.next_content(-1, indent) != indent:
                raise _Unclear
            line = self.lines[self.at]
            if line[indent : indent + 1] != "-" or line[indent + 1 : indent + 2] not in ("", " ", "\r"):
                raise _Unclear
            column = _first_sign(line, indent + 1)
            tail = line[column:].rstrip()
            if tail[:1] in _FLOW or not isinstance(value, dict | list) or not value or tail[:1] in ("", "#"):
                self._value(value, (*path, number), column, indent, None)
                continue
            self.put((*path, number), self.mark(column), None)
            if isinstance(value, dict):
                self.mapping(value, (*path, number), column)
            else:
                self.sequence(value, (*path, number), column)

    def _after_key(self, key: Any, indent: int) -> int:
        """Return the column of the value after `key:` in the current line."""
        if not isinstance(key, str):
            raise _Unclear
        line = self.lines[self.at]
        for written in (key, f'"{key}"', f"'{key}'"):
            if line.startswith(written, indent):
                colon = _first_sign(line, indent + len(written))
                if line[colon : colon + 1] == ":" and line[colon + 1 : colon + 2] in ("", " ", "\t", "\r"):
                    return _first_sign(line, colon + 1)
        raise _Unclear

    def _value(self, value: Any, path: KeyPath, column: int, indent: int, key: Mark | None) -> None:
        tail = self.lines[self.at][column:].rstrip()
        if tail and tail[0] != "#":
            if tail[0] in _NODE_PROPERTIES or (isinstance(value, dict | list) and tail[0] not in _FLOW):
                raise _Unclear
            self.put(path, self.mark(column), key)
        elif value is None and key is not None:
            self.put(path, key, key)
        elif isinstance(value, list):
            below = self.next_content(indent if key is None else indent - 1)
            self.put(path, self.mark(below), key)
            self.sequence(value, path, below)
        elif isinstance(value, dict):
            below = self.next_content(indent)
            self.put(path, self.mark(below), key)
            self.mapping(value, path, below)
        else:
            raise _Unclear


def _first_sign(line: str, column: int) -> int:
    while line[column : column + 1] in (" ", "\t"):
        column += 1
    return column
