"""Notifications that a list has changed: of tools, prompts or resources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.serve.mcp.request import Channel, McpRequest
from toolcrib.serve.mcp.wire import SERVER_KEY, ErrorCode, JsonRpcError, answer, busy, notification

__all__ = ["ListChanges", "Revision", "Watch"]

_METHODS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_ID_KEY = "io.modelcontextprotocol/subscriptionId"
_RETRY_S = 0.25
"""Seconds until the next try if the client does not read."""

Revision = Callable[[], object]
"""Returns a value that differs after each change of a list."""
Watch = Callable[[Callable[[], None]], Callable[[], None]]
"""Has a function called after each change of a list, in any thread. Returns what ends that."""


class ListChanges:
    """Notifies sessions of changes, and in 2026-07-28 each stream that asked for it.

    Changes that come close together are one notification.
    """

    def __init__(
        self, watch: Watch, lists: Mapping[str, Revision], server_info: dict[str, str], max_streams: int
    ) -> None:
        self._watch = watch
        self._lists = lists
        """Name of a list, as a client asks for its changes, to its revision."""
        self._seen = {name: revision() for name, revision in lists.items()}
        self._server_info = server_info
        self._max_streams = max_streams
        self._sessions: dict[Channel, None] = {}
        self._streams: dict[object, tuple[McpRequest, frozenset[str]]] = {}
        """Open streams, and the lists whose changes each asked for."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._pending = False

    def __contains__(self, key: object) -> bool:
        """Return True if a request with this key listens."""
        return key in self._streams

    def begin_session(self, channel: Channel) -> None:
        """Notify a session from now on."""
        self._sessions[channel] = None
        self._subscribe()

    def end_session(self, channel: Channel) -> None:
        """Notify a session no more."""
        self._sessions.pop(channel, None)
        self._rest()

    def listen(self, request: McpRequest) -> None:
        """Open the stream of a `subscriptions/listen` request, which is answered when the server ends it."""
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise JsonRpcError(
                ErrorCode.INVALID_PARAMS, "subscriptions/listen needs notifications, an object"
            )
        if len(self._streams) >= self._max_streams:
            raise busy("too many streams are open", "End one first.")
        honoured = frozenset(name for name in self._lists if wanted.get(name) is True)
        self._subscribe()
        self._streams[request.key] = (request, honoured)
        params = {"notifications": dict.fromkeys(sorted(honoured), True), "_meta": {_ID_KEY: request.id}}
        request.channel.send(notification(_ACKNOWLEDGED, params))

    def cancel(self, key: object) -> None:
        """End a stream at the client's wish."""
        ended = self._streams.pop(key, None)
        if ended is not None:
            ended[0].reply(None)
            self._rest()

    def close(self) -> None:
        """Send no more notifications, and answer the requests that listen."""
        self._sessions.clear()
        streams, self._streams = self._streams, {}
        self._rest()
        for request, _ in streams.values():
            meta = {_ID_KEY: request.id, SERVER_KEY: self._server_info}
            request.reply(answer(request.id, {"resultType": "complete", "_meta": meta}))

    def _subscribe(self) -> None:
        if self._unsubscribe is None:
            self._loop = asyncio.get_running_loop()
            self._seen = {name: revision() for name, revision in self._lists.items()}
            self._unsubscribe = self._watch(self._changed)

    def _rest(self) -> None:
        """Watch nothing while nobody listens."""
        if self._unsubscribe is not None and not self._sessions and not self._streams:
            self._unsubscribe()
            self._unsubscribe = None

    def _changed(self) -> None:
        """Note a change. Called in any thread."""
        if not self._pending and self._loop is not None and not self._loop.is_closed():
            self._pending = True
            self._loop.call_soon_threadsafe(self._notify_all)

    def _notify_all(self) -> None:
        self._pending = False
        changed = set()
        for name, revision in self._lists.items():
            now = revision()
            if now != self._seen[name]:
                self._seen[name] = now
                changed.add(name)
        for channel in tuple(self._sessions):
            for name in sorted(changed):
                self._notify(channel, name, channel in self._sessions, None)
        for key, (request, wanted) in tuple(self._streams.items()):
            for name in sorted(changed & wanted):
                self._notify(request.channel, name, key in self._streams, {"_meta": {_ID_KEY: request.id}})

    def _notify(self, channel: Channel, name: str, live: bool, params: dict[str, Any] | None) -> None:
        if self._unsubscribe is None or not live:
            return
        if channel.congested():
            assert self._loop is not None
            self._loop.call_later(_RETRY_S, self._notify, channel, name, live, params)
        else:
            channel.send(notification(_METHODS[name], params))
