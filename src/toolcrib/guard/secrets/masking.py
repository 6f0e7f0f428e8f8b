"""Mask secret values in everything that is shown or recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
        self._pattern: re.Pattern[str] | None = None
        self._encodings: list[list[Encoding]] | None = None

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

    @property
    def encodings(self) -> list[list[Encoding]]:
        """For each value that is masked inside texts, its encodings."""
        if self._encodings is None:
            self._encodings = [list(encodings_of(value)) for value in self._long]
        return self._encodings

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression that finds the values, with one group for each."""
        if self._pattern is None:
            values = ("|".join(one.pattern for one in encodings) for encodings in self.encodings)
            self._pattern = re.compile("|".join(f"({value})" for value in values))
        return self._pattern

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
