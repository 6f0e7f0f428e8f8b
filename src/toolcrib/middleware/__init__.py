"""Middleware: wrappers around every call of a toolset, the first one added outermost."""

from typing import TYPE_CHECKING

from toolcrib.first_use import imported_on_use
from toolcrib.middleware.handler import Handler as Handler
from toolcrib.middleware.handler import Middleware as Middleware
from toolcrib.middleware.handler import as_middleware as as_middleware
from toolcrib.middleware.handler import middleware_name as middleware_name
from toolcrib.middleware.handler import only as only

if TYPE_CHECKING:
    from toolcrib.middleware.cache import cache_middleware as cache_middleware
    from toolcrib.middleware.calls import logging_middleware as logging_middleware
    from toolcrib.middleware.calls import retry_middleware as retry_middleware
    from toolcrib.middleware.calls import timeout_middleware as timeout_middleware
    from toolcrib.middleware.rates import rate_limit_middleware as rate_limit_middleware
    from toolcrib.middleware.redaction import redaction_middleware as redaction_middleware
    from toolcrib.middleware.tracing import tracing_middleware as tracing_middleware

__getattr__ = imported_on_use(__name__, {
    "cache": "cache_middleware",
    "calls": "logging_middleware retry_middleware timeout_middleware",
    "rates": "rate_limit_middleware",
    "redaction": "redaction_middleware",
    "tracing": "tracing_middleware",
})  # fmt: skip
