"""Tells a client that the list of tools has changed, in the way its protocol has for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from toolcrib.errors import UnavailableError
from toolcrib.serve.mcp.wire import BUSY, INVALID_PARAMS, SERVER_KEY, Refusal, RequestId, to_json
from toolcrib.spec import Catalog

__all__ = ["Changes"]

_METHOD = "notifications/tools/list_changed"
_ID_KEY = "io.modelcontextprotocol/subscriptionId"
_MOST_STREAMS = 64
_CONGESTED_S = 0.25
"""A client that does not read is told later, and once."""


class Changes:
    """One client's news of the list: a session is told, in 2026-07-28 whoever has asked to listen is.

    Many changes at once are told once.
    """

    def __init__(
        self,
        catalog: Catalog,
        send: Callable[[bytes], None],
        congested: Callable[[], bool],
        server: dict[str, str],
    ) -> None:
        self._catalog = catalog
        self._send = send
        self._congested = congested
        self._server = server
        self._session = False
        self._streams: dict[RequestId, bool] = {}
        """By the id of the request: whether it is to hear of the list."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None] | None = None
        self._pending = False

    def __contains__(self, request_id: object) -> bool:
        """Whether a request with this id listens."""
        return request_id in self._streams

    def begin_session(self) -> None:
        """The client has said that it is ready: from now on it is told."""
        self._session = True
        self._begin()

    def listen(self, params: dict[str, Any], request_id: RequestId) -> None:
        """Open the stream of a `subscriptions/listen`: its request is answered when the server ends it."""
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            raise Refusal(INVALID_PARAMS, "subscriptions/listen needs notifications, an object")
        if len(self._streams) >= _MOST_STREAMS:
            busy = UnavailableError("too many streams are open", hint="End one first.", retryable=True)
            raise Refusal(BUSY, busy.message, {"error": busy.as_dict()})
        honoured = wanted.get("toolsListChanged") is True
        self._begin()
        self._streams[request_id] = honoured
        self._notify(
            "notifications/subscriptions/acknowledged",
            {"notifications": {"toolsListChanged": True} if honoured else {}, "_meta": {_ID_KEY: request_id}},
        )

    def cancel(self, request_id: RequestId) -> None:
        """The client has ended a stream."""
        self._streams.pop(request_id, None)

    def close(self) -> None:
        """Tell nothing more, and answer the requests that listen."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        self._session = False
        streams, self._streams = self._streams, {}
        for request_id in streams:
            meta = {_ID_KEY: request_id, SERVER_KEY: self._server}
            result = {"resultType": "complete", "_meta": meta}
            self._send(to_json({"jsonrpc": "2.0", "id": request_id, "result": result}))

    def _begin(self) -> None:
        if self._stop is None:
            self._loop = asyncio.get_running_loop()
            self._stop = self._catalog.on_change(self._changed)

    def _changed(self) -> None:
        """The list has changed. Called in any thread."""
        if not self._pending and self._loop is not None and not self._loop.is_closed():
            self._pending = True
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if self._congested() and self._stop is not None:
            assert self._loop is not None
            self._loop.call_later(_CONGESTED_S, self._tell)
            return
        self._pending = False
        if self._session:
            self._notify(_METHOD, None)
        for request_id, honoured in self._streams.items():
            if honoured:
                self._notify(_METHOD, {"_meta": {_ID_KEY: request_id}})

    def _notify(self, method: str, params: dict[str, Any] | None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self._send(to_json(message))
