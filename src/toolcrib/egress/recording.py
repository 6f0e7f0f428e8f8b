"""The recorder of requests, for tests: what is set here answers in place of the network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from toolcrib.egress.message import EgressRequest, EgressResponse
from toolcrib.egress.policy import HostPolicy

Send = Callable[[EgressRequest, HostPolicy], Awaitable[EgressResponse]]
RECORDER: ContextVar[Callable[[EgressRequest, HostPolicy, Send], Awaitable[EgressResponse]] | None] = (
    ContextVar("toolcrib.recorder", default=None)
)
"""Gets each request, its policy, and the function that really sends it."""
