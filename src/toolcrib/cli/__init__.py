"""The command line. Commands are imported when they are run, so that `toolcrib --help` stays quick."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the `toolcrib` program."""
    import toolcrib.cli.group as program

    program.toolcrib.main(prog_name="toolcrib")
