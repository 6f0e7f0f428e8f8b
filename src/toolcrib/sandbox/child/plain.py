"""Level `none`: a command that is limited and ended like any other, and not confined at all."""

from __future__ import annotations

import os

from toolcrib.sandbox.child.landlocked import open_grant
from toolcrib.sandbox.kernel.libc import PR_SET_NO_NEW_PRIVS, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def confine(job: dict[str, Any], _: int) -> list[tuple[int, int] | None]:
    """Forbid setuid programs to give rights; a granted path that does not exist is an error at this level as
    well."""
    found = []
    for source, target, mode, _ in job["mounts"]:
        fd, stamp = open_grant(source, target, mode)
        found.append(stamp)
        if fd >= 0:
            os.close(fd)
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)
    return found
