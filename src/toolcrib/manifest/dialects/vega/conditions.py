"""Read Vega's `{{if x}}` … `{{else}}` … `{{end}}` on lines of their own, which are not YAML.

`unfold` makes the text YAML, and every line keeps its number: a control line becomes a key, and its content
is indented below it. After parsing, `fold` replaces these keys by `Choice` values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from toolcrib.manifest.yaml.diagnostics import BREAK, Diagnostic, make
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.spec import ABSENT, Choice
from toolcrib.spec.record import record
from toolcrib.template import directive

_MARK = "\ue000"
_STEP = 4
_SCALAR = re.compile(r"(?:^|[:\-]\s+)(?:[&!]\S*\s+)*[|>][-+0-9]*\s*(?:\s#.*)?$")
_LEAD = re.compile(r" *(?:- +)*")
_MOST = 500


@record
class _Tag:
    """One control line."""

    chain: int
    word: str
    test: str | None
    line: int
    column: int
    listed: bool = False
    """The content of the condition are items of a list."""


@dataclass(slots=True)
class Unfolded:
    """The text as YAML, and the data to map positions back to the file."""

    text: str
    shifts: list[int] = field(default_factory=list)
    """For each line, the number of columns that it was indented by."""
    tags: list[_Tag] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)

    def place(self, at: tuple[int, int]) -> tuple[int, int]:
        """Return line and column in the file."""
        shift = self.shifts[at[0] - 1] if at[0] <= len(self.shifts) else 0
        return at[0], max(1, at[1] - shift)


@dataclass(slots=True)
class _OpenIf:
    chain: int
    indent: int
    listed: bool
    shift: int
    line: int
    tag_line: str
    last: bool = False


def unfold(text: str, path: str) -> Unfolded:
    """Return the YAML for a text with control lines; `found` has their faults."""
    if "{{" not in text:
        return Unfolded(text, [0] * (text.count("\n") + 1))
    return _Unfolder(text, path).run()


class _Unfolder:
    def __init__(self, text: str, path: str) -> None:
        self._lines = BREAK.split(text)
        self._path = path
        self._out: list[str] = []
        self._frames: list[_OpenIf] = []
        self._result = Unfolded("")
        self._chains = 0

    def run(self) -> Unfolded:
        scalar = -1
        """The indent of the entry of the current block scalar; -1 outside of one."""
        for number, line in enumerate(self._lines):
            indent = len(line) - len(line.lstrip(" "))
            line_text = line.strip()
            # Inside a block of text `{{if}}` belongs to the text, and is read when the template is.
            if scalar >= 0 and (not line_text or indent > scalar):
                self._copy(line)
                continue
            scalar = -1
            control = directive(line_text)
            if control is not None:
                self._control(number, line_text, *control)
                continue
            self._copy(line)
            # By its last sign first: most lines cannot begin a block of text.
            if (line_text and line_text[-1] in "|>+-0123456789") or "#" in line_text:
                scalar = _scalar_indent(line)
        for frame in self._frames:
            self._report(frame.line, frame.tag_line, "this `{{if}}` has no `{{end}}`")
        self._result.text = "\n".join(self._out)
        return self._result

    def _copy(self, line: str) -> None:
        shift = self._frames[-1].shift if self._frames else 0
        self._out.append(" " * shift + line if line.strip() else line)
        self._result.shifts.append(shift)

    def _blank(self) -> None:
        self._out.append("")
        self._result.shifts.append(0)

    def _report(self, number: int, line_text: str, message: str) -> None:
        line = self._lines[number]
        at = number + 1, line.find(line_text) + 1
        self._result.found.append(make(self._path, at, "condition", message, source=line))

    def _control(self, number: int, line_text: str, word: str, test: str) -> None:
        if word == "if":
            self._begin(number, line_text, test)
            return
        if not self._frames:
            self._report(number, line_text, f"`{{{{{word}}}}}` without an `{{{{if}}}}` above it")
            self._blank()
            return
        frame = self._frames[-1]
        if word == "end":
            self._frames.pop()
            self._blank()
            return
        if frame.last:
            self._report(number, line_text, f"`{{{{{word}}}}}` after `{{{{else}}}}`")
        frame.last = word == "else"
        self._mark(number, line_text, frame, word, test if word == "else if" else None)

    def _begin(self, number: int, line_text: str, test: str) -> None:
        # The content decides where the key is: a control line may begin at any column.
        first = self._first_content(number)
        outer = self._frames[-1].shift if self._frames else 0
        line = "" if first is None else self._lines[first]
        stripped = line.lstrip(" ")
        listed = stripped == "-" or stripped.startswith("- ")
        self._chains += 1
        indent = len(line) - len(stripped) + outer
        frame = _OpenIf(
            self._chains if first is not None else 0, indent, listed, outer + _STEP, number, line_text
        )
        self._frames.append(frame)
        # Each condition adds a level of nesting, and the checks of manifests are recursive.
        if len(self._result.tags) >= _MOST or len(self._frames) > 20:
            self._report(number, line_text, "too many conditions")
            self._blank()
            return
        self._mark(number, line_text, frame, "if", test)

    def _mark(self, number: int, line_text: str, frame: _OpenIf, word: str, test: str | None) -> None:
        if frame.chain == 0:
            self._blank()
            return
        column = self._lines[number].find(line_text) + 1
        name = f"{_MARK}{len(self._result.tags)}"
        self._result.tags.append(_Tag(frame.chain, word, test, number + 1, column, frame.listed))
        self._out.append(" " * frame.indent + ("- " if frame.listed else "") + f'"{name}":')
        self._result.shifts.append(0)

    def _first_content(self, number: int) -> int | None:
        """Return the first line with content in any branch; None if all branches are empty."""
        depth = 1
        for at in range(number + 1, len(self._lines)):
            line_text = self._lines[at].strip()
            control = directive(line_text)
            if control is not None:
                depth += {"if": 1, "end": -1}.get(control[0], 0)
                if depth == 0:
                    return None
            elif line_text and not line_text.startswith("#"):
                return at
        return None


def _scalar_indent(line: str) -> int:
    """Return the indent that lines of the block scalar begun here exceed; -1 if none begins."""
    if not _SCALAR.search(line):
        return -1
    match = _LEAD.match(line)
    lead = 0 if match is None else match.end()
    keyed = ":" in line[lead:].rpartition("|")[0] or ":" in line[lead:].rpartition(">")[0]
    return lead if keyed else max(0, lead - 2)


def fold(data: Any, tags: list[_Tag]) -> Folded:
    """Return the data of an unfolded text, with each condition moved to its keys and items."""
    folded = Folded(data, tags)
    if tags:
        folded.data = folded.value(data, (), ())
    return folded


class Folded:
    """The data with `Choice` values in it."""

    def __init__(self, data: Any, tags: list[_Tag]) -> None:
        self.data = data
        self._tags = tags
        self.places: dict[KeyPath, KeyPath] = {}
        """The position in the unfolded data of each value in a condition."""
        self.seen: set[int] = set()
        """Numbers of the control lines that were found."""
        self.found: list[tuple[KeyPath, str]] = []
        """Faults with their position in the unfolded data."""

    def value(self, data: Any, path: KeyPath, place: KeyPath) -> Any:
        if isinstance(data, dict):
            return self._mapping(data, path, place)
        if isinstance(data, list):
            return self._list(data, path, place)
        return data

    def _tag(self, key: Any) -> _Tag | None:
        if not isinstance(key, str) or not key.startswith(_MARK) or not key[1:].isdigit():
            return None
        number = int(key[1:])
        if number >= len(self._tags):
            return None
        self.seen.add(number)
        return self._tags[number]

    def _mapping(self, data: dict[str, Any], path: KeyPath, place: KeyPath) -> dict[str, Any]:
        out: dict[str, Any] = {}
        chains: dict[int, list[tuple[_Tag, dict[str, Any]]]] = {}
        for key, item in data.items():
            tag = self._tag(key)
            if tag is None:
                self._place((*path, key), (*place, key))
                if key in out:
                    self.found.append(((*place, key), f"`{key}` is defined here and in a condition"))
                out[key] = self.value(item, (*path, key), (*place, key))
                continue
            if item is not None and not isinstance(item, dict):
                self.found.append(
                    ((*place, key), "the content of this condition must be a mapping, as around it")
                )
            inner = self._mapping(item if isinstance(item, dict) else {}, path, (*place, key))
            branches = chains.setdefault(tag.chain, [])
            branches.append((tag, inner))
            for name in inner:
                known = any(name in earlier for _, earlier in branches[:-1])
                if name in out and not known:
                    message = (
                        f"`{name}` is defined more than once; use one `{{{{if}}}}` with `{{{{else if}}}}`"
                    )
                    self.found.append(((*place, key), message))
                out.setdefault(name, None)
        for branches in chains.values():
            for name in {name: None for _, inner in branches for name in inner}:
                out[name] = Choice(tuple((tag.test, inner.get(name, ABSENT)) for tag, inner in branches))
        return out

    def _list(self, data: list[Any], path: KeyPath, place: KeyPath, start: int = 0) -> list[Any]:
        """Return the items of a list, or of a condition in it, which begins at item `start`."""
        out: list[Any] = []
        tests: dict[int, list[str | None]] = {}
        for at, item in enumerate(data):
            key = next(iter(item)) if isinstance(item, dict) and len(item) == 1 else None
            tag = self._tag(key)
            here: KeyPath = (*place, at)
            index = start + len(out)
            if tag is None or key is None or not tag.listed:
                self._place((*path, index), here)
                out.append(self.value(item, (*path, index), here))
                continue
            before = tests.setdefault(tag.chain, [])
            inner = item[key]
            if inner is not None and not isinstance(inner, list):
                self.found.append((here, "the content of this condition must be a list, as around it"))
                inner = None
            # An item of a later branch is only there if no earlier test was true.
            others = [(test, ABSENT) for test in before]
            out += [
                Choice((*others, (tag.test, value)))
                for value in self._list(inner or [], path, (*here, key), index)
            ]
            before.append(tag.test)
        return out

    def _place(self, path: KeyPath, place: KeyPath) -> None:
        if path != place:
            self.places.setdefault(path, place)
