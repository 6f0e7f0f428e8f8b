"""Values of the `${NAME}` in a server's entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from toolcrib.errors import ToolUnavailable


@contextmanager
def values_needed() -> Iterator[None]:
    """Turn the KeyError of `expand`, for a name without a value, into ToolUnavailable."""
    try:
        yield
    except KeyError as error:
        name = error.args[0]
        raise ToolUnavailable(
            f"the variable {name} is not set", hint=f"Set it, or write ${{{name}:-default}}."
        ) from None
