"""Mask secrets in records of Python's `logging`."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

LOGGERS = (
    "pgqueuer",
    "toolcrib.calls",
    "toolcrib.core",
    "toolcrib.egress.proxy.dialer",
    "toolcrib.egress.proxy.server",
    "toolcrib.project.catalog.bundles",
    "toolcrib.project.catalog.reload",
    "toolcrib.runs",
    "toolcrib.serve.http",
    "toolcrib.serve.mcp",
    "toolcrib.serve.rest",
    "toolcrib.state.outbox",
    "toolcrib.tools",
)
"""The loggers that Toolcrib, and PgQueuer for it, write to."""

_STANDARD = frozenset(vars(logging.makeLogRecord({})))


class MaskingFilter(logging.Filter):
    """A filter that masks secrets in a record: message and arguments, exception, stack, `extra` fields.

    `redact` is `Redactor.redact` or a similar function. A logger's filters apply only to records logged on
    that very logger, so `install` adds this one to each of Toolcrib's. Add it to a handler to mask every
    record that the handler writes.
    """

    def __init__(self, redact: Callable[[Any], Any]) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record in place and return True."""
        try:
            message = record.getMessage()
        except Exception:  # The arguments do not fit the message, or cannot be formatted.
            message = f"{record.msg!r} {type(record.args).__name__}"
        record.msg, record.args = self._redact(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        record.exc_info = None  # Else a formatter could format the exception again, unmasked.
        record.exc_text = self._redact(record.exc_text)
        record.stack_info = self._redact(record.stack_info)
        for name, value in vars(record).items():
            if name not in _STANDARD:
                setattr(record, name, self._redact(value))
        return True

    def install(self) -> None:
        """Filter these loggers from now on."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def remove(self) -> None:
        """Undo `install`."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)
