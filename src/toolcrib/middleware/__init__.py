"""Middleware: wrappers around every call of a toolset, the first one added outermost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_MODULES = {
    "cache_middleware": "cache",
    "logging_middleware": "calls",
    "rate_limit_middleware": "rates",
    "redaction_middleware": "redaction",
    "retry_middleware": "calls",
    "timeout_middleware": "calls",
    "tracing_middleware": "tracing",
}
"""Names to their modules, imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toolcrib.middleware.{_MODULES[name]}"), name)
