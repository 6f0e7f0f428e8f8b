"""One line of the audit log: how it is written, and how it is read back without ambiguity.

    [2025-01-09T15:00:10] TOOL_EXECUTED name=weather params={"location":"NYC"} status=success seq=3 prev=<hex>

A field is `key=value`. A text that is a plain word is written as it is, everything else as JSON. Characters
that a terminal or a line reader could take for a control (line separators, bidirectional marks, C1 codes,
DEL) are written as JSON escapes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import orjson

from toolcrib.spec.moment import written
from toolcrib.spec.record import record
from toolcrib.state import is_running

GENESIS = "0" * 64
"""`prev` of the first line of a log."""

MAX_VALUE = 16_384
"""Characters of one value; a longer one is replaced by its length, digest and beginning."""

_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_WORD = r"[A-Za-z0-9_.:@/+-]+"
# Not a word that JSON reads as a number or a literal: the text "2" and the number 2 must differ in a line.
_bare = re.compile(rf"(?!(?:true|false|null|{_NUMBER})\Z){_WORD}\Z").match
_word = re.compile(_WORD).match
_literal = re.compile(rf"(?:true|false|null|{_NUMBER})\Z").match
_start = re.compile(r"\[([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})\] ([A-Z][A-Z0-9_]*)").match
_key = re.compile(r" ([a-z][a-z0-9_]*)=").match
_end = re.compile(r" seq=([1-9][0-9]{0,17}) prev=([0-9a-f]{64})\Z").search
# With bidirectional, zero-width and control characters, an argument could make a line look like another one.
_hidden = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
).sub
_decode = json.JSONDecoder().raw_decode

_RESERVED = frozenset({"cut", "prev", "seq"})
_HEAD_OF_CUT = 512
_MAX_DEPTH = 200
_SHORT = 64
_BIG = 2**63

# Keys and events occur again and again, and a regular expression for each of them on every record would be
# felt. So those that were found valid are remembered.
_known_keys: set[str] = set()
known_events: set[str] = set()


@record
class Head:
    """The last line of a log: its number, and its digest, which the next line contains."""

    seq: int = 0
    hash: str = GENESIS


@record
class AuditEntry:
    """One line read back."""

    time: datetime
    event: str
    seq: int
    prev: str
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def ends(self) -> int:
        """The number of the start whose end this line is; 0 if it ends no call."""
        start = self.fields.get("start")
        return start if isinstance(start, int) else 0

    @property
    def state(self) -> Literal["running", "interrupted"]:
        """The state of a call that has this start and no end: `interrupted` if its process has ended."""
        return "running" if is_running(str(self.fields.get("process"))) else "interrupted"

    def as_dict(self) -> dict[str, Any]:
        """Return its place and its tool as JSON, to name the start of a call."""
        return {"seq": self.seq, "time": written(self.time.timestamp()), "name": self.fields.get("name")}


def require_event(event: str) -> None:
    """Refuse (ValueError) an event name that is not UPPER_CASE, or that only the log itself may write."""
    if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", event) or event.startswith("AUDIT_"):
        raise ValueError(f"an audit event must be UPPER_CASE and not begin with AUDIT_; got {event!r}")
    known_events.add(event)


def encode_fields(fields: Mapping[str, Any]) -> str:
    """Return the fields as they are written in a line, each after a space.

    Never fails for a value: what is not JSON is recorded as its type (`"<datetime>"`), so that no `repr` can
    carry a secret past the masking. Raises ValueError for a key that is not a lower-case name.
    """
    line = ""
    cut: list[str] = []
    for key, value in fields.items():
        if key not in _known_keys:
            _require_key(key)
        kind = value.__class__
        if kind is str:
            text = _short_text(value) if len(value) <= _SHORT else _text(value)
        elif kind is float:
            # False for NaN and the infinities, which JSON cannot write.
            text = repr(value) if value - value == 0.0 else "null"
        elif kind is int and -_BIG < value < _BIG:
            text = repr(value)
        else:
            text = _json(value)
        if text is None or len(text) > MAX_VALUE:
            cut.append(key)
            text = _summary(text, value)
        line = f"{line} {key}={text}"
    return line if not cut else f"{line} cut={_json(cut)}"


def encode_field(key: str, text: str) -> str:
    """Return one field as `encode_fields` does; that of a short text, such as a name, is remembered."""
    return _short_field(key, text) if len(text) <= _SHORT else encode_fields({key: text})


@lru_cache(maxsize=1024)
def _short_field(key: str, text: str) -> str:
    return encode_fields({key: text})


def _text(value: str) -> str | None:
    return value if _bare(value) else _json(value)


_short_text = lru_cache(maxsize=1024)(_text)  # Names occur again and again.


def parse(line: bytes | str) -> AuditEntry:
    """Read one line, with or without its newline; ValueError if it is not a whole audit line."""
    text = (line.decode() if isinstance(line, bytes) else line).removesuffix("\n")
    start, end = _start(text), _end(text)
    if start is None or end is None:
        raise ValueError("an audit line begins with [time] EVENT and ends with seq= and prev=")
    fields: dict[str, Any] = {}
    position, stop = start.end(), end.start()
    while position < stop:
        key = _key(text, position, stop)
        if key is None or key[1] in fields:
            raise ValueError(f"no field, or a repeated one, at column {position + 1}")
        fields[key[1]], position = _value(text, key.end(), stop)
    time = datetime.fromisoformat(start[1]).replace(tzinfo=UTC)
    return AuditEntry(time, start[2], int(end[1]), end[2], fields)


def _value(text: str, position: int, stop: int) -> tuple[Any, int]:
    word = _word(text, position, stop)
    if word is not None:
        return json.loads(word[0]) if _literal(word[0]) else word[0], word.end()
    if text[position : position + 1] not in ('"', "{", "["):
        raise ValueError(f"no value at column {position + 1}")
    try:
        value, position = _decode(text, position)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if position > stop:
        raise ValueError("a value extends into seq= and prev=")
    return value, position


def _require_key(key: str) -> None:
    if key in _RESERVED or not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", key):
        raise ValueError(f"an audit field must be lower_case and not cut, prev or seq; got {key!r}")
    if len(_known_keys) < 1024:
        _known_keys.add(key)


def _json(value: Any) -> str | None:
    """Return the value as one line of JSON without hidden characters; None if that is impossible."""
    try:
        text = orjson.dumps(value, _stand_in, orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except TypeError:  # A lone surrogate, an integer beyond 64 bits, a key that is not text, deep nesting.
        try:
            plain = _plain(value, _MAX_DEPTH)
            # `json` escapes everything outside of ASCII; DEL is ASCII, and controls a terminal.
            return json.dumps(plain, separators=(",", ":")).replace("\x7f", "\\u007f")
        except (RecursionError, TypeError, ValueError):
            return None
    if text.isascii() and "\x7f" not in text:
        return text
    return _hidden(_escape, text)


def _stand_in(value: Any) -> Any:
    """Return what is written for an object that is not JSON: read-only mappings and sets, else its type."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    return f"<{type(value).__name__}>"


def _plain(value: Any, depth: int) -> Any:
    """Copy a value as Python's own `json` can write it; ValueError if it is nested too deeply."""
    if depth == 0:
        raise ValueError("nested too deeply")
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {
            key if isinstance(key, (str, int, float)) else f"<{type(key).__name__}>": _plain(item, depth - 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth - 1) for item in value]
    return _plain(_stand_in(value), depth - 1)


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _summary(text: str | None, value: Any) -> str:
    """Return what replaces a value that is too long, so that it can still be compared and recognised."""
    if text is None:
        short: dict[str, Any] = {"type": type(value).__name__}
    else:
        data = text.encode()
        short = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "head": text[:_HEAD_OF_CUT]}
    return _json(short) or "{}"
