"""The person this process runs for."""

from __future__ import annotations

import os
import pwd

__all__ = ["user_name"]


def user_name() -> str:
    """The user of this process; not what the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
