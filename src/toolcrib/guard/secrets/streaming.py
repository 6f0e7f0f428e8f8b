"""Masks secrets in a stream: also one that is split across chunks, wherever the splits are."""

from __future__ import annotations

import codecs
import re

from toolcrib.guard.secrets.masking import MIN_LENGTH, Redactor

__all__ = ["BytesMasker", "StreamMasker"]


class StreamMasker:
    """Gives a stream's text back as soon as it is safe to show, with every secret masked.

    The end of what came is held back where it could be the beginning of a value in any of its forms: at most
    `longest` characters. However a stream is cut, what comes out is the same, and that is what
    `Redactor.redact_text` makes of the whole. One difference: where a value contains what masks are made of,
    they are made of something else here, since a mask that was given out cannot be taken back.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._forms = [form for forms in redactor.forms for form in forms]
        self.longest = max((form.longest for form in self._forms), default=0)
        """Characters that may be held back."""
        starts = "|".join(dict.fromkeys(form.start for form in self._forms))
        firsts = "".join(sorted(set("".join(form.firsts for form in self._forms))))
        self._start = re.compile(f"(?={starts})") if starts else None
        self._first = re.compile(f"[{re.escape(firsts)}]" if firsts else r"(?!)")
        self._nearly = max((form.start_longest for form in self._forms), default=0)
        self._mask = redactor.fallback
        self._held = ""
        self._begun = False

    def feed(self, chunk: str) -> str:
        """What can be shown by now."""
        text = self._held + chunk
        if not self._begun and self._redactor.whole and len(text) < MIN_LENGTH:
            self._held = text  # A very short value is masked where it is all there is.
            return ""
        return self._give(text, self._beginning(text, 0))

    def flush(self) -> str:
        """The rest, at the end of the stream."""
        text, self._held = self._held, ""
        if not self._begun and text in self._redactor.whole:
            return self._redactor.whole[text]
        shown = self._give(text, len(text))
        self._begun = False
        return shown

    def _give(self, text: str, open_at: int) -> str:
        """Mask the text up to where something could begin; keep the rest."""
        shown: list[str] = []
        position, final = 0, open_at == len(text)
        pattern = self._redactor.pattern if self._redactor.suspect(text) else None
        while pattern is not None:
            found = pattern.search(text, position)
            if found is None or found.start() >= open_at:
                break
            shown += [text[position : found.start()], self._mask or self._redactor.replace(found)]
            position = found.end()
            if position > open_at:
                open_at = len(text) if final else self._beginning(text, position)
        shown.append(text[position:open_at])
        self._held = text[open_at:]
        self._begun = self._begun or open_at > 0
        return "".join(shown)

    def _beginning(self, text: str, position: int) -> int:
        """Where something begins that could become a value; the text's length where nothing does."""
        if self._start is None:
            return len(text)
        size = len(text)
        near = max(position, size - self._nearly)  # From here on not even a form's start need be whole.
        for expression, begin, end in (
            (self._start, max(position, size - self.longest), near),
            (self._first, near, size),
        ):
            for candidate in expression.finditer(text, begin):
                start = candidate.start()
                if start >= end:
                    break
                if any(form.may_begin(text, start) for form in self._forms):
                    return start
        return size


class BytesMasker:
    """The same for bytes: UTF-8, and whatever else a program writes."""

    def __init__(self, redactor: Redactor) -> None:
        self._masker = StreamMasker(redactor)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, chunk: bytes) -> bytes:
        """What can be shown by now."""
        return self._masker.feed(self._decoder.decode(chunk)).encode(errors="surrogateescape")

    def flush(self) -> bytes:
        """The rest, at the end of the stream."""
        last = self._masker.feed(self._decoder.decode(b"", True))
        self._decoder.reset()
        return (last + self._masker.flush()).encode(errors="surrogateescape")
