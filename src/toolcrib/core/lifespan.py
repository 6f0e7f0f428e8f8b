"""The time for which a tool that holds resources is open."""

from __future__ import annotations

import inspect
from typing import Any

from toolcrib.errors import ToolUnavailable


class ToolLifespan:
    """An object with `open` and `close`, or an async context manager, and the number of its users."""

    def __init__(self, name: str, target: Any) -> None:
        self.name = name
        self._target = target
        self._users = 0

    async def open(self) -> None:
        """Open the tool, unless it is open."""
        if self._users == 0:
            target = self._target
            await _finish(target.open() if hasattr(target, "open") else target.__aenter__())
        # Counted once it is open: if opening fails, the next user tries again.
        self._users += 1

    async def close(self) -> None:
        """Close the tool, unless others still need it."""
        self._users -= 1
        if self._users == 0:
            target = self._target
            if not hasattr(target, "open"):
                await target.__aexit__(None, None, None)
            elif hasattr(target, "close"):
                await _finish(target.close())

    def require_open(self) -> None:
        """Refuse a call of a tool that is not open: `ToolUnavailable`."""
        if self._users == 0:
            raise ToolUnavailable(
                f"{self.name} is not open", hint="Call it inside `async with` of its toolset or project."
            )


async def _finish(value: Any) -> None:
    if inspect.isawaitable(value):
        await value
