"""Read JSON files as strictly as YAML manifests, with the position of every value.

The text is RFC 8259 plus comments (`//`, `/* */`), which hand-written tool files have. Duplicate keys,
numbers that would be rounded, and deep nesting are refused.
"""

from __future__ import annotations

import re
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.yaml.diagnostics import failure, quoted
from toolcrib.manifest.yaml.source import Document, decode, place_of

_MAX_DEPTH = 128
"""The limit of the YAML parser: deeper data could not be written as a manifest."""
# Strings are matched first, so that `//` inside one, as in a URL, is not a comment.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|(?P<comment>//[^\n]*|/\*(?:.*?(?P<end>\*/)|.*))', re.DOTALL)
_NOT_YAML = re.compile("[^\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


class JsonDocument(Document):
    """One JSON file: its data, its text, and the position of each value."""

    __slots__ = ("plain",)

    def __init__(self, path: str, raw: bytes, text: str) -> None:
        super().__init__(path, raw, text, None)
        self.plain = _COMMENT.sub(self._without_comment, text)
        """The text with blanks in place of comments, so that every index stays the same."""

    def _without_comment(self, found: re.Match[str]) -> str:
        if found["comment"] is None:
            return found[0]
        if found[0].startswith("/*") and found["end"] is None:
            raise self.refuse(found.start(), "the comment that begins here is never closed")
        return re.sub(r"[^\r\n]", " ", found[0])

    def refuse(
        self, at: int, message: str, hint: str | None = None, *, rule: str = "json-syntax"
    ) -> ManifestError:
        """Return the error for an index of the text."""
        return failure([self.diagnostic(rule, message, at=place_of(self.text, at), hint=hint)])

    def _as_yaml(self) -> str:
        # The YAML parser refuses some characters that JSON allows. One blank for each keeps every index.
        return _NOT_YAML.sub(" ", self.plain)


def load_json(raw: bytes, path: str) -> Document:
    """Return the document of a JSON file. Raises ManifestError with one finding if it is not JSON."""
    import orjson

    from toolcrib.schema.decode import lost_values

    document = JsonDocument(path, raw, decode(raw, path))
    try:
        document.data = orjson.loads(document.plain)
    except orjson.JSONDecodeError as error:
        wrong = f"not JSON: {error.msg}" if document.plain.strip() else "the file has no value"
        raise document.refuse(min(error.pos, len(document.text)), wrong) from None
    if _is_deep(document.data):
        message = f"arrays and objects are nested more than {_MAX_DEPTH} deep"
        raise document.refuse(0, message, rule="yaml-depth")
    for place, index, integer in lost_values(document.plain):
        if integer is None:
            message = f"the key {quoted(place[-1])} is used twice in this object"
            raise document.refuse(index, message, "remove one of the two", rule="yaml-duplicate-key")
        message = "a whole number beyond 64 bits"
        raise document.refuse(index, message, "quote it if it is text", rule="yaml-number")
    return document


def _is_deep(data: Any) -> bool:
    # Level by level, not by recursion: deep data would exhaust the stack here.
    level = [data] if isinstance(data, dict | list) else []
    for _ in range(_MAX_DEPTH):
        if not level:
            return False
        items = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        level = [item for item in items if isinstance(item, dict | list)]
    return bool(level)
