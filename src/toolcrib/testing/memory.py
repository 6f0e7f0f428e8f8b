"""A store of bundles for tests, gone when the test is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Self

from toolcrib.bundles import Store

_MEMORY = "/dev/shm"  # noqa: S108 - a folder of the kernel's, in memory


class MemoryStore(Store):
    """A `Store` in a folder in memory, removed by `close`. Options are those of `Store`."""

    def __init__(self, **options: Any) -> None:
        place = _MEMORY if Path(_MEMORY).is_dir() else None
        self._temporary = tempfile.TemporaryDirectory(prefix="toolcrib-", dir=place)
        super().__init__(Path(self._temporary.name), **options)

    def close(self) -> None:
        """Remove everything."""
        self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
