"""Read JSON files as strictly as YAML manifests, with the position of every value.

The text is RFC 8259 plus comments (`//`, `/* */`), which hand-written tool files have. Duplicate keys,
numbers that would be rounded, and unbounded costs are refused. Nothing here recurses.
"""

from __future__ import annotations

import json
import re
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.yaml.diagnostics import failure, quoted
from toolcrib.manifest.yaml.positions import KeyPath, Mark, Spot
from toolcrib.manifest.yaml.source import Document, decode

__all__ = ["JsonDocument", "load_json"]

_MAX_DEPTH = 128
_MAX_VALUES = 100_000
_MAX_SPOTS = 20_000
"""The most positions that are kept; other values have that of the nearest one above."""
_TOKEN = re.compile(
    r'[ \t\r\n]+|//[^\n]*|/\*.*?\*/|(?P<text>"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")'
    r"|(?P<number>-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])"
    r"|(?P<word>true|false|null)(?!\w)|(?P<sign>[\[\]{},:])",
    re.DOTALL,
)
_CLOSE = {"[": "]", "{": "}"}


class JsonDocument(Document):
    """One JSON file: its data, its text, and the position of each value."""

    __slots__ = ("spots",)

    def __init__(self, path: str, raw: bytes, text: str) -> None:
        super().__init__(path, raw, text, None)
        self.spots: dict[KeyPath, Spot] = {}

    def _spot(self, path: KeyPath) -> tuple[Spot | None, bool]:
        for length in range(len(path), -1, -1):
            spot = self.spots.get(path[:length])
            if spot is not None:
                return spot, length == len(path)
        return None, False


def load_json(raw: bytes, path: str) -> Document:
    """Return the document of a JSON file. Raises ManifestError with one finding if it is not JSON."""
    document = JsonDocument(path, raw, decode(raw, path))
    _Reader(document).read()
    return document


class _Frame:
    """An object or an array that is not closed yet."""

    __slots__ = ("after", "expect", "key", "key_mark", "path", "start", "value")

    def __init__(self, value: Any, path: KeyPath, start: Mark) -> None:
        self.value = value
        self.path = path
        self.start = start
        self.key: str | None = None
        self.key_mark: Mark | None = None
        self.expect = "key or }" if isinstance(value, dict) else "value or ]"
        self.after = ", or }" if isinstance(value, dict) else ", or ]"


