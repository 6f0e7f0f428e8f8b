r"""The encodings in which a secret value is found in texts.

| encoding | examples for the value `a/b"c` |
|---|---|
| escapes of JSON, shells, URLs and HTML, also nested | `a\/b\\\"c`, `a%2Fb%22c`, `a/b&quot;c`, `a/b\u0022c` |
| the same for each longer line of the value | |
| base64, standard and URL-safe, at any offset, with line breaks | `YS9iIm`, `EvYiJj`, `hL2IiY` |
| hexadecimal, with colons, with line breaks | `612f622263`, `61:2F:62:22:63` |

Each encoding of a value is a sequence of atoms: literals, and characters with several spellings. A whole text
is searched with one regular expression made of the atoms. At the end of a stream, the beginning of a match
must be found too; a regular expression cannot do that, so there the atoms are matched one by one.

No expression has a capturing group. Repetitions are possessive and bounded (16 backslashes are four levels of
escaping), so that no text makes a search slow and every encoding has a greatest length.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

_START_ATOMS = 4
"""Atoms in the quick check for the beginning of a match."""
_MIN_LINE = 8
"""Characters from which one line of a longer value is masked by itself."""
_MAX_BREAKS = 8
_BREAK = rf"[\r\n]{{0,{_MAX_BREAKS}}}+"
"""Line breaks within base64 or hexadecimal."""
_LONGEST_ESCAPE = 80
"""Characters of the longest escape: four bytes, each as `x` and two digits after 16 backslashes."""
_BASE64 = {"+": ("(?:[+-]|%2[bB])", "+-%"), "/": (r"(?:\\?[/_]|%2[fF])", "\\/_%")}
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a", "\0": "0"}
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}


class Atom(NamedTuple):
    """One step of an encoding: a literal, or one character with its spellings."""

    ways: tuple[str, ...]
    """Regular expressions; the text itself for a literal."""
    firsts: str
    """Every character that it can begin with."""
    longest: int
    literal: bool = False
    open: bool = False
    """True if more text may extend a match."""

    @property
    def pattern(self) -> str:
        """One regular expression for all spellings."""
        return self.ways[0] if len(self.ways) == 1 else f"(?:{'|'.join(self.ways)})"


class Encoding:
    """One value in one encoding."""

    def __init__(self, atoms: list[Atom]) -> None:
        self._atoms = atoms
        self.pattern = "".join(atom.pattern for atom in atoms)
        self.longest = sum(atom.longest for atom in atoms)
        """Characters of the longest match."""
        self.firsts = atoms[0].firsts
        """Every character that a match can begin with."""
        self.start = "".join(atom.pattern for atom in atoms[:_START_ATOMS])
        """The beginning of a match, as a regular expression."""
        self.start_longest = sum(atom.longest for atom in atoms[:_START_ATOMS])

    def may_begin(self, text: str, start: int) -> bool:
        """Return True if more text could complete or extend a match that begins at `start`.

        May return True too often, because an unfinished atom is not checked closely.
        """
        if text[start] not in self.firsts:
            return False
        size = len(text)
        ends = {start}
        for atom in self._atoms:
            reached: set[int] = set()
            for end in ends:
                if end == size or _unfinished(atom, text, end):
                    return True
                if atom.literal:
                    if text.startswith(atom.ways[0], end):
                        reached.add(end + len(atom.ways[0]))
                else:
                    found = (_compiled(way).match(text, end) for way in atom.ways)
                    reached.update(match.end() for match in found if match is not None)
            ends = reached
            if not ends:
                return False
        # The padding of Base64 may follow, as `=` or as `%3D`.
        return self._atoms[-1].open and any(text[end:] in ("", "%", "%3") for end in ends)


def encodings_of(value: str) -> Iterator[Encoding]:
    """Yield every encoding that a value is searched in."""
    for texts, atoms in _ENCODERS:
        for text in texts(value):
            yield Encoding(atoms(text))


def clues_of(value: str) -> Iterator[str]:
    """Yield texts of which one is part of every match, apart from line breaks: cheap to search first."""
    for texts, atoms in _ENCODERS:
        for text in texts(value):
            fixed = [text] if atoms is _hex_atoms else re.findall(r"[A-Za-z0-9]+", text)
            yield max(fixed, key=len, default="")


def _lines_of(value: str) -> list[str]:
    """Split a value into the lines that are masked by themselves, longest first; `\\n` can mean a line
    break."""
    lines = [line.strip() for line in re.split(r"\r?\n|\\n", value)]
    if len(lines) == 1:
        return []
    long = [line for line in lines if len(line) >= _MIN_LINE and not line.startswith("-----")]
    return sorted(long, key=len, reverse=True)


def _base64_of(value: str) -> Iterator[str]:
    """Yield the base64 characters that depend on the value alone, for each offset within three bytes.

    A `=` follows them if the next character has some bits of the value too.
    """
    data = _bytes(value)
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + data).decode()
        count, bits = divmod(8 * (offset + len(data)), 6)
        # A character at either end that also depends on bits of other bytes is left out.
        yield text[-(-8 * offset // 6) : count] + ("=" if bits else "")


def _hex_of(value: str) -> Iterator[str]:
    data = _bytes(value)
    for digits in (data.hex(), data.hex(":")):
        yield digits
        yield digits.upper()


def _escaped(value: str) -> list[Atom]:
    """Spell each special character as itself or as any of its escapes."""
    atoms: list[Atom] = []
    slashes = 1
    for run in re.findall(r"[A-Za-z0-9]+|\\+|.", value, re.DOTALL):
        if run[0] == "\\":
            count = len(run)
            ways = (rf"\\{{{count},{16 * count}}}+", rf"(?:%5[cC]){{{count}}}")
            atoms.append(Atom(ways, "\\%", 16 * count))
            slashes = 0  # These include the backslashes of the next character's escape.
            continue
        if run.isascii() and run.isalnum():
            atoms.append(Atom((run,), run[0], len(run), literal=True))
        else:
            atoms.append(_escapes_of(run, slashes))
        slashes = 1
    return atoms


def _escapes_of(char: str, slashes: int) -> Atom:
    code = ord(char)
    units = re.findall("....", char.encode("utf-16-be", "surrogatepass").hex())
    octets = [f"{byte:02x}" for byte in _bytes(char)]
    coded = [_numbered("u", units), _numbered("U", [f"{code:08x}"]), _numbered("x", octets)]
    if 127 < code < 256:
        coded.append(_numbered("x", [f"{code:02x}"]))
    if char in _LETTERS:
        coded.append(_LETTERS[char])
    entity = f"{_ENTITIES[char]}|" if char in _ENTITIES else ""
    ways = [
        rf"\\{{0,16}}+{re.escape(char)}",
        rf"\\{{{slashes},16}}+(?:{'|'.join(coded)})",
        "".join("%" + _either_case(octet) for octet in octets),
        f"&(?:{entity}#0{{0,16}}+{code}|#[xX]0{{0,16}}+{_either_case(f'{code:x}')});",
    ]
    if char == " ":
        ways.append(r"\+")
    elif char == "\n":
        ways += [r"\r\n", rf"\\{{{slashes},16}}+r\\{{1,16}}+n", "%0[dD]%0[aA]"]
    return Atom(tuple(ways), char + "\\%&+\r", _LONGEST_ESCAPE)


def _numbered(letter: str, numbers: list[str]) -> str:
    """Return the expression for one character, written as numbers that each follow a backslash."""
    return r"\\{1,16}+".join(letter + _either_case(number) for number in numbers)


def _base64_atoms(text: str) -> list[Atom]:
    """Allow line breaks, the URL-safe alphabet, a last character shared with other data, and padding."""
    atoms = [
        Atom((_BREAK * bool(n) + way,), firsts, 3 + _MAX_BREAKS)
        for n, (way, firsts) in enumerate(_BASE64.get(char, (char, char)) for char in text.rstrip("="))
    ]
    if not text.endswith("="):  # The next character belongs to other data, perhaps to another secret.
        return atoms
    end = f"{_BREAK}[A-Za-z0-9+/_-]?(?:=|%3[dD]){{0,2}}"
    return [*atoms, Atom((end,), "", _MAX_BREAKS + 7, open=True)]


def _hex_atoms(text: str) -> list[Atom]:
    return [Atom((_BREAK * bool(n) + char,), char, 1 + _MAX_BREAKS) for n, char in enumerate(text)]


_ENCODERS: tuple[tuple[Callable[[str], list[str] | Iterator[str]], Callable[[str], list[Atom]]], ...] = (
    (lambda value: [value], _escaped),
    (_lines_of, _escaped),
    (_base64_of, _base64_atoms),
    (_hex_of, _hex_atoms),
)
"""For each encoding: the texts that it makes of a value, and the atoms of such a text."""


def _unfinished(atom: Atom, text: str, end: int) -> bool:
    """Return True if the rest of the text could be the beginning of this atom."""
    left = len(text) - end
    if left >= atom.longest:
        return False
    if atom.literal:
        return text.endswith(atom.ways[0][:left])
    return _begun(text, end) is not None


# The beginning of an escape or an entity that the end of the text cuts off: `\u00`, `%4`, `&#x`.
_begun = re.compile(r"[\r\n]*(?:[\\%&][\\%&#;0-9A-Za-z\r\n]*)?\Z").match


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _either_case(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _bytes(text: str) -> bytes:
    """Encode as UTF-8; bytes of the environment that are not UTF-8 stay as they are."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
