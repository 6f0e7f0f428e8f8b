"""Level `none`: a command that is limited and ended like any other, and not confined at all."""

from __future__ import annotations

from toolcrib.sandbox.child.confined import PR_SET_NO_NEW_PRIVS
from toolcrib.sandbox.child.landlocked import stamp
from toolcrib.sandbox.kernel.calls import prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["confine"]


def confine(job: dict[str, Any], _: int) -> list[tuple[int, int] | None]:
    """Gain no privilege by setuid programs; a granted path that is not there is an error here as well."""
    found = [stamp(source, target, mode) for source, target, mode, _ in job["mounts"]]
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)
    return found
