"""The whole of outputs that are too long for a result, in files of the workspace."""

from __future__ import annotations

import codecs
from io import FileIO
from types import TracebackType

from toolcrib.errors import ToolcribError
from toolcrib.pods.protocol import WORKSPACE
from toolcrib.pods.spool import Spool

FOLDER = ".outputs"
HEAD = 20_000
"""Bytes of such an output in the result. Two of them, with the notes, are not cut again for a model."""
FILE_BYTES = 256 << 20
OLDER_BYTES = 256 << 20
"""Bytes of earlier outputs that stay when a new one begins; the oldest are removed."""
_NAMES = {"stdout": "the output", "stderr": "standard error"}


class Outputs:
    """The output streams of one command. Files of one that is not finished are removed."""

    def __init__(self, workspace: str, id: str) -> None:
        self._workspace, self._id = workspace, id
        self._spool: Spool | None = None
        self._files: dict[str, FileIO] = {}
        self._lost: dict[str, str] = {}
        """Name of a stream to the reason that its file is not all of it, or missing."""

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        for stream in [*self._files]:
            self._close(stream, remove=kind is not None)
        if self._spool is not None:
            self._spool.close()

    def take(self, stream: str, data: bytes) -> bool:
        """Add a part of a long output to its file. Returns False if no more fits."""
        try:
            file = self._files.get(stream) or self._open(stream)
            room = FILE_BYTES - file.tell()
            rest = memoryview(data)[:room]
            while rest:
                rest = rest[file.write(rest) :]
        except (OSError, ToolcribError) as error:
            self._lost[stream] = getattr(error, "strerror", None) or str(error)
            # On a full disk the beginning of it would be in the way of the result, and of the next command.
            self._close(stream, remove=True)
            return False
        if len(data) > room:
            self._lost[stream] = f"such a file has at most {FILE_BYTES:,} bytes"
        return len(data) <= room

    def text(self, stream: str, kept: bytes, total: int, notes: list[str]) -> str:
        """Return a stream as text, or its beginning, with a note on where the whole is."""
        cut = total > len(kept)
        data = kept[:HEAD] if stream in self._files else kept
        try:
            # A character that is cut in two is left out.
            text, used = codecs.utf_8_decode(data, "strict", not cut)
        except UnicodeDecodeError as error:
            text, used = data.decode(errors="replace"), len(data)
            notes.append(
                f"{_NAMES[stream]} is not UTF-8 (byte {error.start}); such bytes are replaced by \ufffd"
            )
        if cut:
            notes.append(
                f"{_NAMES[stream]} is cut: {used:,} of {total:,} bytes are here; {self._place(stream)}"
            )
        return text

    def _place(self, stream: str) -> str:
        file, lost = self._files.get(stream), self._lost.get(stream)
        if file is None:
            return f"the rest is lost: {lost}"
        path = f"{WORKSPACE}/{FOLDER}/{self._name(stream)}"
        if lost is None:
            return f"all of it is in {path}"
        return f"the first {file.tell():,} are in {path}, the rest is lost: {lost}"

    def _name(self, stream: str) -> str:
        return f"{self._id}.{stream}"

    def _open(self, stream: str) -> FileIO:
        if self._spool is None:
            self._spool = Spool(self._workspace, FOLDER)
        older = self._spool.stamps()
        used = sum(stamp.size for stamp in older.values())
        for name, stamp in older.items():
            if used > OLDER_BYTES:
                self._spool.remove(name)
                used -= stamp.size
        # A sidecar that was killed has left it.
        self._spool.remove(self._name(stream))
        file = self._files[stream] = FileIO(self._spool.create(self._name(stream)), "wb")
        return file

    def _close(self, stream: str, *, remove: bool) -> None:
        if (file := self._files.pop(stream, None)) is not None:
            file.close()
            if remove and self._spool is not None:
                self._spool.remove(self._name(stream))
