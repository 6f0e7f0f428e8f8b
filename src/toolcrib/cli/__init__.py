"""The command line. Each command is imported when it runs, so that `toolcrib --help` stays fast."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the `toolcrib` program."""
    from toolcrib.cli.group import toolcrib

    toolcrib.main(prog_name="toolcrib")
