"""Middleware: wrappers around every call of a toolset, the first one added outermost."""

from toolcrib.middleware.cache import cache_middleware
from toolcrib.middleware.calls import logging_middleware, retry_middleware, timeout_middleware
from toolcrib.middleware.handler import Handler, Middleware, as_middleware, middleware_name, only
from toolcrib.middleware.rates import rate_limit_middleware
from toolcrib.middleware.redaction import redaction_middleware
from toolcrib.middleware.tracing import tracing_middleware

__all__ = [
    "Handler",
    "Middleware",
    "as_middleware",
    "cache_middleware",
    "logging_middleware",
    "middleware_name",
    "only",
    "rate_limit_middleware",
    "redaction_middleware",
    "retry_middleware",
    "timeout_middleware",
    "tracing_middleware",
]
