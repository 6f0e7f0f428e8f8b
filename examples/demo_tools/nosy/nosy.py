"""A tool that reaches for what it was not granted."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def run(port: int) -> dict[str, str]:
    """The outcome of each try."""
    return {
        "read /etc/shadow": attempt(lambda: Path("/etc/shadow").read_text()),
        "connect to a server on this machine": attempt(lambda: connect(port)),
        "see the variable DEMO_PRIVATE": attempt(lambda: os.environ["DEMO_PRIVATE"]),
    }


def attempt(action: Callable[[], object]) -> str:
    """Do it and say what happened."""
    try:
        return f"GOT THROUGH: {action()}"
    except (OSError, KeyError) as error:
        return f"stopped ({type(error).__name__}: {error})"


def connect(port: int) -> str:
    """Reach the server that the demo runs."""
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        return "connected"
