"""`toolcrib doctor`."""

from __future__ import annotations

import platform
from typing import Any

import click

from toolcrib.cli.output import json_option, say, write_json

__all__ = ["command"]

_REFUSED = "Commands and Python tools are refused, unless a trusted project sets"
_MEANING = {
    "full+cgroup": "Commands and Python tools are confined, and every limit is held.",
    "full": "Commands and Python tools are confined; memory and number of processes are not bounded.",
    "landlock": f"{_REFUSED} sandbox.minimum: landlock.",
    "none": f"{_REFUSED} sandbox.minimum: none.",
}


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Show what this machine can confine, found out by trying. Exit 1 if less than level full can be had."""
    from toolcrib import __version__
    from toolcrib.sandbox import level, probe

    mechanisms = probe()
    report = level()
    best = report["level"]
    document: dict[str, Any] = {
        "toolcrib": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "level": best,
        "enforcement": dict(report),
        "mechanisms": [
            {"name": m.name, "ok": m.ok, "required": m.required, "detail": m.detail, "cost": m.cost}
            for m in mechanisms
        ],
    }
    if as_json:
        write_json(document)
    else:
        _print(document)
    return 0 if best.startswith("full") else 1


def _print(document: dict[str, Any]) -> None:
    from toolcrib.cli.table import print_table

    say(f"toolcrib {document['toolcrib']}, Python {document['python']}, Linux {document['kernel']}\n")
    print_table(
        ("MECHANISM", "", "DETAIL"),
        [
            (
                mechanism["name"],
                "ok" if mechanism["ok"] else "missing",
                mechanism["detail"] + (f"; until then: {mechanism['cost']}" if mechanism["cost"] else ""),
            )
            for mechanism in document["mechanisms"]
        ],
    )
    say(f"\nlevel: {document['level']}. {_MEANING[document['level']]}")
