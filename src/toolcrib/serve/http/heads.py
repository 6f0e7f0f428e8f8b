"""Limits on the head of an HTTP request, in bytes and in time, which uvicorn has not.

Anybody who can connect could otherwise fill the memory with one head, or take all connections with heads that
never end: a token is read only from a complete one.
"""

from __future__ import annotations

import asyncio
from typing import Any

HEAD_S = 20.0
MAX_HEAD = 128 << 10
"""Bytes of a head that is not complete yet."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class HeadLimits(asyncio.Protocol):
    """Comes before a protocol of uvicorn, whose `cycle` is the request that is read or answered."""

    head_s = HEAD_S
    cycle: Any
    transport: Any
    _head = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        in_body = before is not None and before.more_body
        super().data_received(data)
        if self.cycle is not before or in_body:
            self._head = 0
            self._stop_timer()
            return
        self._head += len(data)
        if self._head > MAX_HEAD:
            if not self._is_answering:
                self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._timer is None:
            self._start_timer()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.head_s, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        # After the answer to the request before, uvicorn's own limit for idle connections counts.
        if not self._is_answering:
            self.transport.close()
