"""The words of a project's tools, and the ones that a mistyped word may mean."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Vocabulary"]


class Vocabulary:
    """Words, each with the number of tools that use it."""

    def __init__(self, counts: Iterable[tuple[str, int]]) -> None:
        self._counts = dict(counts)
        self._by_length: dict[int, list[tuple[str, frozenset[str]]]] = {}
        """With the letters of each."""
        self._known: dict[str, list[str]] = {}

    def count(self, word: str) -> int:
        """Return the number of tools that use this word."""
        return self._counts.get(word, 0)

    def meant(self, word: str) -> list[str]:
        """Return the word itself if it is known; else the words with the fewest typing errors: one, or two
        in long words."""
        if word in self._counts:
            return [word]
        if word not in self._known:
            self._known[word] = self._near(word)
        return self._known[word]

    def _near(self, word: str) -> list[str]:
        if not self._by_length:
            for term in self._counts:
                self._by_length.setdefault(len(term), []).append((term, frozenset(term)))
        most = _slips(word)
        mine = frozenset(word)
        found: list[str] = []
        for length in range(len(word) - most, len(word) + most + 1):
            for term, letters in self._by_length.get(length, ()):
                # Each slip brings in or takes away at most one letter.
                if len(mine - letters) > most or len(letters - mine) > most:
                    continue
                slips = _distance(word, term, most)
                if slips < most:
                    found, most = [], slips
                if slips == most:
                    found.append(term)
        return found if most else []


def _slips(word: str) -> int:
    """Return the number of typing errors that a word of this length may have."""
    return 0 if len(word) < 4 else 1 if len(word) < 8 else 2


def _distance(one: str, other: str, most: int) -> int:
    """Count letters inserted, left out, changed, or swapped with their neighbour (optimal string alignment).

    Counting stops above `most`.
    """
    older: list[int] = []
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for at, mate in enumerate(other, 1):
            cost = min(before[at] + 1, line[-1] + 1, before[at - 1] + (letter != mate))
            if row > 1 and at > 1 and letter == other[at - 2] and one[row - 2] == mate:
                cost = min(cost, older[at - 2] + 1)
            line.append(cost)
        if min(line) > most and min(before) > most:
            return most + 1
        older, before = before, line
    return before[-1]
