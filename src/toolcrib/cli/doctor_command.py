"""`toolcrib doctor`."""

from __future__ import annotations

import platform
from typing import Any

import click

from toolcrib.cli.output import json_option, say, write_json

__all__ = ["command"]


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Show what this machine can confine, found out by trying. Exit 1 if tools cannot be confined here."""
    from toolcrib import __version__
    from toolcrib.sandbox import level, probe

    mechanisms = probe()
    in_force = level()["level"]
    document: dict[str, Any] = {
        "toolcrib": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "level": in_force,
        "mechanisms": [
            {"name": m.name, "ok": m.ok, "required": m.required, "detail": m.detail, "cost": m.cost}
            for m in mechanisms
        ],
    }
    if as_json:
        write_json(document)
    else:
        _print(document)
    return 0 if in_force != "none" else 1


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
    say(f"\nlevel in force: {document['level']}")
