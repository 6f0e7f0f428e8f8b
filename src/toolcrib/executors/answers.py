"""The failure of a function in another process, as the exception that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from toolcrib.errors import RetryableError, ToolCancel, ToolDiscard, ToolFailed, ToolSignal, ToolSnooze

__all__ = ["SIGNALS", "raise_failure"]

SIGNALS: dict[str, type[ToolSignal]] = {
    kind.__name__: kind for kind in (RetryableError, ToolCancel, ToolDiscard, ToolSnooze)
}
"""Signals by name, so that code without Toolcrib can raise its own exceptions of these names."""


def raise_failure(
    name: str,
    message: str,
    signal: str | None = None,
    delay: Any = 0.0,
    details: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Raise the signal of that name, or `ToolFailed` with the exception's type and message."""
    if signal == "ToolSnooze":
        raise ToolSnooze(delay if isinstance(delay, (int, float)) else 0.0, message)
    if signal is not None:
        raise SIGNALS[signal](message)
    text = message if name in ("Exception", "RuntimeError") and message else f"{name}: {message}"
    raise ToolFailed(text.removesuffix(": "), details={"exception": name, **(details or {})})
