"""A list in pages that are kept as bytes, with cursors that stay good when the list changes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

import orjson

from toolcrib.serve.mcp.wire import ErrorCode, JsonRpcError


class Pages:
    """The pages of one list. `write` returns the entry of a name as JSON."""

    def __init__(
        self, key: str, names: Sequence[str], size: int, write: Callable[[str], bytes | memoryview]
    ) -> None:
        self._key = orjson.dumps(key)
        self._names, self._size, self._write = names, size, write
        self._ends: dict[str, int] | None = None
        """Name to the number of entries up to and including it; made for the first cursor."""
        self._kept: dict[int, bytes] = {}

    def page(self, cursor: str | None = None) -> bytes:
        """Return the JSON members `"KEY":[…]` and, if more follow, `"nextCursor":"…"` of one page.

        Raises JsonRpcError (invalid params) for a cursor that is not of this list.
        """
        start = 0 if cursor is None else self._start(cursor)
        page = self._kept.get(start)
        if page is None:
            page = self._made(start)
            if start % self._size == 0:  # Other starts come from a cursor of an older list.
                self._kept[start] = page
        return page

    def _made(self, start: int) -> bytes:
        names = self._names[start : start + self._size]
        page = self._key + b":[" + b",".join(map(self._write, names)) + b"]"
        if start + len(names) < len(self._names):
            cursor = base64.urlsafe_b64encode(names[-1].encode()).decode()
            page += b',"nextCursor":' + orjson.dumps(cursor)
        return page

    def _start(self, cursor: str) -> int:
        """Return the position of the first entry after `cursor`.

        A cursor is the name of the last entry sent, so it stays good when others come or go.
        """
        if self._ends is None:
            self._ends = {name: number for number, name in enumerate(self._names, 1)}
        try:
            last = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
        except ValueError:
            last = ""
        if last not in self._ends:
            message = "the cursor is not of this list: it may have changed, so list again without a cursor"
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, message)
        return self._ends[last]
