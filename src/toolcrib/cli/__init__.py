"""The command line. Each command is imported when it runs, so that `toolcrib --help` stays fast."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the `toolcrib` program."""
    import toolcrib.cli.group as program

    program.toolcrib.main(prog_name="toolcrib")
