"""Outcomes made into results: values as JSON, outputs checked, secrets masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolcrib.core.bound import Bound
from toolcrib.core.failures import shorten
from toolcrib.errors import InvalidOutput, ToolFailed, Violation
from toolcrib.schema import to_json
from toolcrib.spec import Result
from toolcrib.spec.calls.content import read_blocks

Mask = Callable[[Any], Any]
"""Returns a JSON value with every secret in it masked."""

_PLAIN = frozenset({bool, type(None)})
# The range of orjson: signed and unsigned integers of 64 bits.
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1


def normalise(value: Any) -> Any:
    """Return a tool's value as JSON: dataclasses, models, dates, enums, sets and tuples become plain."""
    kind = value.__class__
    # The usual values, without a copy. Other text can contain a lone surrogate, which no JSON text can hold,
    # so it takes the long way, where that is found.
    if (kind is str and value.isascii()) or (kind is int and _MIN_INT <= value <= _MAX_INT) or kind in _PLAIN:
        return value
    try:
        return to_json(value)
    except TypeError as error:
        raise ToolFailed(
            f"the tool returned a value of type {type(value).__name__} that is not JSON: {error}",
            hint="Return text, numbers, lists, dicts, dataclasses or pydantic models.",
        ) from None


def content_blocks(value: Any) -> tuple[dict[str, Any], ...]:
    """Return the blocks that a tool of the format `content` gave. Raises ToolFailed if it gave others."""
    try:
        return read_blocks(normalise(value))
    except ValueError as error:
        raise ToolFailed(
            f"the output is not content of MCP: {error}",
            hint='Write a block such as {"type": "image", "data": "…", "mimeType": "image/png"}, or a list.',
        ) from None


def check_output(bound: Bound, value: Any, mask: Mask | None) -> tuple[str, ...]:
    """Return warnings about an output that does not match its schema, or raise `InvalidOutput`."""
    violations = bound.output_violations(value)
    if not violations:
        return ()
    if mask is not None and (shown := mask(value)) is not value:
        # A violation quotes the beginning of the value, so the value is masked first.
        violations = bound.output_violations(shown) or [
            Violation("$", "does not match where it contains a secret")
        ]
    listed = "; ".join(f"{v.path} {v.message}" for v in violations[:10])
    if bound.tool.output.on_violation == "fail":
        raise InvalidOutput(f"the output does not match its schema: {listed}", violations=violations)
    return (f"the output does not match its schema: {listed}",)


def warn_of_created(result: Result, paths: Sequence[str]) -> None:
    """Add a warning for each path that the call has created and that starts other programs."""
    from toolcrib.executors.workspace.grants import startup_warning

    warnings = tuple(map(startup_warning, dict.fromkeys(paths)))
    if result.error is None:
        result.warnings += warnings
    else:  # It has no warnings of its own.
        result.error.hint = "; ".join(filter(None, (*warnings, result.error.hint)))


def mask_result(result: Result, mask: Mask) -> None:
    """Mask secrets in everything that a caller sees. The error is changed in place: it is this call's own."""
    result.value = mask(result.value)
    if result.blocks:
        result.blocks = tuple(mask(list(result.blocks)))
    if result.details is not None:
        result.details = mask(result.details)
    if result.warnings:
        result.warnings = tuple(mask(list(result.warnings)))
    if result.error is not None:
        result.error.apply_mask(mask)
        shorten(result.error)
