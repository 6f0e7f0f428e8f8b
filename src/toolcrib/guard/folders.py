"""Folders of this machine in texts that go to callers who may not know them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolcrib.errors import ToolcribError
from toolcrib.spec import Caller


class HiddenFolders:
    """Shortens paths below these folders for tokens without the right `admin`."""

    def __init__(self, shown: Mapping[Path | None, str]) -> None:
        named = {path: text for folder, text in shown.items() for path in _spellings(folder)}
        # The longest first, as one may be in another. What follows must not go on with the name.
        each = "|".join(re.escape(path) for path in sorted(named, key=len, reverse=True))
        self._named, self._pattern = named, re.compile(rf"({each})(?![\w.-])")

    def hide(self, error: ToolcribError, caller: Caller | None) -> None:
        """Shorten the paths in an error for a caller, in place."""
        error.apply_mask(lambda value: self.shown(value, caller))

    def shown(self, value: Any, caller: Caller | None) -> Any:
        """Return a JSON value as a caller may see it."""
        return value if caller is None or caller.may("admin") else self._shorten(value)

    def _shorten(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(lambda found: self._named[found[1]], value)
        if isinstance(value, Mapping):
            return {key: self._shorten(one) for key, one in value.items()}
        return [self._shorten(one) for one in value] if isinstance(value, list | tuple) else value


def _spellings(folder: Path | None) -> set[str]:
    paths = set() if folder is None else {str(folder), os.path.realpath(folder)}
    return paths - {"/"}
