"""The person this process runs for."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """Return the name of this process's user, from the system rather than the environment."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