class _Reader:
    """Walks the tokens once; the frames are its stack."""

    def __init__(self, document: JsonDocument) -> None:
        self._document = document
        self._text = document.text
        self._spots = document.spots
        self._frames: list[_Frame] = []
        self._line, self._line_start = 1, 0
        self._root: Any = None
        self._done = False
        self._count = 0

    def read(self) -> None:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._refuse(self._mark(at), self._unreadable(at))
            if found.lastgroup is not None:
                self._take(found.lastgroup, found.group(), self._mark(at), found.end())
            line_break = found.group().rfind("\n")
            if line_break >= 0:
                self._line += found.group().count("\n")
                self._line_start = at + line_break + 1
            at = found.end()
        if self._frames:
            raise self._refuse(self._frames[-1].start, "what begins here is never closed")
        if not self._done and self._text.strip():
            raise self._refuse(Mark(1, 1, 0), "the file holds no value")
        self._document.data = self._root

    def _mark(self, at: int) -> Mark:
        return Mark(self._line, at - self._line_start + 1, at)

    def _take(self, kind: str, written: str, mark: Mark, end: int) -> None:
        if self._done:
            raise self._refuse(mark, "a second value stands here", "a JSON file holds one value")
        frame = self._frames[-1] if self._frames else None
        if kind == "sign" and written not in "[{":
            self._sign(frame, written, mark)
        elif frame is not None and frame.expect.startswith("key"):
            self._key(frame, kind, written, mark)
        elif frame is not None and not frame.expect.startswith("value"):
            raise self._refuse(mark, f"expected {frame.expect} here")
        elif kind == "sign":
            self._open(written, mark)
        else:
            self._place(self._scalar(kind, written, mark), mark, end)

    def _open(self, written: str, mark: Mark) -> None:
        if len(self._frames) >= _MAX_DEPTH:
            message = f"arrays and objects are nested more than {_MAX_DEPTH} deep"
            raise self._refuse(mark, message, rule="yaml-depth")
        value: Any = [] if written == "[" else {}
        self._frames.append(_Frame(value, self._place(value, mark, mark.index + 1), mark))

    def _place(self, value: Any, mark: Mark, end: int) -> KeyPath:
        """Add a value to its parent; return its path."""
        self._count += 1
        if self._count > _MAX_VALUES:
            raise self._refuse(mark, f"the file holds more than {_MAX_VALUES:,} values", rule="too-large")
        frame = self._frames[-1] if self._frames else None
        if frame is None:
            self._root = value
            self._done = not isinstance(value, dict | list)
            self._spots[()] = Spot(mark, end)
            return ()
        step: str | int = frame.key if frame.key is not None else len(frame.value)
        if frame.key is not None:
            frame.value[frame.key] = value
        else:
            frame.value.append(value)
        path: KeyPath = ()
        if len(self._spots) < _MAX_SPOTS or isinstance(value, dict | list):
            path = (*frame.path, step)
        if len(self._spots) < _MAX_SPOTS:
            self._spots[path] = Spot(mark, end, frame.key_mark)
        frame.key = frame.key_mark = None
        frame.expect = frame.after
        return path

    def _key(self, frame: _Frame, kind: str, written: str, mark: Mark) -> None:
        if kind != "text":
            raise self._refuse(mark, f"the key {quoted(written)} is not text", "put it in double quotes")
        key = str(self._scalar(kind, written, mark))
        if key in frame.value:
            first = self._spots.get((*frame.path, key))
            where = f" (first in line {first.start.line})" if first is not None else ""
            message = f"the key {quoted(key)} stands twice{where}"
            raise self._refuse(mark, message, "remove one of the two", rule="yaml-duplicate-key")
        frame.key, frame.key_mark, frame.expect = key, mark, ": after the key"

    def _sign(self, frame: _Frame | None, written: str, mark: Mark) -> None:
        if frame is None:
            raise self._refuse(mark, f"`{written}` cannot stand here")
        if written == ":" and frame.expect.startswith(":"):
            frame.expect = "value"
        elif written == "," and frame.expect.startswith(","):
            frame.expect = "key" if isinstance(frame.value, dict) else "value"
        elif frame.expect.endswith(written) and written in "]}":
            self._frames.pop()
            self._done = not self._frames
        else:
            raise self._refuse(mark, f"expected {frame.expect} here, not `{written}`")

    def _scalar(self, kind: str, written: str, mark: Mark) -> Any:
        if kind == "text" and "\\" not in written and written.isascii():
            return written[1:-1]
        if kind == "number" and len(written) > 400:
            raise self._refuse(mark, "the number has more than 400 digits", rule="yaml-number")
        try:
            value = json.loads(written)
        except ValueError as error:
            raise self._refuse(mark, f"not JSON: {error}") from None
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
            message = "a whole number beyond 64 bits"
            raise self._refuse(mark, message, "quote it if it is text", rule="yaml-number")
        if isinstance(value, float) and value - value != 0:
            raise self._refuse(mark, "a number beyond what can be held", rule="yaml-number")
        if (isinstance(value, str) and not written.isascii()) or "\\u" in written:
            try:
                str(value).encode()
            except UnicodeEncodeError:
                raise self._refuse(
                    mark, "the text holds half of a surrogate pair", rule="yaml-character"
                ) from None
        return value

    def _unreadable(self, at: int) -> str:
        sign = self._text[at]
        if sign == '"':
            return "the text that begins here is not closed in its line, or holds a control character"
        if self._text.startswith("/*", at):
            return "the comment that begins here is never closed"
        return f"{quoted(self._text[at : at + 20].split()[0] if sign.strip() else sign)} is not JSON"

    def _refuse(
        self, mark: Mark, message: str, hint: str | None = None, *, rule: str = "json-syntax"
    ) -> ManifestError:
        return failure([self._document.diagnostic(rule, message, at=mark.at, hint=hint)])
