"""Where secret values come from, and how they are kept out of everything that is shown or written down.

Masking works on finished values. A secret that is split across the chunks of a stream needs a masker that
holds back the end of each chunk; that one will stand here too.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolcrib.errors import SecretMissing
from toolcrib.spec import Permissions, SecretSource

__all__ = ["MASK", "MIN_LENGTH", "EnvironmentSecrets", "Redactor", "resolve"]

MASK = "***"
"""Stands for a value without a name, and where a name would give something away."""

MIN_LENGTH = 4
"""A shorter value is masked only where it is a whole text: masking each `1` would shred every result, and
where the masks stand would give the value away."""

_MIN_LINE = 8
"""A line of a value of several lines is masked by itself from this length on."""


class EnvironmentSecrets:
    """A secret source over environment variables: those of this process, or a given mapping."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = os.environ if values is None else values

    def get(self, name: str) -> str | None:
        """The variable's value, or None when it is not set or empty."""
        return self._values.get(name) or None


def resolve(permissions: Permissions, source: SecretSource) -> dict[str, str]:
    """The declared secrets that have a value, by name; an optional one that has none is left out.

    Raises SecretMissing, naming every required secret without a value: nothing may run then.
    """
    found: dict[str, str] = {}
    missing: list[str] = []
    for secret in permissions.secrets:
        value = source.get(secret.name)
        if value:
            found[secret.name] = value
        elif secret.required:
            missing.append(secret.name)
    if missing:
        import shlex

        what = "Secrets {} are not set." if len(missing) > 1 else "Secret {} is not set."
        raise SecretMissing(
            what.format(", ".join(missing)),
            hint="Set it in the environment that Toolcrib runs in, and start it again: "
            + " ".join(f"export {shlex.quote(name)}=…" for name in missing),
            details={"missing": missing},
        )
    return found


