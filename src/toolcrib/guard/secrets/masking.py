"""Mask secret values in everything that is shown or recorded: values, streams, and records of `logging`."""

from __future__ import annotations

import base64
import codecs
import copy
import json
import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import orjson


def encodings_of(value: str) -> Iterator[str]:
    """Yield every text that a value is searched as, some of them twice.

    | encoding | for the value `a/b"c` |
    |---|---|
    | plain | `a/b"c` |
    | escaped for JSON | `a/b\\"c` |
    | percent-encoded, in both cases | `a%2Fb%22c` |
    | hexadecimal, in both cases | `612f622263` |
    | base64, standard and URL-safe, also within the base64 of longer data | `YS9iImM=`, `EvYiJj`, `hL2IiY` |
    """
    data = _bytes(value)
    yield value
    yield json.dumps(value)[1:-1]
    yield json_escaped(value)
    for url in (quote(data), quote(data, safe=""), quote_plus(data)):
        yield url
        yield re.sub("%..", lambda octet: octet[0].lower(), url)
    yield data.hex()
    yield data.hex().upper()
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + data).decode()
        # The characters at both ends that also depend on other data are left out.
        begin, end = -(-8 * offset // 6), 8 * (offset + len(data)) // 6
        for inner in (text[begin:end], text[begin:].rstrip("="), text[begin:]):
            yield inner
            yield inner.translate(_URL_SAFE)


def json_escaped(text: str) -> str:
    """Return a text as it is within JSON that is not limited to ASCII."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


_URL_SAFE = str.maketrans("+/", "-_")


def _bytes(text: str) -> bytes:
    """Encode as UTF-8; bytes of the environment that are not UTF-8 stay as they are."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")


MASK = "***"
"""Replaces a value without a name, or one whose name would reveal something."""

MIN_LENGTH = 4
"""A shorter value is masked only if it is a whole text: masking each `1` would destroy every result, and the
places of the masks would reveal the value."""

_MAX_LINE = 65_536
"""Characters of a streamed line that are searched for a pattern as a whole."""


class MaskRules(NamedTuple):
    """Masks by pattern, for matches in texts, and by key in lower case, for the values of mappings.

    Numbers, bytes, images and sound are not searched for patterns.
    """

    patterns: Mapping[re.Pattern[str], str] = MappingProxyType({})
    by_key: Mapping[str, str] = MappingProxyType({})

    def __bool__(self) -> bool:
        return bool(self.patterns or self.by_key)

    def __or__(self, other: MaskRules) -> MaskRules:
        return MaskRules({**self.patterns, **other.patterns}, {**self.by_key, **other.by_key})


