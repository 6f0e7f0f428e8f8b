"""Keeps secret values out of everything that is shown or written down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from toolcrib.guard.secrets.encodings import Form, clues_of, forms_of

__all__ = ["MASK", "MIN_LENGTH", "Redactor"]

MASK = "***"
"""Stands for a value without a name, and where a name would give something away."""

MIN_LENGTH = 4
"""A shorter value is masked only where it is a whole text: masking each `1` would shred every result, and
where the masks stand would give the value away."""


class Redactor:
    """Masks secret values, plain or in a common encoding, in texts, bytes and JSON values.

    `values` maps names to a value or several (`***NAME***` takes their place) or holds them alone. Empty
    values are ignored. Build one for a set of secrets and keep it: where nothing is to be masked it is cheap.

    Masked are: the value itself; each longer line of a value of several lines; base64 (standard, URL-safe, at
    any offset within what was encoded, with line breaks); hexadecimal; percent-encoding; JSON and backslash
    escapes, also of several levels; HTML entities. Not masked are values that a tool compresses, encrypts,
    splits, reverses or encodes twice.
    """

    __slots__ = (
        "_active",
        "_always",
        "_clues",
        "_forms",
        "_masks",
        "_parts",
        "_pattern",
        "_plain",
        "_whole",
        "unprotected",
    )

    unprotected: tuple[str, ...]
    """Names of values too short to be found inside a text (`***` for one without a name)."""

    def __init__(self, values: Iterable[str] | Mapping[str, str | tuple[str, ...]]) -> None:
        named = _named(values) if isinstance(values, Mapping) else [("", value) for value in values]
        # A value is also known without the blanks or the newline that it was read with. The longest comes
        # first: where one value contains another, the whole of it is masked.
        pairs = {(form, name) for name, value in named for form in (value, value.strip()) if form}
        secrets = sorted(pairs, key=lambda s: (-len(s[0]), s))
        long = [value for value, _ in secrets if len(value) >= MIN_LENGTH]
        short = [(value, _mask(name, long)) for value, name in secrets if len(value) < MIN_LENGTH]
        clues = [clue for value in long for clue in clues_of(value)]
        self._active = bool(secrets)
        self._whole = dict(short)
        self._masks = [_mask(name, long) for value, name in secrets if len(value) >= MIN_LENGTH]
        self._parts = long
        self._clues = [clue for clue in dict.fromkeys(clues) if clue]
        self._always = "" in clues
        numbers = any(_numeric(value) for value in long)
        self._plain = {bool, type(None)} if numbers else {bool, type(None), int, float}
        self._pattern: re.Pattern[str] | None = None
        self._forms: list[list[Form]] | None = None
        self.unprotected = tuple(sorted({name or MASK for value, name in secrets if len(value) < MIN_LENGTH}))

    def redact(self, value: Any) -> Any:
        """The value with every secret masked; the very same object where there was nothing to mask.

        Goes through lists, tuples and mappings, keys included. Objects of other types are left as they are.
        """
        kind = value.__class__
        if kind in self._plain or not self._active:
            return value
        if (kind is dict or kind is list) and self._harmless(value):
            return value
        try:
            return self._redact(value)
        except RecursionError:  # Nested deeper than anybody reads; better nothing than a secret.
            return MASK

    def redact_text(self, text: str) -> str:
        """The text with every secret masked; the very same object where there was nothing to mask."""
        if text in self._whole:
            return self._whole[text]
        if not self.suspect(text):
            return text
        pattern = self.pattern
        masked, count = pattern.subn(self.replace, text)
        if not count:
            return text
        # What a mask is put between could make up a value together with it.
        return MASK if pattern.search(masked) else masked

    # What a masker of streams builds on.

    @property
    def forms(self) -> list[list[Form]]:
        """For each value that is found inside texts, the forms that it is looked for in."""
        if self._forms is None:
            self._forms = [list(forms_of(value)) for value in self._parts]
        return self._forms

    @property
    def pattern(self) -> re.Pattern[str]:
        """What finds them, one group a value."""
        if self._pattern is None:
            values = ("|".join(form.pattern for form in forms) for forms in self.forms)
            self._pattern = re.compile("|".join(f"({value})" for value in values))
        return self._pattern

    @property
    def whole(self) -> Mapping[str, str]:
        """The masks of values that are masked only where they are a whole text."""
        return self._whole

    @property
    def fallback(self) -> str:
        """The mask where a value contains what masks are made of; empty where none does."""
        if not any("*" in value for value in self._parts):
            return ""
        return next((char for char in "█▒■" if not any(char in value for value in self._parts)), "�") * 3

    def replace(self, match: re.Match[str]) -> str:
        """The mask for what was found."""
        assert match.lastindex is not None
        return self._masks[match.lastindex - 1]

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

    def _harmless(self, value: Any) -> bool:
        """Whether no text in a JSON value is suspect, seen at once in its JSON: much faster than a walk."""
        try:
            return self.clears(orjson.dumps(value).decode())
        except TypeError:  # What has no JSON form is looked at piece by piece.
            return False

    def clears(self, text: str) -> bool:
        """Whether there is nothing to mask in what a JSON text stands for, or a line that holds such texts.

        A clue is made of letters and digits, which JSON writes as they are. False where that tells nothing.
        """
        if self._whole or self._always or int not in self._plain:
            return False
        for clue in self._clues:
            if clue in text:
                # Without escapes each text stands there as it is, and is searched with all the others.
                return "\\" not in text and self.pattern.search(text) is None
        return "\\n" not in text

    def _redact_mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            new_key, new_item = self._redact(key), self._redact(item)
            changed = changed or new_key is not key or new_item is not item
            while new_key in out:  # Two keys that a mask has made equal.
                new_key = f"{new_key}*"
            out[new_key] = new_item
        return out if changed else value

    def suspect(self, text: str) -> bool:
        """Whether the pattern is worth trying: a cheap look for what every form of a value contains."""
        if self._always:
            return True
        for clue in self._clues:
            if clue in text:
                return True
        if "\n" not in text:
            return False
        joined = text.replace("\n", "").replace("\r", "")  # Line breaks within base64 or hexadecimal.
        return any(clue in joined for clue in self._clues)


def _named(values: Mapping[str, str | tuple[str, ...]]) -> list[tuple[str, str]]:
    several = ((name, (one,) if isinstance(one, str) else one) for name, one in values.items())
    return [(name, value) for name, ones in several for value in ones]


def _mask(name: str, values: list[str]) -> str:
    mask = f"***{name}***" if name else MASK
    return MASK if any(value in mask for value in values) else mask


def _numeric(value: str) -> bool:
    return re.fullmatch(r"[0-9.eE+-]+", value) is not None