class Redactor:
    """Masks secret values, plain or in a common encoding, in texts, bytes and JSON values.

    `values` maps names to values (`***NAME***` takes their place) or holds the values alone (`***`). Empty
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
        "_masks",
        "_parts",
        "_pattern",
        "_plain",
        "_whole",
        "unprotected",
    )

    unprotected: tuple[str, ...]
    """Names of values too short to be found inside a text (`***` for one without a name)."""

    def __init__(self, values: Iterable[str] | Mapping[str, str]) -> None:
        named = values.items() if isinstance(values, Mapping) else (("", value) for value in values)
        # A value is also known without the blanks or the newline that it was read with. The longest comes
        # first: where one value contains another, the whole of it is masked.
        pairs = {(form, name) for name, value in named for form in (value, value.strip()) if form}
        secrets = sorted(pairs, key=lambda s: (-len(s[0]), s))
        long = [value for value, _ in secrets if len(value) >= MIN_LENGTH]
        short = [(value, _mask(name, long)) for value, name in secrets if len(value) < MIN_LENGTH]
        clues = [clue for value in long for clue in _clues_of(value)]
        self._active = bool(secrets)
        self._whole = dict(short)
        self._masks = [_mask(name, long) for value, name in secrets if len(value) >= MIN_LENGTH]
        self._parts = long
        self._clues = [clue for clue in dict.fromkeys(clues) if clue]
        self._always = "" in clues
        numbers = any(_numeric(value) for value in long)
        self._plain = {bool, type(None)} if numbers else {bool, type(None), int, float}
        self._pattern: re.Pattern[str] | None = None
        self.unprotected = tuple(sorted({name or MASK for value, name in secrets if len(value) < MIN_LENGTH}))

    def redact(self, value: Any) -> Any:
        """The value with every secret masked; the very same object where there was nothing to mask.

        Goes through lists, tuples and mappings, keys included. Objects of other types are left as they are.
        """
        if not self._active or value is None:
            return value
        try:
            return self._redact(value)
        except RecursionError:  # Nested deeper than anybody reads; better nothing than a secret.
            return MASK

    def redact_text(self, text: str) -> str:
        """The text with every secret masked; the very same object where there was nothing to mask."""
        if text in self._whole:
            return self._whole[text]
        if not self._suspect(text):
            return text
        if self._pattern is None:
            self._pattern = re.compile("|".join(f"({'|'.join(_forms_of(value))})" for value in self._parts))
        masked, count = self._pattern.subn(self._replace, text)
        if not count:
            return text
        # What a mask is put between could make up a value together with it.
        return MASK if self._pattern.search(masked) else masked

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
            while new_key in out:  # Two keys that a mask has made equal.
                new_key = f"{new_key}*"
            out[new_key] = new_item
        return out if changed else value

    def _suspect(self, text: str) -> bool:
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

    def _replace(self, match: re.Match[str]) -> str:
        assert match.lastindex is not None
        return self._masks[match.lastindex - 1]


def _mask(name: str, values: list[str]) -> str:
    mask = f"***{name}***" if name else MASK
    return MASK if any(value in mask for value in values) else mask


def _numeric(value: str) -> bool:
    return re.fullmatch(r"[0-9.eE+-]+", value) is not None


# Forms of a value, as regular expressions. They hold no capturing group. Runs of backslashes are possessive
# and bounded (16 are four levels of escaping), so that no text makes a search slow.


def _lines_of(value: str) -> list[str]:
    """The lines that are masked by themselves (in the environment, `\\n` often stands for a line break)."""
    lines = [line.strip() for line in re.split(r"\r?\n|\\n", value)]
    if len(lines) == 1:
        return []
    return [line for line in lines if len(line) >= _MIN_LINE and not line.startswith("-----")]


def _clues_of(value: str) -> Iterator[str]:
    """Texts of which one stands in whatever holds the value in any form (line breaks left out)."""
    yield _longest_word(value)
    for line in _lines_of(value):
        yield _longest_word(line)
    for core, _ in _base64_cores(value):
        yield _longest_word(core)
    digits = _bytes(value).hex()
    yield digits
    yield digits.upper()


def _forms_of(value: str) -> Iterator[str]:
    yield _escaped(value)
    for line in sorted(_lines_of(value), key=len, reverse=True):
        yield _escaped(line)
    for core, partial in _base64_cores(value):
        tail = f"{_BREAK}[A-Za-z0-9+/_-]?" if partial else ""
        yield _BREAK.join(_BASE64.get(char, char) for char in core) + tail + "(?:=|%3[dD]){0,2}"
    yield _BREAK.join(_either_case(digit) for digit in _bytes(value).hex())


_BREAK = r"[\r\n]*+"
_BASE64 = {"+": "(?:[+-]|%2[bB])", "/": r"(?:\\?[/_]|%2[fF])"}
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a", "\0": "0"}
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}


def _longest_word(text: str) -> str:
    """The longest run of characters that no encoding of texts changes."""
    return max(re.findall(r"[A-Za-z0-9]+", text), key=len, default="")


def _base64_cores(value: str) -> Iterator[tuple[str, bool]]:
    """The base64 characters that depend on the value alone, for each offset within three bytes.

    The flag says whether one more character depends on it in part.
    """
    data = _bytes(value)
    for offset in range(3):
        bits = 8 * (offset + len(data))
        text = base64.b64encode(bytes(offset) + data).decode()
        yield text[-(-8 * offset // 6) : bits // 6], bits % 6 != 0


def _escaped(value: str) -> str:
    """The value with each special character as itself or in any of its escapes."""
    parts: list[str] = []
    slashes = 1
    for run in re.findall(r"[A-Za-z0-9]+|\\+|.", value, re.DOTALL):
        if run[0] == "\\":
            count = len(run)
            parts.append(rf"(?:\\{{{count},{16 * count}}}+|(?:%5[cC]){{{count}}})")
            slashes = 0  # Those of the next character's escape were taken with these.
            continue
        parts.append(run if run.isascii() and run.isalnum() else _escapes_of(run, slashes))
        slashes = 1
    return "".join(parts)


def _escapes_of(char: str, slashes: int) -> str:
    code = ord(char)
    units = char.encode("utf-16-be", "surrogatepass").hex()
    coded = [r"\\{1,16}+".join("u" + _either_case(units[i : i + 4]) for i in range(0, len(units), 4))]
    coded.append("U" + _either_case(f"{code:08x}"))
    if code < 256:
        coded.append("x" + _either_case(f"{code:02x}"))
    if char in _LETTERS:
        coded.append(_LETTERS[char])
    entity = f"{_ENTITIES[char]}|" if char in _ENTITIES else ""
    forms = [
        rf"\\{{0,16}}+{re.escape(char)}",
        rf"\\{{{slashes},16}}+(?:{'|'.join(coded)})",
        "".join(f"%{_either_case(f'{byte:02x}')}" for byte in _bytes(char)),
        f"&(?:{entity}#0*+{code}|#[xX]0*+{_either_case(f'{code:x}')});",
    ]
    if char == " ":
        forms.append(r"\+")
    elif char == "\n":
        forms += [r"\r\n", rf"\\{{{slashes},16}}+r\\{{1,16}}+n", "%0[dD]%0[aA]"]
    return f"(?:{'|'.join(forms)})"


def _either_case(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _bytes(text: str) -> bytes:
    """As UTF-8; bytes of the environment that are none stay what they are."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
