"""The forms in which a secret value turns up in texts, as regular expressions taken apart into atoms.

A whole text is searched with the expression of all forms. A stream is searched as well for what could be the
beginning of a form at its end, and an expression cannot be asked that; its atoms can, one after the other.

No expression holds a capturing group. Runs are possessive and bounded (16 backslashes are four levels of
escaping), so that no text makes a search slow and every form has a greatest length.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

__all__ = ["Form", "clues_of", "forms_of"]

_START = 4
"""Atoms that the quick look for a beginning is made of."""

_MIN_LINE = 8
"""A line of a value of several lines is masked by itself from this length on."""


class Atom(NamedTuple):
    """One step of a form: a literal, or the ways in which one character may be written."""

    ways: tuple[str, ...]
    """Regular expressions; a literal's is the text itself."""
    firsts: str
    """Every character that it can begin with."""
    longest: int
    literal: bool = False
    open: bool = False
    """Whether it may match more if more comes, though it matches already."""

    @property
    def pattern(self) -> str:
        """All ways in one expression."""
        return self.ways[0] if len(self.ways) == 1 else f"(?:{'|'.join(self.ways)})"


class Form:
    """One form of one value: its atoms in a row."""

    __slots__ = ("_atoms", "firsts", "longest", "pattern", "start", "start_longest")

    def __init__(self, atoms: list[Atom]) -> None:
        self._atoms = atoms
        self.pattern = "".join(atom.pattern for atom in atoms)
        self.longest = sum(atom.longest for atom in atoms)
        """No match has more characters."""
        self.firsts = atoms[0].firsts
        """Every character that a match can begin with."""
        self.start = "".join(atom.pattern for atom in atoms[:_START])
        """How a match begins, as an expression: a quick look for where one could."""
        self.start_longest = sum(atom.longest for atom in atoms[:_START])

    def may_begin(self, text: str, start: int) -> bool:
        """Whether `text` from `start` to its end could become a match, or a longer one, if more came.

        May say yes too often: what is unfinished is not looked at closely.
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
        return self._atoms[-1].open and any(text[end:] in ("", "%", "%3") for end in ends)


_begun = re.compile(r"[\r\n]*(?:[\\%&][\\%&#;0-9A-Za-z\r\n]*)?\Z").match


def _unfinished(atom: Atom, text: str, end: int) -> bool:
    """Whether the rest of the text could be the beginning of this atom."""
    left = len(text) - end
    if left >= atom.longest:
        return False
    if atom.literal:
        return text.endswith(atom.ways[0][:left])
    return _begun(text, end) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def forms_of(value: str) -> Iterator[Form]:
    """Every form that a value is looked for in; the longest text of it first."""
    yield Form(_escaped(value))
    for line in sorted(_lines_of(value), key=len, reverse=True):
        yield Form(_escaped(line))
    for core, partial in _base64_cores(value):
        atoms = [_base64_atom(char, first=not n) for n, char in enumerate(core)]
        tail = f"{_BREAK}[A-Za-z0-9+/_-]?" if partial else ""
        atoms.append(Atom((tail + "(?:=|%3[dD]){0,2}",), "", _BREAKS + 7, open=True))
        yield Form(atoms)
    digits = _bytes(value).hex()
    yield Form(
        [
            Atom((_BREAK * bool(n) + _either_case(digit),), digit + digit.upper(), 1 + _BREAKS * bool(n))
            for n, digit in enumerate(digits)
        ]
    )


def clues_of(value: str) -> Iterator[str]:
    """Texts of which one stands in whatever holds the value in any form (line breaks left out)."""
    yield _longest_word(value)
    for line in _lines_of(value):
        yield _longest_word(line)
    for core, _ in _base64_cores(value):
        yield _longest_word(core)
    digits = _bytes(value).hex()
    yield digits
    yield digits.upper()


def _lines_of(value: str) -> list[str]:
    """The lines that are masked by themselves (in the environment, `\\n` often stands for a line break)."""
    lines = [line.strip() for line in re.split(r"\r?\n|\\n", value)]
    if len(lines) == 1:
        return []
    return [line for line in lines if len(line) >= _MIN_LINE and not line.startswith("-----")]


_BREAKS = 8
_BREAK = rf"[\r\n]{{0,{_BREAKS}}}+"
"""Line breaks within base64 or hexadecimal."""
_BASE64 = {"+": ("(?:[+-]|%2[bB])", "+-%"), "/": (r"(?:\\?[/_]|%2[fF])", "\\/_%")}
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a", "\0": "0"}
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_LONGEST_ESCAPE = 64


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


def _base64_atom(char: str, *, first: bool) -> Atom:
    way, firsts = _BASE64.get(char, (char, char))
    return Atom((way,), firsts, 3) if first else Atom((_BREAK + way,), firsts, 3 + _BREAKS)


def _escaped(value: str) -> list[Atom]:
    """The value with each special character as itself or in any of its escapes."""
    atoms: list[Atom] = []
    slashes = 1
    for run in re.findall(r"[A-Za-z0-9]+|\\+|.", value, re.DOTALL):
        if run[0] == "\\":
            count = len(run)
            ways = (rf"\\{{{count},{16 * count}}}+", rf"(?:%5[cC]){{{count}}}")
            atoms.append(Atom(ways, "\\%", 16 * count))
            slashes = 0  # Those of the next character's escape were taken with these.
            continue
        if run.isascii() and run.isalnum():
            atoms.append(Atom((run,), run[0], len(run), literal=True))
        else:
            atoms.append(_escapes_of(run, slashes))
        slashes = 1
    return atoms


def _escapes_of(char: str, slashes: int) -> Atom:
    code = ord(char)
    units = char.encode("utf-16-be", "surrogatepass").hex()
    coded = [r"\\{1,16}+".join("u" + _either_case(units[i : i + 4]) for i in range(0, len(units), 4))]
    coded.append("U" + _either_case(f"{code:08x}"))
    if code < 256:
        coded.append("x" + _either_case(f"{code:02x}"))
    if char in _LETTERS:
        coded.append(_LETTERS[char])
    entity = f"{_ENTITIES[char]}|" if char in _ENTITIES else ""
    ways = [
        rf"\\{{0,16}}+{re.escape(char)}",
        rf"\\{{{slashes},16}}+(?:{'|'.join(coded)})",
        "".join(f"%{_either_case(f'{byte:02x}')}" for byte in _bytes(char)),
        f"&(?:{entity}#0{{0,16}}+{code}|#[xX]0{{0,16}}+{_either_case(f'{code:x}')});",
    ]
    if char == " ":
        ways.append(r"\+")
    elif char == "\n":
        ways += [r"\r\n", rf"\\{{{slashes},16}}+r\\{{1,16}}+n", "%0[dD]%0[aA]"]
    return Atom(tuple(ways), char + "\\%&+\r", _LONGEST_ESCAPE)


def _either_case(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _bytes(text: str) -> bytes:
    """As UTF-8; bytes of the environment that are none stay what they are."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
