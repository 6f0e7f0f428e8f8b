"""Notifications that a list has changed: of tools, prompts or resources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.serve.mcp.request import Channel, McpRequest
from toolcrib.serve.mcp.wire import SERVER_KEY, ErrorCode, JsonRpcError, answer, busy, notification
from toolcrib.spec import Catalog

_METHODS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
_RESOURCES = "resourceSubscriptions"
_UPDATED = "notifications/resources/updated"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_ID_KEY = "io.modelcontextprotocol/subscriptionId"
_RETRY_S = 0.25
"""Seconds until the next try if the client does not read."""

_MAX_SUBSCRIPTIONS = 256
"""Resources whose changes one client can follow."""
_MAX_BYTES = 64 << 10
"""Length of their URIs together, and of a request to listen: both are kept while the client listens."""


@dataclass(slots=True)
class _Listener:
    """A session or a stream that is notified."""

    channel: Channel
    lists: frozenset[str]
    """Keys of the lists whose changes it wants."""
    uris: set[str]
    """Resources whose changes it wants."""
    request: McpRequest | None = None
    """The request of a stream."""
    live: bool = True
    missed: set[str] = field(default_factory=set)
    """Lists whose change was not sent yet, because the client does not read; then a later try is planned."""

    @property
    def marks(self) -> dict[str, Any]:
        """The parameters of each notification."""
        return {} if self.request is None else {"_meta": {_ID_KEY: self.request.id}}


class ListChanges:
    """Notifies sessions of changes, and in 2026-07-28 each stream that asked for it.

    Changes that come close together are one notification.
    """

    def __init__(
        self,
        catalog: Catalog,
        marks: Callable[[], Mapping[str, object]],
        server_info: dict[str, str],
        max_streams: int,
    ) -> None:
        self._catalog, self._marks = catalog, marks
        self._server_info = server_info
        self._max_streams = max_streams
        self._sessions: dict[Channel, _Listener] = {}
        self._streams: dict[object, _Listener] = {}
        self._seen: Mapping[str, object] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._pending = False

    def __contains__(self, key: object) -> bool:
        """Return True if a request with this key listens."""
        return key in self._streams

    def begin_session(self, channel: Channel) -> None:
        """Notify a session from now on."""
        self._session(channel).lists = frozenset(_METHODS)
        self._watch()

    def subscribe(self, channel: Channel, uri: str) -> None:
        """Notify a session of changes of a resource."""
        uris = self._session(channel).uris
        if len(uris) >= _MAX_SUBSCRIPTIONS or sum(map(len, uris)) + len(uri) > _MAX_BYTES:
            raise busy("too many resources are subscribed", "Unsubscribe one first.")
        uris.add(uri)
        self._watch()

    def unsubscribe(self, channel: Channel, uri: str) -> None:
        """Notify a session of changes of a resource no more."""
        self._session(channel).uris.discard(uri)

    def listen(self, request: McpRequest) -> None:
        """Open the stream of a `subscriptions/listen` request, which is answered when the server ends it."""
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise JsonRpcError(
                ErrorCode.INVALID_PARAMS, "subscriptions/listen needs notifications, an object"
            )
        if request.size > _MAX_BYTES:
            raise JsonRpcError(ErrorCode.INVALID_PARAMS, f"the request has more than {_MAX_BYTES} bytes")
        caller = request.channel.sender.caller
        # Of this caller: stateless requests over HTTP share one connection.
        if sum(one.channel.sender.caller == caller for one in self._streams.values()) >= self._max_streams:
            raise busy("too many streams are open", "End one first.")
        lists = frozenset(name for name in _METHODS if wanted.get(name) is True)
        given = wanted.get(_RESOURCES)
        uris = [uri for uri in given if isinstance(uri, str)] if isinstance(given, list) else []
        uris = uris[:_MAX_SUBSCRIPTIONS]
        listener = _Listener(request.channel, lists, set(uris), request)
        # Before the client is answered, so that it misses no change after the answer.
        self._watch()
        self._streams[request.key] = listener
        granted: dict[str, Any] = dict.fromkeys(sorted(lists), True)
        if uris:
            granted[_RESOURCES] = uris
        request.channel.send(notification(_ACKNOWLEDGED, {"notifications": granted, **listener.marks}))

    def cancel(self, key: object) -> None:
        """End a stream at the client's wish."""
        ended = self._streams.pop(key, None)
        if ended is not None and ended.request is not None:
            # A later try may be planned for it.
            ended.live = False
            ended.request.reply(None)
            self._rest()

    def close(self) -> None:
        """Send no more notifications, and answer the requests that listen."""
        streams, self._streams = self._streams, {}
        for listener in (*streams.values(), *self._sessions.values()):
            listener.live = False
        self._sessions.clear()
        self._rest()
        for request in (listener.request for listener in streams.values()):
            assert request is not None
            meta = {_ID_KEY: request.id, SERVER_KEY: self._server_info}
            request.reply(answer(request.id, {"resultType": "complete", "_meta": meta}))

    def _session(self, channel: Channel) -> _Listener:
        return self._sessions.setdefault(channel, _Listener(channel, frozenset(), set()))

    def _watch(self) -> None:
        if self._unsubscribe is None:
            self._loop = asyncio.get_running_loop()
            self._seen = self._marks()
            self._unsubscribe = self._catalog.on_change(self._changed)

    def _rest(self) -> None:
        """Watch nothing while nobody listens."""
        if self._unsubscribe is not None and not self._sessions and not self._streams:
            self._unsubscribe()
            self._unsubscribe = None

    def _changed(self) -> None:
        """Note a change. Called in any thread."""
        # A notification that is planned also covers this change: it compares the state of that moment.
        if not self._pending and self._loop is not None and not self._loop.is_closed():
            self._pending = True
            self._loop.call_soon_threadsafe(self._notify_all)

    def _notify_all(self) -> None:
        # First: a change from now on needs another notification.
        self._pending = False
        now, before = self._marks(), self._seen
        self._seen = now
        # The catalog reports only that some tool changed, and prompts and resources are tools as well.
        changed = frozenset(["toolsListChanged", *(name for name in now if now[name] != before.get(name))])
        for listener in (*self._sessions.values(), *self._streams.values()):
            self._notify(listener, changed)

    def _notify(self, listener: _Listener, changed: Iterable[str]) -> None:
        planned = bool(listener.missed)
        listener.missed.update(changed)
        if not planned:
            self._try(listener)

    def _try(self, listener: _Listener) -> None:
        if not listener.live:
            return
        # For a client that does not read, every message would only take memory.
        if listener.channel.congested():
            assert self._loop is not None
            self._loop.call_later(_RETRY_S, self._try, listener)
            return
        marks, changed, listener.missed = listener.marks, listener.missed, set()
        for name, method in _METHODS.items():
            if name in listener.lists and name in changed:
                listener.channel.send(notification(method, marks or None))
        for uri in sorted(listener.uris):
            listener.channel.send(notification(_UPDATED, {"uri": uri, **marks}))
