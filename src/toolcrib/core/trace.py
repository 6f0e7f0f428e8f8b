"""The trace that a call belongs to, as the text `traceparent` of W3C Trace Context: it crosses processes."""

from __future__ import annotations

import re
import secrets
import sys

_is_trace = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z").match


def read_trace(text: str | None) -> str | None:
    """Return a text that somebody sent, or None if it is no `traceparent`: W3C lets that be ignored."""
    return text if text is not None and _is_trace(text) else None


def current_trace() -> str | None:
    """Return the span of OpenTelemetry that is current here; None without one."""
    if "opentelemetry.trace" not in sys.modules:  # Then no span was begun, and the import would take time.
        return None
    from opentelemetry import trace

    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"


def new_trace() -> str:
    """Return the beginning of a new trace."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
