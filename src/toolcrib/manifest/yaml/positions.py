"""Find the positions in a YAML text. Slow and exact, so only used for files with findings.

Works on the events of a second parser, within a budget: a text that is too long gives the places found so
far, and the rest has the nearest place above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from toolcrib.spec.record import record

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the root of a document."""

_MAX_CHARS = 1 << 17
_MAX_EVENTS = 6_000
_MAX_EXPANDED = 1 << 22
# Added to the text of each node, so that a list of empty values counts too.
_NODE_COST = 16
_UNCHECKED = "too-large", "the manifest is too large to have aliases", None
_COMPLEX = "?"
_TAG = re.compile(r"(?<![^\s\[{,:])![^\s,\[\]{}]*")


@record
class Mark:
    """A place in a text: line and column from 1, index from 0."""

    line: int
    column: int
    index: int

    @property
    def at(self) -> tuple[int, int]:
        """Line and column."""
        return self.line, self.column


@record
class Spot:
    """The position of one value, and of its key if it has one."""

    start: Mark
    end: int
    """Index after the value; for a mapping or list, after its first sign."""
    key: Mark | None = None


@dataclass(slots=True)
class _OpenNode:
    path: KeyPath
    mapping: bool
    count: int = 0
    key: str | None = None
    key_mark: Mark | None = None
    seen: dict[str, Mark] = field(default_factory=dict)


class Positions:
    """The place of every key and value of the first document of a text, by path."""

    __slots__ = ("_spots", "twice")

    def __init__(self, text: str) -> None:
        self._spots: dict[KeyPath, Spot] = {}
        self.twice: tuple[str, Mark, Mark] | None = None
        """The first duplicate key of a mapping: the key, its second position, its first one."""
        self._read(text)

    def find(self, path: KeyPath) -> tuple[Spot | None, bool]:
        """Return the position of `path` or of the nearest value above it, and True if it is exact."""
        for length in range(len(path), -1, -1):
            spot = self._spots.get(path[:length])
            if spot is not None:
                return spot, length == len(path)
        return None, False

    def _read(self, text: str) -> None:
        frames: list[_OpenNode] = []
        for event in _events(text):
            kind = type(event).__name__
            if kind in ("MappingEndEvent", "SequenceEndEvent"):
                frames.pop()
            elif kind == "DocumentEndEvent":
                return
            if kind not in ("ScalarEvent", "AliasEvent", "MappingStartEvent", "SequenceStartEvent"):
                continue
            top = frames[-1] if frames else None
            path: KeyPath = ()
            if top is not None and top.mapping and top.key is None:
                self._key(top, event, plain=kind == "ScalarEvent")
                # A key may itself be a list or a mapping; what is in it gets a path that no value has.
                path = (*top.path, _COMPLEX)
            else:
                if top is not None:
                    path = (*top.path, top.key if top.key is not None else top.count)
                self._value(path, None if top is None else top.key_mark, event)
                if top is not None:
                    top.count += 1
                    top.key = None
            if kind.endswith("StartEvent"):
                frames.append(_OpenNode(path, kind == "MappingStartEvent"))

    def _key(self, mapping: _OpenNode, event: Any, *, plain: bool) -> None:
        mapping.key = key = event.value if plain else _COMPLEX
        mapping.key_mark = _mark(event.start_mark)
        first = mapping.seen.setdefault(key, mapping.key_mark)
        if plain and first is not mapping.key_mark and self.twice is None:
            self.twice = key, mapping.key_mark, first

    def _value(self, path: KeyPath, key: Mark | None, event: Any) -> None:
        start = _mark(event.start_mark)
        if key is not None and event.end_mark.index == start.index and getattr(event, "value", None) == "":
            start = key  # the parser puts an empty value wherever the next thing begins
        # Of a duplicate key the first place counts; `twice` names the second one.
        self._spots.setdefault(path, Spot(start, event.end_mark.index, key))


def first_tag(text: str) -> tuple[int, int] | None:
    """Return the indexes where the first tag of a whole text begins and ends; None if there is none."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    at = 0
    try:
        for token in YAML(typ="safe", pure=True).scan(text):
            at = token.end_mark.index
            if type(token).__name__ == "TagToken":
                return token.start_mark.index, at
    except (YAMLError, ValueError):
        # This parser refuses some tabs that the other one takes. From there, what looks like a tag is one.
        found = _TAG.search(text, at)
        return None if found is None else found.span()
    return None


def expansion_fault(text: str) -> tuple[str, str, Mark | None] | None:
    """Return why aliases must not be expanded, as rule, message and position; None if they may be.

    The YAML parser copies what an alias stands for, so 500 kB of text and a thousand aliases are 500 MB.
    """
    if len(text) > _MAX_CHARS:
        return _UNCHECKED
    sizes: dict[str, int | None] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    count = 0
    for event in _events(text):
        count += 1
        kind = type(event).__name__
        size = _NODE_COST
        if kind == "AliasEvent":
            # None: the node is still open, so the alias is inside of what it stands for.
            known = sizes.get(event.anchor, -1)
            if known is None or known == -1:
                inside = "is inside the value that it refers to"
                nothing = "refers to nothing: there is no such anchor before it"
                message = f"the alias {inside if known is None else nothing}"
                return "yaml-alias", message, _mark(event.start_mark)
            size = known
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            open_nodes.append((event.anchor, 0))
            if event.anchor is not None:
                sizes[event.anchor] = None
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, size = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = size
        elif kind == "ScalarEvent":
            size += len(event.value)
            if event.anchor is not None:
                sizes[event.anchor] = size
        owner, total = open_nodes[-1]
        open_nodes[-1] = (owner, total + size)
        if total + size > _MAX_EXPANDED:
            message = "with its aliases written out the file is larger than 4 MiB"
            return "too-large", message, _mark(event.start_mark)
    return _UNCHECKED if count >= _MAX_EVENTS else None


def _events(text: str) -> Iterator[Any]:
    """Yield parser events within the budget, up to the first syntax error."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    count = 0
    try:
        for event in YAML(typ="safe", pure=True).parse(text[:_MAX_CHARS]):
            yield event
            count += 1
            if count >= _MAX_EVENTS:
                return
    except (YAMLError, RecursionError, ValueError, AttributeError, IndexError):
        # The parser fails by other errors too. The places found so far are enough.
        return


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1, mark.index)
