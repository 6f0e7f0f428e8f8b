"""Values of the `${NAME}` in a server's entry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolcrib.errors import ToolUnavailable

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

__all__ = ["environment_of", "values_needed"]


def environment_of(spec: ServerSpec) -> dict[str, str]:
    """Return the variables under `permissions.env` that are set."""
    return {name: os.environ[name] for name in spec.permissions.env if name in os.environ}


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
