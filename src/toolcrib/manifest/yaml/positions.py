"""Find the positions in a YAML text. Slow and exact, so only used for files with findings.

Works on the events of a second parser, within a budget: a text that is too long gives the places found so
far, and the nearest place above stands for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.spec.record import record

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the root of a document."""

_MAX_CHARS = 1 << 17
_MAX_EVENTS = 6_000
_MAX_EXPANDED = 1 << 22
_NODE_COST = 16
_COMPLEX = "?"
_TAGGED = re.compile(r"(?<![^\s\[{,:])![^\s,\[\]{}]*")


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
    """The place of every key and value of one text, by path."""

    __slots__ = ("_spots",)

    def __init__(self, spots: Mapping[KeyPath, Spot]) -> None:
        self._spots = spots

    def find(self, path: KeyPath) -> tuple[Spot | None, bool]:
        """Return the position of `path` or of the nearest value above it, and True if it is exact."""
        for length in range(len(path), -1, -1):
            spot = self._spots.get(path[:length])
            if spot is not None:
                return spot, length == len(path)
        return None, False

    def child(self, parent: KeyPath, number: int) -> Spot | None:
        """Return the position of the entry `number` (from 0) of a mapping."""
        at = 0
        for path, spot in self._spots.items():
            if len(path) == len(parent) + 1 and path[:-1] == parent:
                if at == number:
                    return spot
                at += 1
        return None


def yaml_spots(text: str) -> dict[KeyPath, Spot]:
    """Return the place of every key and value of a YAML text."""
    spots: dict[KeyPath, Spot] = {}
    for path, key, event in _nodes(text):
        start = _mark(event.start_mark)
        if key is not None and event.end_mark.index == start.index and getattr(event, "value", None) == "":
            start = key  # the parser puts an empty value wherever the next thing begins
        spots.setdefault(path, Spot(start, event.end_mark.index, key))
    return spots


def duplicate_key(text: str) -> tuple[str, Mark, Mark] | None:
    """Return the first duplicate key of a mapping: the key, its second position, its first one."""
    frames: list[_OpenNode] = []
    for event in _events(text):
        found = _advance(frames, event)
        if found is not None:
            return found
    return None


def first_tag(text: str) -> tuple[str, Mark] | None:
    """Return the tag of the first tagged value, as written, and its position."""
    for event in _events(text):
        if getattr(event, "tag", None) is not None:
            start = _mark(event.start_mark)
            written = _TAGGED.search(text, start.index)
            if written is None:
                return str(event.tag), start
            shift = written.start() - start.index
            same_line = "\n" not in text[start.index : written.start()]
            return written.group(), Mark(
                start.line, start.column + shift, written.start()
            ) if same_line else start
    return None


def second_document(text: str) -> Mark | None:
    """Return the position of the second document."""
    count = 0
    for event in _events(text):
        count += type(event).__name__ == "DocumentStartEvent"
        if count == 2:
            return _mark(event.start_mark)
    return None


def expansion_fault(text: str) -> tuple[str, Mark | None] | None:
    """Return why aliases must not be expanded (`self`, `unknown`, `size`, `unchecked`) and where; or None.

    The YAML parser copies what an alias stands for, so 500 kB of text and a thousand aliases are 500 MB.
    """
    if len(text) > _MAX_CHARS:
        return "unchecked", None
    sizes: dict[str, int | None] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    count = 0
    for event in _events(text):
        count += 1
        kind = type(event).__name__
        size = _NODE_COST
        if kind == "AliasEvent":
            known = sizes.get(event.anchor, -1)
            if known is None or known == -1:
                return ("self" if known is None else "unknown"), _mark(event.start_mark)
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
            return "size", _mark(event.start_mark)
    return ("unchecked", None) if count >= _MAX_EVENTS else None


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
        return


def _nodes(text: str) -> Iterator[tuple[KeyPath, Mark | None, Any]]:
    """Yield every value of the first document, with its path and the position of its key."""
    frames: list[_OpenNode] = []
    documents = 0
    for event in _events(text):
        kind = type(event).__name__
        documents += kind == "DocumentStartEvent"
        if documents > 1:
            return
        if kind not in ("ScalarEvent", "AliasEvent", "MappingStartEvent", "SequenceStartEvent"):
            _advance(frames, event)
            continue
        top = frames[-1] if frames else None
        if top is None:
            yield (), None, event
        elif not top.mapping:
            yield (*top.path, top.count), None, event
        elif top.key is not None:
            yield (*top.path, top.key), top.key_mark, event
        _advance(frames, event)


def _advance(frames: list[_OpenNode], event: Any) -> tuple[str, Mark, Mark] | None:
    """Process one event; return a duplicate key."""
    kind = type(event).__name__
    if kind in ("MappingEndEvent", "SequenceEndEvent"):
        frames.pop()
        return None
    if kind not in ("ScalarEvent", "AliasEvent", "MappingStartEvent", "SequenceStartEvent"):
        return None
    top = frames[-1] if frames else None
    path: KeyPath = ()
    twice = None
    if top is not None:
        if top.mapping and top.key is None:
            top.key = event.value if kind == "ScalarEvent" else _COMPLEX
            top.key_mark = _mark(event.start_mark)
            if kind == "ScalarEvent" and top.key in top.seen:
                twice = top.key, top.key_mark, top.seen[top.key]
            top.seen.setdefault(top.key, top.key_mark)
            path = (*top.path, _COMPLEX)
        else:
            path = (*top.path, top.key if top.key is not None else top.count)
            top.count += 1
            top.key = None
    if kind.endswith("StartEvent"):
        frames.append(_OpenNode(path, kind == "MappingStartEvent"))
    return twice


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1, mark.index)
