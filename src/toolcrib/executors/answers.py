"""The failure of a function in another process, as the exception that it stands for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from toolcrib.errors import RetryableError, ToolCancel, ToolDiscard, ToolFailed, ToolSignal, ToolSnooze

SIGNALS: dict[str, type[ToolSignal]] = {
    kind.__name__: kind for kind in (RetryableError, ToolCancel, ToolDiscard, ToolSnooze)
}
"""Signals by name, so that code without Toolcrib can raise its own exceptions of these names.

A `ToolSnooze` needs an attribute `delay`, a finite number of seconds. Any other exception of that name is an
ordinary failure: to run the tool again at once would repeat it without end.
"""


def raise_failure(
    name: str,
    message: str,
    signal: str | None = None,
    delay: Any = None,
    details: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Raise the signal of that name, or `ToolFailed` with the exception's type and message."""
    if signal == "ToolSnooze" and (type(delay) is int or (type(delay) is float and math.isfinite(delay))):
        raise ToolSnooze(delay, message)
    if signal is not None and signal != "ToolSnooze":
        raise SIGNALS[signal](message)
    text = message if name in ("Exception", "RuntimeError") and message else f"{name}: {message}"
    raise ToolFailed(text.removesuffix(": "), details={"exception": name, **(details or {})})
