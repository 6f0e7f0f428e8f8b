"""The words of a project's tools, and the ones that a mistyped word may mean."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Vocabulary"]


class Vocabulary:
    """Words, each with the number of tools that use it."""

    def __init__(self, counts: Iterable[tuple[str, int]]) -> None:
        self._counts = dict(counts)
        self._known: dict[str, list[str]] = {}

    def count(self, word: str) -> int:
        """Return the number of tools that use this word."""
        return self._counts.get(word, 0)

    def meant(self, word: str) -> list[str]:
        """Return the word itself if it is known, else the words with the fewest typing errors.

        A letter inserted, left out, changed, or swapped with its neighbour is an error (optimal string
        alignment). Words of four letters may have one, words of eight letters two.
        """
        if word in self._counts:
            return [word]
        if word not in self._known:
            self._known[word] = self._nearest(word)
        return self._known[word]

    def _nearest(self, word: str) -> list[str]:
        most = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
        if most == 0:
            return []
        from rapidfuzz.distance import OSA
        from rapidfuzz.process import extract

        terms = list(self._counts)
        found = extract(word, terms, scorer=OSA.distance, processor=None, score_cutoff=most, limit=None)
        return [term for term, errors, _ in found if errors == found[0][1]]
