"""Masks secrets in what is logged with Python's `logging`."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["LOGGERS", "MaskingFilter"]

LOGGERS = (
    "toolcrib.calls",
    "toolcrib.egress.proxy.gate",
    "toolcrib.egress.proxy.server",
    "toolcrib.project.catalog.reload",
    "toolcrib.serve.mcp.connection",
    "toolcrib.tools",
)
"""The loggers that Toolcrib writes to."""

_OWN = frozenset(vars(logging.makeLogRecord({})))


class MaskingFilter(logging.Filter):
    """A filter that masks secrets in a record: message and arguments, exception, stack, `extra` fields.

    `redact` is a `Redactor.redact` or anything alike. Logging asks a logger's filters only for what is
    logged on that very logger, so `install` puts it on each of Toolcrib's; put it on a handler to have
    everything masked that goes through it.
    """

    def __init__(self, redact: Callable[[Any], Any]) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record in place; it is always let through."""
        try:
            message = record.getMessage()
        except Exception:  # Arguments that do not fit the message, or fail to be written.
            message = f"{record.msg!r} {type(record.args).__name__}"
        record.msg, record.args = self._redact(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        record.exc_info = None  # Else a formatter of its own kind would write it anew.
        record.exc_text = self._redact(record.exc_text)
        record.stack_info = self._redact(record.stack_info)
        for name, value in vars(record).items():
            if name not in _OWN:
                setattr(record, name, self._redact(value))
        return True

    def install(self) -> None:
        """Filter what is logged on Toolcrib's own loggers from now on."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def remove(self) -> None:
        """Undo `install`."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)
