"""Read JSON files as strictly as YAML manifests, with the position of every value.

The text is RFC 8259 plus comments (`//`, `/* */`), which hand-written tool files have. Duplicate keys,
numbers that would be rounded, and unbounded costs are refused.
"""

from __future__ import annotations

import json
import re
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.yaml.diagnostics import failure, quoted
from toolcrib.manifest.yaml.positions import duplicate_key
from toolcrib.manifest.yaml.source import Document, decode, place_of

_MAX_DEPTH = 128
_MAX_VALUES = 100_000
_MAX_DIGITS = 400
_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*|/\*(?:.*?\*/|.*)|[\[\]{},]|-?\d[\w.+-]*|-?(?:NaN|Infinity)',
    re.DOTALL,
)
_NOT_YAML = re.compile("[^\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile(r'"[^"]*\\u[dD][89a-fA-F]')


class JsonDocument(Document):
    """One JSON file: its data, its text, and the position of each value."""

    __slots__ = ("plain",)

    def __init__(self, path: str, raw: bytes, text: str) -> None:
        super().__init__(path, raw, text, None)
        self.plain = text
        """The text with blanks in place of comments."""

    def refuse(
        self, at: int, message: str, hint: str | None = None, *, rule: str = "json-syntax"
    ) -> ManifestError:
        """Return the error for what stands at an index of the text."""
        return failure([self.diagnostic(rule, message, at=place_of(self.text, at), hint=hint)])

    def _as_yaml(self) -> str:
        return _NOT_YAML.sub(" ", self.plain)


def load_json(raw: bytes, path: str) -> Document:
    """Return the document of a JSON file. Raises ManifestError with one finding if it is not JSON."""
    import orjson

    document = JsonDocument(path, raw, decode(raw, path))
    _scan(document)
    try:
        document.data = json.loads(document.plain, object_pairs_hook=_pairs)
    except json.JSONDecodeError as error:
        raise _unreadable(document, error) from None
    except _DuplicateKeyError:
        raise _twice(document) from None
    try:
        orjson.dumps(document.data)
    except TypeError:
        found = _SURROGATE.search(document.text)
        message = "the text holds half of a surrogate pair"
        raise document.refuse(found.start() if found else 0, message, rule="yaml-character") from None
    return document


class _DuplicateKeyError(Exception):
    """A key stands twice in one object."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _DuplicateKeyError
    return found


def _scan(document: JsonDocument) -> None:
    """Blank the comments, and refuse what must not reach the parser, or what it would round."""
    depth, values, at, parts = 0, 0, 0, []
    for found in _TOKEN.finditer(document.text):
        token, start = found.group(), found.start()
        if token[0] == "/":
            if token[1] == "*" and (len(token) < 4 or not token.endswith("*/")):
                raise document.refuse(start, "the comment that begins here is never closed")
            parts += [document.text[at:start], re.sub(r"[^\r\n]", " ", token)]
            at = found.end()
        elif token[-1] in "Ny":
            raise document.refuse(start, f"`{token}` is not JSON")
        elif token[0] in "-0123456789":
            _check_number(document, token, start)
        elif token[0] in "]}":
            depth -= 1
        elif token[0] in "[{,":
            values += 1
            depth += token[0] != ","
            if depth > _MAX_DEPTH:
                message = f"arrays and objects are nested more than {_MAX_DEPTH} deep"
                raise document.refuse(start, message, rule="yaml-depth")
            if values > _MAX_VALUES:
                message = f"the file holds more than {_MAX_VALUES:,} values"
                raise document.refuse(start, message, rule="too-large")
    document.plain = "".join([*parts, document.text[at:]])


def _check_number(document: JsonDocument, written: str, at: int) -> None:
    if len(written) > _MAX_DIGITS:
        raise document.refuse(at, f"the number has more than {_MAX_DIGITS} digits", rule="yaml-number")
    try:
        value = json.loads(written)
    except ValueError:  # The parser says what is wrong with it.
        return
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        message = "a whole number beyond 64 bits"
        raise document.refuse(at, message, "quote it if it is text", rule="yaml-number")
    if value - value != 0:
        raise document.refuse(at, "a number beyond what can be held", rule="yaml-number")


def _unreadable(document: JsonDocument, error: json.JSONDecodeError) -> ManifestError:
    if not document.plain.strip():
        return document.refuse(0, "the file holds no value")
    at = min(error.pos, len(document.text))
    if error.msg.startswith("Extra data"):
        return document.refuse(at, "a second value stands here", "a JSON file holds one value")
    return document.refuse(at, f"not JSON: {error.msg[0].lower()}{error.msg[1:]}")


def _twice(document: JsonDocument) -> ManifestError:
    found = duplicate_key(_NOT_YAML.sub(" ", document.plain))
    if found is None:  # Beyond what is searched for positions.
        return document.refuse(0, "a key stands twice in an object", rule="yaml-duplicate-key")
    key, second, first = found
    message = f"the key {quoted(key)} stands twice (first in line {first.line})"
    return document.refuse(second.index, message, "remove one of the two", rule="yaml-duplicate-key")
