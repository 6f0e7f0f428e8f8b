"""Mask secrets in a stream, also one that is split across chunks."""

from __future__ import annotations

import codecs
import re

from toolcrib.guard.secrets.masking import MIN_LENGTH, Redactor


class StreamMasker:
    """Returns a stream's text as soon as it is safe to show, with every secret masked.

    The end of the text is kept back while it could be the beginning of a value in any encoding: at most
    `longest` characters. The output does not depend on the chunks, and equals `Redactor.redact_text` of the
    whole, with one exception: a value that contains `*` has another mask here, because a mask that was
    returned cannot be taken back.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._encodings = [one for encodings in redactor.encodings for one in encodings]
        self.longest = max((one.longest for one in self._encodings), default=0)
        """Characters that may be kept back."""
        starts = "|".join(dict.fromkeys(one.start for one in self._encodings))
        firsts = "".join(sorted(set("".join(one.firsts for one in self._encodings))))
        self._start = re.compile(f"(?={starts})") if starts else None
        self._first = re.compile(f"[{re.escape(firsts)}]" if firsts else r"(?!)")
        self._start_longest = max((one.start_longest for one in self._encodings), default=0)
        self._mask = redactor.fallback
        self.pending = ""
        """The end of the text, which is kept back."""
        self._begun = False

    def feed(self, chunk: str) -> str:
        """Add text and return what can be shown by now."""
        text = self.pending + chunk
        if not self._begun and self._redactor.whole_texts and len(text) < MIN_LENGTH:
            self.pending = text  # It could be a very short value, which is masked as a whole text.
            return ""
        return self._release(text, self._beginning(text, 0))

    def flush(self) -> str:
        """Return the rest at the end of the stream."""
        text, self.pending = self.pending, ""
        if not self._begun and text in self._redactor.whole_texts:
            return self._redactor.whole_texts[text]
        shown = self._release(text, len(text))
        self._begun = False
        return shown

    def _release(self, text: str, open_at: int) -> str:
        """Mask the text up to where a value could begin, and keep the rest."""
        shown: list[str] = []
        position, final = 0, open_at == len(text)
        pattern = self._redactor.pattern if self._redactor.is_suspect(text) else None
        while pattern is not None:
            found = pattern.search(text, position)
            if found is None or found.start() >= open_at:
                break
            shown += [text[position : found.start()], self._mask or self._redactor.mask_of(found)]
            position = found.end()
            # A match reached into what was to be kept back: the next beginning is looked for behind it.
            if position > open_at:
                open_at = len(text) if final else self._beginning(text, position)
        shown.append(text[position:open_at])
        self.pending = text[open_at:]
        self._begun = self._begun or open_at > 0
        return "".join(shown)

    def _beginning(self, text: str, position: int) -> int:
        """Return where a value could begin that is not complete yet; the text's length if nowhere."""
        if self._start is None:
            return len(text)
        size = len(text)
        near = max(position, size - self._start_longest)  # From here on even a start may be incomplete.
        for expression, begin, end in (
            (self._start, max(position, size - self.longest), near),
            (self._first, near, size),
        ):
            for candidate in expression.finditer(text, begin):
                start = candidate.start()
                if start >= end:
                    break
                if any(one.may_begin(text, start) for one in self._encodings):
                    return start
        return size


class BytesMasker:
    """A `StreamMasker` for bytes: UTF-8, and whatever else a program writes."""

    def __init__(self, redactor: Redactor) -> None:
        self._masker = StreamMasker(redactor)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, chunk: bytes) -> bytes:
        """Add bytes and return what can be shown by now."""
        return self._masker.feed(self._decoder.decode(chunk)).encode(errors="surrogateescape")

    @property
    def kept_back(self) -> int:
        """The bytes that were fed last and are not in what was returned."""
        pending = self._masker.pending.encode(errors="surrogateescape")
        return len(pending) + len(self._decoder.getstate()[0])

    def flush(self) -> bytes:
        """Return the rest at the end of the stream."""
        last = self._masker.feed(self._decoder.decode(b"", True))
        self._decoder.reset()
        return (last + self._masker.flush()).encode(errors="surrogateescape")
