"""The calls of each client that have not ended, over all of its sessions and connections."""

from __future__ import annotations

from toolcrib.serve.mcp.request import McpRequest
from toolcrib.serve.mcp.settings import ServerSettings
from toolcrib.serve.mcp.wire import busy


class CallLoad:
    """Counts calls and the bytes of their messages by caller, and refuses what is too much.

    All connections of a server share one: a client could otherwise begin any number of sessions.
    """

    def __init__(self) -> None:
        self._open: dict[str | None, tuple[int, int]] = {}
        """Caller to the number of its calls and the bytes of their messages."""

    def add(self, request: McpRequest, settings: ServerSettings) -> None:
        """Count a call that begins. Raises JsonRpcError if its caller has too many calls open."""
        caller = request.channel.sender.caller
        calls, size = self._open.get(caller, (0, 0))
        # While nothing else is open, even a message above the limit is taken: else it could never run.
        full = size and size + request.size > settings.max_bytes
        if full or calls >= settings.max_running + settings.max_waiting:
            raise busy("too many calls are waiting", "Call again later.")
        self._open[caller] = calls + 1, size + request.size

    def remove(self, request: McpRequest) -> None:
        """Count a call no longer, as it has ended."""
        caller = request.channel.sender.caller
        calls, size = self._open[caller]
        if calls > 1:
            self._open[caller] = calls - 1, size - request.size
        else:
            del self._open[caller]
