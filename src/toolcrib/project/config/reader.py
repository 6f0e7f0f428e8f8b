"""Reads settings out of a document, strictly: every complaint has its place."""

from __future__ import annotations

import unicodedata
from typing import Any

from toolcrib.manifest import Diagnostic, Document
from toolcrib.spec.naming import nearest

__all__ = ["Misfit", "Path", "Reader"]

Path = tuple[str | int, ...]
"""Keys and positions from the top of the document down to a value."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Misfit(Exception):
    """A value that is not as it must be."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Reader:
    """Reads values out of the document; every complaint has its place."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def misfit(self, path: Path, message: str, hint: str | None = None, rule: str = "wrong-value") -> Misfit:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        name = f"`{steps.removeprefix('.')}`" if path else "the file"
        return Misfit(
            self._document.diagnostic(
                rule, f"{name} {message}", path, key=rule in ("unknown-key", "wrong-type"), hint=hint
            )
        )

    def mapping(self, value: Any, path: Path, known: tuple[str, ...]) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.misfit(path, "must be a mapping", f"known here: {', '.join(known)}", "wrong-type")
        for key in value:
            if key not in known:
                raise self.unknown((*path, key), known)
        return value

    def unknown(self, path: Path, known: tuple[str, ...]) -> Misfit:
        close = nearest(str(path[-1]), known)
        hint = f"did you mean `{close}`?" if close else f"known here: {', '.join(known)}"
        return self.misfit(path, "is not a setting", hint, "unknown-key")

    def number(self, value: Any, path: Path, low: float, high: float, whole: bool = True) -> Any:
        right = isinstance(value, int) or (not whole and isinstance(value, float))
        if not right or isinstance(value, bool) or not low <= value <= high:
            what = "a whole number" if whole else "a number"
            raise self.misfit(path, f"must be {what} from {low:,g} to {high:,.0f}")
        return value

    def texts(self, value: Any, path: Path) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.misfit(path, "must be a list of texts", "write it as a list: `[…]`")
        return tuple(value)

    def items(self, value: Any, path: Path, most: int) -> list[Any]:
        """A list of at most so many."""
        if not isinstance(value, list):
            raise self.misfit(path, "must be a list", "write each item after `- `", "wrong-type")
        if len(value) > most:
            raise self.misfit(path, f"has more than {most:,} items")
        return value

    def choice(self, value: Any, path: Path, options: tuple[str, ...]) -> Any:
        """One of these texts."""
        if not isinstance(value, str) or value not in options:
            close = nearest(value, options) if isinstance(value, str) else None
            raise self.misfit(
                path, f"must be one of: {', '.join(options)}", f"did you mean `{close}`?" if close else None
            )
        return value

    def truth(self, value: Any, path: Path) -> bool:
        """true or false."""
        if not isinstance(value, bool):
            raise self.misfit(path, "must be true or false")
        return value

    def line(self, value: Any, path: Path, most: int) -> str:
        """A text that a person is shown: one line, and no character in it that is not seen."""
        if not isinstance(value, str) or not value.strip() or len(value) > most:
            raise self.misfit(path, f"must be a text of 1 to {most} characters")
        text = value.strip()
        if any(unicodedata.category(char) in _UNSEEN for char in text):
            raise self.misfit(path, "holds a line break or a character nobody sees", "write one line")
        return unicodedata.normalize("NFC", text)
