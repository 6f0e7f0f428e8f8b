"""The person this process runs for."""

from __future__ import annotations

import os
import pwd


def user_name(uid: int | None = None) -> str:
    """Return the name of a user, by default this process's, from the system rather than the environment."""
    number = os.getuid() if uid is None else uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"