class Redactor:
    """Masks secret values, plain or encoded, in texts, bytes and JSON values.

    `values` maps names to one or several values, which become `***NAME***`, or lists values without names.
    Empty values are ignored. Create one for a set of secrets and keep it: it is cheap if nothing is masked.
    The encodings are those of `encodings_of`. A value in another encoding is not masked, nor is one that
    a tool compresses, encrypts, splits, reverses or encodes twice.
    """

    def __init__(self, values: Iterable[str] | Mapping[str, str | tuple[str, ...]]) -> None:
        # A value is also masked without the blanks or the newline that it was read with. The longest comes
        # first: where one value contains another, the whole of it is masked.
        pairs = {(text, name) for name, value in _named(values) for text in (value, value.strip()) if text}
        secrets = sorted(pairs, key=lambda pair: (-len(pair[0]), pair))
        plain = [value for value, _ in secrets]
        self.whole_texts: dict[str, str] = {}
        """The masks of values that are masked only as whole texts."""
        self._masks: dict[str, str] = {}
        clues: set[str] = set()
        for value, name in secrets:
            mask = _mask(name, plain)
            if len(value) < MIN_LENGTH:
                self.whole_texts.setdefault(value, mask)
                continue
            found = set(encodings_of(value))
            for encoded in found:
                self._masks.setdefault(encoded, mask)
            clues |= {one for one in found if not any(part in one for part in found if part != one)}
        self._clues = list(clues)
        self._json_clues = [json_escaped(clue) for clue in clues]
        self.rules = MaskRules()
        self.longest = max(map(len, self._masks), default=0)
        """Characters of the longest encoding of a value."""

    def with_rules(self, rules: MaskRules) -> Redactor:
        """Return a redactor of the same secrets that masks by these rules too."""
        made = copy.copy(self)
        made.rules = rules
        return made

    @property
    def secrets(self) -> Redactor:
        """The same without the rules: the redactor for a part of a text, in which no pattern is complete."""
        return self.with_rules(MaskRules()) if self.rules else self

    def redact(self, value: Any) -> Any:
        """Return the value with every secret masked; the same object if there was nothing to mask.

        Searches lists, tuples and mappings, keys included. Objects of other types are left as they are.
        """
        if not (self._masks or self.whole_texts or self.rules):
            return value
        if value.__class__ in (dict, list) and self._is_clear(value):
            return value
        try:
            return self._redact(value)
        except RecursionError:  # Nested deeper than anybody reads: rather nothing than a secret.
            return MASK

    def redact_text(self, text: str) -> str:
        """Return the text with every secret masked; the same object if there was nothing to mask."""
        return self.whole_texts.get(text) or self.redact_part(text)

    def redact_part(self, text: str) -> str:
        """Return a part of a longer text, masked: a very short value is not looked for in it."""
        masked = self._without_secrets(text)
        for pattern, mask in self.rules.patterns.items():
            shown, count = pattern.subn(mask, masked)
            masked = shown if count else masked
        return masked

    def redact_start(self, text: str) -> tuple[str, str]:
        """Mask a text that may go on: return what can be shown by now, and the rest, which can not.

        The rest could be the beginning of a value. With patterns, it is at least the last line.
        """
        end, found = self._begun_at(text, 0), []
        if _has(self._clues, text):
            for match in self._search.finditer(text):
                if match.start() >= end:
                    break
                found.append(match)
                if match.end() > end:
                    end = self._begun_at(text, match.end())
        if self.rules.patterns:
            line = text.rfind("\n", 0, end) + 1
            for match in reversed(found):
                if match.start() < line < match.end():
                    line = text.rfind("\n", 0, match.start()) + 1
            end = line if len(text) - line <= _MAX_LINE else end
        return self.redact_part(text[:end]), text[end:]

    def _begun_at(self, text: str, position: int) -> int:
        """Return where a value could begin that is not complete yet; the text's length if nowhere."""
        size = len(text)
        for start in range(max(position, size - self.longest + 1), size):
            for encoded in self._by_first.get(text[start], ()):
                # The short comparison is for speed: it avoids most copies of the text's end.
                if (
                    len(encoded) > size - start
                    and encoded.startswith(text[start : start + 16])
                    and encoded.startswith(text[start:])
                ):
                    return start
        return size

    @cached_property
    def _by_first(self) -> dict[str, list[str]]:
        """The encodings of all values by their first character."""
        found: dict[str, list[str]] = {}
        for encoded in self._masks:
            found.setdefault(encoded[0], []).append(encoded)
        return found

    @cached_property
    def _search(self) -> re.Pattern[str]:
        """The expression that finds the values: the longest encoding first."""
        return re.compile("|".join(map(re.escape, sorted(self._masks, key=len, reverse=True))))

    def _without_secrets(self, text: str) -> str:
        if not _has(self._clues, text):
            return text
        return self._search.sub(lambda match: self._masks[match[0]], text)

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact_text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return self._redact_mapping(value)
        if isinstance(value, (list, tuple)):
            items = [self._redact(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, bytes):
            text = value.decode(errors="surrogateescape")
            masked = self.whole_texts.get(text) or self._without_secrets(text)
            return value if masked is text else masked.encode(errors="surrogateescape")
        if isinstance(value, (int, float)):
            text = repr(value)
            masked = self._without_secrets(text) if len(text) >= MIN_LENGTH else text
            return value if masked is text else masked
        return value

    def _redact_mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            new_key, new_item = self._redact(key), self._redact_member(value, key, item)
            changed = changed or new_key is not key or new_item is not item
            while new_key in out:  # A mask has made two keys equal.
                new_key = f"{new_key}*"
            out[new_key] = new_item
        return out if changed else value

    def _redact_member(self, block: dict[Any, Any], key: Any, item: Any) -> Any:
        if self.rules.by_key and isinstance(key, str) and key.lower() in self.rules.by_key:
            return self.rules.by_key[key.lower()]
        if isinstance(item, str) and self.rules.patterns:
            is_media = key == "data" and block.get("type") in ("image", "audio")
            if is_media or (key == "blob" and "uri" in block):
                return self._without_secrets(item)
        return self._redact(item)

    def is_clear(self, text: str) -> bool:
        """Return True if the JSON text of a value shows that there is nothing to mask in the value."""
        return not (self.whole_texts or self.rules or _has(self._json_clues, text))

    def _is_clear(self, value: Any) -> bool:
        """Check a JSON value at once, by its JSON text: much faster than checking each part."""
        try:
            return self.is_clear(orjson.dumps(value).decode())
        except TypeError:  # It has no JSON form, so each part is checked.
            return False


def _has(clues: Sequence[str], text: str) -> bool:
    for clue in clues:  # noqa: SIM110 - nearly every text comes by here, and `any` takes twice as long
        if clue in text:
            return True
    return False


def _named(values: Iterable[str] | Mapping[str, str | tuple[str, ...]]) -> list[tuple[str, str]]:
    if not isinstance(values, Mapping):
        return [("", value) for value in values]
    several = ((name, (one,) if isinstance(one, str) else one) for name, one in values.items())
    return [(name, value) for name, ones in several for value in ones]


def _mask(name: str, values: list[str]) -> str:
    """Return a mask that neither contains a value nor makes one up with the text beside it."""
    values = [value for value in values if len(value) >= MIN_LENGTH]
    if any("*" in value for value in values):
        return next((char for char in "█▒■" if not any(char in value for value in values)), "\ufffd") * 3
    mask = f"***{name}***" if name else MASK
    return MASK if any(value in mask for value in values) else mask


LOGGERS = (
    "pgqueuer",
    "toolcrib.calls",
    "toolcrib.core",
    "toolcrib.egress.proxy.dialer",
    "toolcrib.egress.proxy.server",
    "toolcrib.pods",
    "toolcrib.project.catalog.bundles",
    "toolcrib.project.catalog.reload",
    "toolcrib.project.control.store",
    "toolcrib.runs",
    "toolcrib.serve.http",
    "toolcrib.serve.mcp",
    "toolcrib.serve.rest",
    "toolcrib.state.drivers.notices",
    "toolcrib.state.outgoing.outbox",
    "toolcrib.tools",
)
"""The loggers that Toolcrib, and PgQueuer for it, write to."""

_STANDARD = frozenset(vars(logging.makeLogRecord({})))


class MaskingFilter(logging.Filter):
    """A filter that masks secrets in a record: message and arguments, exception, stack, `extra` fields.

    `redact` is `Redactor.redact` or a similar function. A logger's filters apply only to records logged on
    that very logger, so `install` adds this one to each of Toolcrib's. Add it to a handler to mask every
    record that the handler writes.
    """

    def __init__(self, redact: Callable[[Any], Any]) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record in place and return True."""
        try:
            message = record.getMessage()
        except Exception:  # The arguments do not fit the message, or cannot be formatted.
            message = f"{record.msg!r} {type(record.args).__name__}"
        record.msg, record.args = self._redact(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        record.exc_info = None  # Else a formatter could format the exception again, unmasked.
        record.exc_text = self._redact(record.exc_text)
        record.stack_info = self._redact(record.stack_info)
        for name, value in vars(record).items():
            if name not in _STANDARD:
                setattr(record, name, self._redact(value))
        return True

    def install(self) -> None:
        """Filter these loggers from now on."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def remove(self) -> None:
        """Undo `install`."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)


class StreamMasker:
    """Returns a stream's text as soon as it is safe to show, with every secret masked.

    The end of the text is kept back while it could be the beginning of a value: at most `longest` characters;
    with patterns, at least the last line. The output does not depend on the chunks. Without patterns it
    equals `Redactor.redact_text` of the whole; a pattern is searched in each line by itself.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.longest = redactor.longest
        """Characters that may be kept back."""
        self.pending = ""
        """The end of the text, which is kept back."""
        self._begun = False

    def feed(self, chunk: str) -> str:
        """Add text and return what can be shown by now."""
        text = self.pending + chunk
        if not self._begun and self._redactor.whole_texts and len(text) < MIN_LENGTH:
            self.pending = text  # It could be a very short value, which is masked as a whole text.
            return ""
        shown, self.pending = self._redactor.redact_start(text)
        self._begun = self._begun or self.pending != text
        return shown

    def flush(self) -> str:
        """Return the rest at the end of the stream."""
        text, begun, self.pending, self._begun = self.pending, self._begun, "", False
        return self._redactor.redact_part(text) if begun else self._redactor.redact_text(text)


class BytesMasker:
    """A `StreamMasker` for bytes: UTF-8, and whatever else a program writes."""

    def __init__(self, redactor: Redactor) -> None:
        self._masker = StreamMasker(redactor)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, chunk: bytes) -> bytes:
        """Add bytes and return what can be shown by now."""
        return self._masker.feed(self._decoder.decode(chunk)).encode(errors="surrogateescape")

    @property
    def kept_back(self) -> int:
        """The bytes that were fed last and are not in what was returned."""
        pending = self._masker.pending.encode(errors="surrogateescape")
        return len(pending) + len(self._decoder.getstate()[0])

    def flush(self) -> bytes:
        """Return the rest at the end of the stream."""
        last = self._masker.feed(self._decoder.decode(b"", True))
        self._decoder.reset()
        return (last + self._masker.flush()).encode(errors="surrogateescape")
