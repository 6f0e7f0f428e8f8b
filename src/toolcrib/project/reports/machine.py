"""The state of this machine: how well it can confine tools."""

from __future__ import annotations

import platform
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Try each mechanism and return the report as JSON. The first time may take 0.5 s."""
    from toolcrib import __version__
    from toolcrib.sandbox import level, probe
    from toolcrib.state import load_user_settings

    mechanisms = probe()
    report = level()
    open_to_all = load_user_settings().decide_without_terminal
    best = report["level"]
    return {
        "toolcrib": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "level": best,
        "enforcement": dict(report),
        "decide_without_terminal": open_to_all,
        "mechanisms": [
            {"name": m.name, "ok": m.ok, "required": m.required, "detail": m.detail, "cost": m.cost}
            for m in mechanisms
        ],
    }
