"""Notifications that the list of tools has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from toolcrib.serve.mcp.wire import SERVER_KEY, ErrorCode, JsonRpcError, RequestId, answer, busy, notification
from toolcrib.spec import Catalog

__all__ = ["ListChanges"]

_METHOD = "notifications/tools/list_changed"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_ID_KEY = "io.modelcontextprotocol/subscriptionId"
_MAX_STREAMS = 64
_RETRY_S = 0.25
"""Seconds until the next try if the client does not read."""


class ListChanges:
    """Notifies one client of changes: its session, and in 2026-07-28 each stream that asked for it.

    Changes that come close together are one notification.
    """

    def __init__(
        self,
        catalog: Catalog,
        send: Callable[[bytes], None],
        congested: Callable[[], bool],
        server_info: dict[str, str],
    ) -> None:
        self._catalog = catalog
        self._send = send
        self._congested = congested
        self._server_info = server_info
        self._session = False
        self._streams: dict[RequestId, bool] = {}
        """Id of a listening request to True if it asked for changes of the list."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._pending = False

    def __contains__(self, request_id: object) -> bool:
        """Return True if a request with this id listens."""
        return request_id in self._streams

    def begin_session(self) -> None:
        """Notify the session from now on."""
        self._session = True
        self._subscribe()

    def listen(self, params: dict[str, Any], request_id: RequestId) -> None:
        """Open the stream of a `subscriptions/listen` request, which is answered when the server ends it."""
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            raise JsonRpcError(
                ErrorCode.INVALID_PARAMS, "subscriptions/listen needs notifications, an object"
            )
        if len(self._streams) >= _MAX_STREAMS:
            raise busy("too many streams are open", "End one first.")
        honoured = wanted.get("toolsListChanged") is True
        self._subscribe()
        self._streams[request_id] = honoured
        granted = {"toolsListChanged": True} if honoured else {}
        self._send(notification(_ACKNOWLEDGED, {"notifications": granted, "_meta": {_ID_KEY: request_id}}))

    def cancel(self, request_id: RequestId) -> None:
        """End a stream at the client's wish."""
        self._streams.pop(request_id, None)

    def close(self) -> None:
        """Send no more notifications, and answer the requests that listen."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._session = False
        streams, self._streams = self._streams, {}
        for request_id in streams:
            meta = {_ID_KEY: request_id, SERVER_KEY: self._server_info}
            self._send(answer(request_id, {"resultType": "complete", "_meta": meta}))

    def _subscribe(self) -> None:
        if self._unsubscribe is None:
            self._loop = asyncio.get_running_loop()
            self._unsubscribe = self._catalog.on_change(self._changed)

    def _changed(self) -> None:
        """Note a change. Called in any thread."""
        if not self._pending and self._loop is not None and not self._loop.is_closed():
            self._pending = True
            self._loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        if self._congested() and self._unsubscribe is not None:
            assert self._loop is not None
            self._loop.call_later(_RETRY_S, self._notify)
            return
        self._pending = False
        if self._session:
            self._send(notification(_METHOD))
        for request_id, honoured in self._streams.items():
            if honoured:
                self._send(notification(_METHOD, {"_meta": {_ID_KEY: request_id}}))
