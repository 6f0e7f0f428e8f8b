"""The words of a text, as they are indexed and searched."""

from __future__ import annotations

import re
import unicodedata

# `getUser` has the first kind of border, `HTTPServer` the second.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Thai, Lao, Japanese, Chinese: written without spaces between words."""
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_ASCII = [chr(byte) if byte < 128 and chr(byte).isalnum() else " " for byte in range(256)]
_LOWER = "".join(_ASCII).lower().encode()
_SHAPE = "".join("A" if one.isupper() else " " if one == " " else "a" for one in _ASCII).encode()
"""The bytes of ASCII as words in lower case, and by what makes a border: `HTTPServer` is `AAAAAaaaaa`."""


def words_of(text: str) -> list[str]:
    """Return the words of a text, without case and accents; `camelCase` and `snake_case` are two each.

    Text that is written without spaces counts as its pairs of neighbouring characters.
    """
    runs = _runs(text)
    return runs if text.isascii() else [word for run in runs for word in _pairs(run)]


def indexed_words(text: str) -> list[str]:
    """Return the words of a text, and those that a search for one character needs.

    A search finds beginnings of words, so only the last character of an unspaced text begins no pair.
    """
    runs = _runs(text)
    if text.isascii():
        return runs
    found = []
    for run in runs:
        found += _pairs(run)
        if len(run) > 1 and _IS_UNSPACED.match(run):
            found.append(run[-1])
    return found


def _runs(text: str) -> list[str]:
    if text.isascii():  # Of ten thousand long descriptions regular expressions would take ten seconds.
        raw = text.encode()
        shape = raw.translate(_SHAPE)
        if b"aA" in shape or b"AAa" in shape:
            raw = _HUMP.sub(" ", text).encode()
        return raw.translate(_LOWER).decode().split()
    # NFKD separates letters from their accents, which are then left out. NFC puts together again what else it
    # took apart, such as Korean syllables.
    apart = unicodedata.normalize("NFKD", text)
    text = unicodedata.normalize("NFC", "".join(c for c in apart if not unicodedata.combining(c)))
    return _WORD.findall(_HUMP.sub(" ", text).casefold())


def _pairs(run: str) -> list[str]:
    if len(run) < 2 or not _IS_UNSPACED.match(run):
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]
