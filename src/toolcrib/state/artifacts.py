"""Artifacts: the whole outputs of calls that were too long, or not text, to be returned as they are.

They are in the user's own folder, where no tool sees them, and are read by the caller of their call only.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolcrib.errors import NotFoundError
from toolcrib.spec.identifier import new_id
from toolcrib.spec.moment import written
from toolcrib.spec.record import camel, record
from toolcrib.state.private import open_plain, put_private, read_private, write_private

KEPT_S = 7 * 86_400.0
"""Seconds that an artifact is kept."""
MAX_BYTES = 32 * 1024 * 1024
"""Bytes of one artifact; the rest of a longer output is lost."""
QUOTA_BYTES = 256 * 1024 * 1024
"""Bytes of all artifacts of a project; the oldest are removed for new ones."""
_SPARE = 16
"""A look at all artifacts is good for this part of the quota, as it takes long where there are thousands."""
_LEFT_S = 3_600.0
"""Seconds after which a file without a record belongs to no process that is still writing it."""
_ID = re.compile(r"[0-9a-f-]{36}")
URI = "toolcrib://artifacts/"
"""The beginning of an artifact's URI."""


@record
class Artifact:
    """One kept output."""

    id: str
    """UUIDv7."""
    path: str
    size: int
    """Bytes."""
    sha256: str
    media_type: str
    tool: str
    call_id: str | None
    caller: str
    """The only caller that may read it, as `owner_of` names it."""
    expires: float
    """Seconds since the epoch."""

    @property
    def uri(self) -> str:
        """The address as an MCP resource."""
        return URI + self.id

    def as_json(self) -> dict[str, Any]:
        """Return what a caller sees of it."""
        shown = ("id", "path", "size", "sha256", "media_type", "uri")
        return camel({name: getattr(self, name) for name in shown}) | {"expiresAt": written(self.expires)}


class Artifacts:
    """The artifacts below one folder. Safe for threads and processes: each file is written once, whole."""

    def __init__(
        self,
        folder: Path,
        *,
        kept_s: float = KEPT_S,
        quota_bytes: int = QUOTA_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._kept_s = kept_s
        self._quota = quota_bytes
        self._clock = clock
        self._unswept = quota_bytes
        """Bytes kept since the last look at all artifacts."""

    def put(self, data: bytes, media_type: str, *, tool: str, call_id: str | None, caller: str) -> Artifact:
        """Keep an output. What has expired, and the oldest beyond the quota, is removed from time to time.

        Raises StateUnavailable if it cannot be written.
        """
        data = data[: min(MAX_BYTES, self._quota)]
        self._unswept += len(data)
        if self._unswept > self._quota // _SPARE:
            self._sweep(len(data))
            self._unswept = 0
        id_ = new_id()
        path = self._folder / f"{id_}.data"
        digest = hashlib.sha256(data).hexdigest()
        expires = self._clock() + self._kept_s
        found = Artifact(id_, str(path), len(data), digest, media_type, tool, call_id, caller, expires)
        # The record comes last: who finds it finds the output.
        put_private(path, data)
        write_private(self._place(id_), asdict(found))
        return found

    def get(self, id: str, caller: str | None) -> Artifact:
        """Return one artifact. `caller` None is this machine's own user, who may read all.

        Raises NotFoundError for one that is unknown, expired or another caller's.
        """
        found = self._read(self._place(id)) if _ID.fullmatch(id) else None
        if found is None or found.expires <= self._clock() or caller not in (None, found.caller):
            raise NotFoundError(
                f"there is no artifact {id!r}",
                hint="Artifacts expire; make the call again to get its output.",
            )
        return found

    def read(self, id: str, caller: str | None, offset: int = 0, limit: int = MAX_BYTES) -> bytes:
        """Return a range of an artifact's bytes. Raises as `get`."""
        path = Path(self.get(id, caller).path)
        try:
            with open_plain(path) as file:
                file.seek(offset)
                return file.read(limit)
        except OSError as error:
            raise NotFoundError(f"the artifact {id} cannot be read: {error.strerror}") from None

    def all(self, caller: str | None) -> list[Artifact]:
        """Return every artifact that this caller may read, the newest first."""
        now = self._clock()
        readable = (one for one in self._every() if one.expires > now and caller in (None, one.caller))
        return sorted(readable, key=lambda one: one.id, reverse=True)

    def _place(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"

    def _read(self, path: Path) -> Artifact | None:
        found = read_private(path)
        try:
            # Whatever the file says of it, the output is beside the file.
            return Artifact(**{**found, "id": path.stem, "path": str(path.with_suffix(".data"))})
        except TypeError:
            return None

    def _every(self) -> Iterator[Artifact]:
        for path in self._folder.glob("*.json"):
            if (found := self._read(path)) is not None:
                yield found

    def _sweep(self, wanted: int) -> None:
        """Make room for this many bytes, and for those up to the next look."""
        now, used = self._clock(), wanted + self._quota // _SPARE
        # The newest first, so that those beyond the quota are the oldest.
        every = sorted(self._every(), key=lambda one: one.id, reverse=True)
        for one in every:
            used += one.size
            if one.expires <= now or used > self._quota:
                self._place(one.id).unlink(missing_ok=True)
                Path(one.path).unlink(missing_ok=True)
        self._remove_left({one.id for one in every}, now)

    def _remove_left(self, known: set[str], now: float) -> None:
        """Remove what killed processes have left: outputs without a record, and files not yet renamed."""
        for path in self._folder.iterdir() if self._folder.exists() else ():
            with suppress(OSError):  # Another process removes it too, or it is a folder.
                if path.name.lstrip(".")[:36] not in known and path.stat().st_mtime < now - _LEFT_S:
                    path.unlink()
