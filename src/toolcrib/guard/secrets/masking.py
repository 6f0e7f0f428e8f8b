"""Mask secret values in everything that is shown or recorded: values, streams, and records of `logging`."""

from __future__ import annotations

import codecs
import logging
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import orjson

from toolcrib.guard.secrets.encodings import Encoding, clues_of, encodings_of

MASK = "***"
"""Replaces a value without a name, or one whose name would reveal something."""

MIN_LENGTH = 4
"""A shorter value is masked only if it is a whole text: masking each `1` would destroy every result, and the
places of the masks would reveal the value."""


class Redactor:
    """Masks secret values, plain or encoded, in texts, bytes and JSON values.

    `values` maps names to one or several values, which become `***NAME***`, or lists values without names.
    Empty values are ignored. Create one for a set of secrets and keep it: it is cheap if nothing is masked.
    The encodings are those of `secrets.encodings`. Values that a tool compresses, encrypts, splits, reverses
    or encodes twice are not masked.
    """

    def __init__(self, values: Iterable[str] | Mapping[str, str | tuple[str, ...]]) -> None:
        # A value is also masked without the blanks or the newline that it was read with. The longest comes
        # first: where one value contains another, the whole of it is masked.
        pairs = {(text, name) for name, value in _named(values) for text in (value, value.strip()) if text}
        secrets = sorted(pairs, key=lambda pair: (-len(pair[0]), pair))
        self._long = [value for value, _ in secrets if len(value) >= MIN_LENGTH]
        self._masks = [_mask(name, self._long) for _, name in secrets][: len(self._long)]
        self.whole_texts: Mapping[str, str] = {
            value: _mask(name, self._long) for value, name in secrets if len(value) < MIN_LENGTH
        }
        """The masks of values that are masked only as whole texts."""
        clues = dict.fromkeys(clue for value in self._long for clue in clues_of(value))
        self._always = "" in clues
        self._clues = [clue for clue in clues if clue]
        numbers = any(re.fullmatch(r"[0-9.eE+-]+", value) for value in self._long)
        self._plain = {bool, type(None)} if numbers else {bool, type(None), int, float}

    def redact(self, value: Any) -> Any:
        """Return the value with every secret masked; the same object if there was nothing to mask.

        Searches lists, tuples and mappings, keys included. Objects of other types are left as they are.
        """
        kind = value.__class__
        if kind in self._plain or not (self._long or self.whole_texts):
            return value
        if (kind is dict or kind is list) and self._is_clear(value):
            return value
        try:
            return self._redact(value)
        except RecursionError:  # Nested deeper than anybody reads: rather nothing than a secret.
            return MASK

    def redact_text(self, text: str) -> str:
        """Return the text with every secret masked; the same object if there was nothing to mask."""
        if text in self.whole_texts:
            return self.whole_texts[text]
        if not self.is_suspect(text):
            return text
        masked, count = self.pattern.subn(self.mask_of, text)
        if not count:
            return text
        # A mask and the text beside it could form a value together.
        return MASK if self.pattern.search(masked) else masked

    def clears(self, text: str) -> bool:
        """Return True if a JSON text, or a line that contains such texts, certainly has no secret in it.

        A clue consists of letters and digits, which JSON writes as they are.
        """
        if self.whole_texts or self._always or int not in self._plain:
            return False
        for clue in self._clues:
            if clue in text:
                # Without escapes each text is there as it is, and all are searched at once.
                return "\\" not in text and self.pattern.search(text) is None
        return "\\n" not in text

    # For the masker of streams.

    @cached_property
    def encodings(self) -> list[list[Encoding]]:
        """For each value that is masked inside texts, its encodings."""
        return [list(encodings_of(value)) for value in self._long]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression that finds the values, with one group for each."""
        values = ("|".join(one.pattern for one in encodings) for encodings in self.encodings)
        return re.compile("|".join(f"({value})" for value in values))

    @property
    def fallback(self) -> str:
        """The mask to use if a value contains `*`; empty if none does."""
        if not any("*" in value for value in self._long):
            return ""
        return next((char for char in "█▒■" if not any(char in value for value in self._long)), "�") * 3

    def mask_of(self, match: re.Match[str]) -> str:
        """Return the mask for what was found."""
        assert match.lastindex is not None
        return self._masks[match.lastindex - 1]

    def is_suspect(self, text: str) -> bool:
        """Return True if the pattern must be tried: the text contains a clue to some encoding of a value."""
        if self._always:
            return True
        for clue in self._clues:
            if clue in text:
                return True
        if "\n" not in text:
            return False
        joined = text.replace("\n", "").replace("\r", "")  # Line breaks within base64 or hexadecimal.
        return any(clue in joined for clue in self._clues)

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact_text(value)
        if value.__class__ in self._plain:
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
            masked = self.redact_text(text)
            return value if masked is text else masked.encode(errors="surrogateescape")
        if isinstance(value, (int, float)):
            text = repr(value)
            masked = self.redact_text(text) if len(text) >= MIN_LENGTH else text
            return value if masked is text else masked
        return value

    def _redact_mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            new_key, new_item = self._redact(key), self._redact(item)
            changed = changed or new_key is not key or new_item is not item
            while new_key in out:  # A mask has made two keys equal.
                new_key = f"{new_key}*"
            out[new_key] = new_item
        return out if changed else value

    def _is_clear(self, value: Any) -> bool:
        """Check a JSON value at once, by its JSON text: much faster than checking each part."""
        try:
            return self.clears(orjson.dumps(value).decode())
        except TypeError:  # It has no JSON form, so each part is checked.
            return False


def _named(values: Iterable[str] | Mapping[str, str | tuple[str, ...]]) -> list[tuple[str, str]]:
    if not isinstance(values, Mapping):
        return [("", value) for value in values]
    several = ((name, (one,) if isinstance(one, str) else one) for name, one in values.items())
    return [(name, value) for name, ones in several for value in ones]


def _mask(name: str, values: list[str]) -> str:
    mask = f"***{name}***" if name else MASK
    return MASK if any(value in mask for value in values) else mask


LOGGERS = (
    "pgqueuer",
    "toolcrib.calls",
    "toolcrib.core",
    "toolcrib.egress.proxy.dialer",
    "toolcrib.egress.proxy.server",
    "toolcrib.project.catalog.bundles",
    "toolcrib.project.catalog.reload",
    "toolcrib.runs",
    "toolcrib.serve.http",
    "toolcrib.serve.mcp",
    "toolcrib.serve.rest",
    "toolcrib.state.outbox",
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

    The end of the text is kept back while it could be the beginning of a value in any encoding: at most
    `longest` characters. The output does not depend on the chunks, and equals `Redactor.redact_text` of the
    whole, with one exception: a value that contains `*` has another mask here, because a mask that was
    returned cannot be taken back.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._encodings = [one for encodings in redactor.encodings for one in encodings]
        self.longest = max((one.longest for one in self._encodings), default=0)
        """Characters that may be kept back."""
        starts = "|".join(dict.fromkeys(one.start for one in self._encodings))
        firsts = "".join(sorted(set("".join(one.firsts for one in self._encodings))))
        self._start = re.compile(f"(?={starts})") if starts else None
        self._first = re.compile(f"[{re.escape(firsts)}]" if firsts else r"(?!)")
        self._start_longest = max((one.start_longest for one in self._encodings), default=0)
        self._mask = redactor.fallback
        self.pending = ""
        """The end of the text, which is kept back."""
        self._begun = False

    def feed(self, chunk: str) -> str:
        """Add text and return what can be shown by now."""
        text = self.pending + chunk
        if not self._begun and self._redactor.whole_texts and len(text) < MIN_LENGTH:
            self.pending = text  # It could be a very short value, which is masked as a whole text.
            return ""
        return self._release(text, self._beginning(text, 0))

    def flush(self) -> str:
        """Return the rest at the end of the stream."""
        text, self.pending = self.pending, ""
        if not self._begun and text in self._redactor.whole_texts:
            return self._redactor.whole_texts[text]
        shown = self._release(text, len(text))
        self._begun = False
        return shown

    def _release(self, text: str, open_at: int) -> str:
        """Mask the text up to where a value could begin, and keep the rest."""
        shown: list[str] = []
        position, final = 0, open_at == len(text)
        pattern = self._redactor.pattern if self._redactor.is_suspect(text) else None
        while pattern is not None:
            found = pattern.search(text, position)
            if found is None or found.start() >= open_at:
                break
            shown += [text[position : found.start()], self._mask or self._redactor.mask_of(found)]
            position = found.end()
            # A match reached into what was to be kept back: the next beginning is looked for behind it.
            if position > open_at:
                open_at = len(text) if final else self._beginning(text, position)
        shown.append(text[position:open_at])
        self.pending = text[open_at:]
        self._begun = self._begun or open_at > 0
        return "".join(shown)

    def _beginning(self, text: str, position: int) -> int:
        """Return where a value could begin that is not complete yet; the text's length if nowhere."""
        if self._start is None:
            return len(text)
        size = len(text)
        near = max(position, size - self._start_longest)  # From here on even a start may be incomplete.
        for expression, begin, end in (
            (self._start, max(position, size - self.longest), near),
            (self._first, near, size),
        ):
            for candidate in expression.finditer(text, begin):
                start = candidate.start()
                if start >= end:
                    break
                if any(one.may_begin(text, start) for one in self._encodings):
                    return start
        return size


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
