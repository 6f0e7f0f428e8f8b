"""The values of a template's references at one call, and their form as text."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from toolcrib.errors import InvalidInput, ToolcribError, UnavailableError, Violation
from toolcrib.spec import Call, CallContext, Tool
from toolcrib.spec.naming import short_name
from toolcrib.template.tree import Reference

_SLUG = re.compile(r"[^\W_]([^\W_]|-)*")
_NOUNS = {
    "argument": "argument",
    "secret": "secret",
    "env": "environment variable",
    "context": "context value",
}


@lru_cache
def _slug(name: str) -> str | None:
    return name if len(name) <= 64 and _SLUG.fullmatch(name) else None


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""Stands for an absent optional value: where a position can drop its entry, it does."""


class Values:
    """The values of one call by namespace. A value is never expanded again, whatever text it is."""

    __slots__ = ("_spaces", "arguments", "env")

    def __init__(
        self,
        arguments: Mapping[str, Any] | None = None,
        *,
        secrets: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        self.arguments = arguments or {}
        self.env = env or {}
        self._spaces: dict[str, Mapping[str, Any]] = {
            "argument": self.arguments,
            "secret": secrets or {},
            "env": self.env,
            "context": context or {},
        }

    @classmethod
    def of(cls, tool: Tool, call: Call, ctx: CallContext) -> Values:
        """Return the values of one attempt; `call.arguments` must be the validated object."""
        arguments, name = call.arguments, short_name(tool.name)
        return cls(
            arguments if isinstance(arguments, dict) else {},
            secrets=ctx.secrets,
            # Only the declared names: a template must not read any other variable of this process.
            env=tool.permissions.environment(os.environ),
            context={
                "version": str(tool.version),
                "name": name,
                "slug": _slug(name),
                "run_id": ctx.run_id,
                "session_id": ctx.session_id,
            },
        )

    def get(self, reference: Reference) -> Any:
        """The value, its default, or MISSING. A path that leads nowhere is MISSING too."""
        value: Any = self._spaces[reference.namespace or "argument"].get(reference.name, MISSING)
        for step in reference.path:
            if isinstance(step, int):
                value = value[step] if isinstance(value, list) and step < len(value) else MISSING
            else:
                value = value.get(step, MISSING) if isinstance(value, dict) else MISSING
        if value is None and reference.namespace == "context":
            return MISSING
        if reference.default is not None and (value is MISSING or value is None):
            return reference.default.value
        return value

    def is_true(self, test: Reference) -> bool:
        """Return True if the value of a condition's test is there, and not null, false, 0 or empty."""
        value = self.get(test)
        return value is not MISSING and bool(value)

    def text(self, reference: Reference) -> str | Missing:
        """The value as text for a position that is not JSON; null counts as missing."""
        value = self.get(reference)
        # The usual case first: such text needs no check.
        if type(value) is str and value.isascii():
            return value
        if value is MISSING or value is None:
            return MISSING
        return scalar_text(reference, value)


def scalar_text(reference: Reference, value: Any) -> str:
    """`value` in plain text: booleans as true/false, numbers never in exponent form.

    Arrays, objects, numbers that are not finite and text that UTF-8 cannot hold raise (see `bad_value`).
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise bad_value(reference, "it contains half of a surrogate pair") from None
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        try:
            # Python refuses to write integers of more than 4,300 digits, because that takes long.
            return str(value)
        except ValueError:
            raise bad_value(reference, "the number has too many digits") from None
    if isinstance(value, float):
        return _number(reference, value)
    raise bad_value(reference, "arrays and objects are allowed in JSON positions only")


def literal_text(value: Any) -> str:
    """A scalar of a manifest as text: booleans as true/false."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _number(reference: Reference, value: float) -> str:
    if not math.isfinite(value):
        raise bad_value(reference, "it is not a finite number")
    if value.is_integer():
        return str(int(value))
    plain = repr(value)
    if "e" in plain:
        from decimal import Decimal

        plain = format(Decimal(plain), "f")
    return plain


def bad_value(reference: Reference, reason: str) -> ToolcribError:
    """The error for a value that is not allowed where it is: InvalidInput for an argument, else Unavailable.

    The value itself is never in the message: it may be secret.
    """
    if reference.namespace in (None, "argument"):
        violation = Violation(reference.json_path, reason)
        return InvalidInput(f"{reference.json_path}: {reason}", violations=[violation])
    noun = _NOUNS[reference.namespace]
    return UnavailableError(
        f"the {noun} `{reference.name}` cannot be used here: {reason}", details={"name": reference.name}
    )
