"""A line on the terminal while a command takes its time."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from toolcrib.cli.output import print_note, print_result, printable

_QUIET_S = 0.3
"""A shorter wait shows nothing."""
_EVERY_S = 0.1


class StatusLine:
    """The line of a terminal that says what runs. Output is printed above it."""

    def __init__(self) -> None:
        self.text = ""
        self.drawn = False
        self.writes = threading.Lock()

    def __call__(self, text: str) -> None:
        """Set the text behind the time."""
        # It comes from the tool: control characters could change what the terminal shows.
        self.text = printable(text)

    def above(self, output: str) -> None:
        """Print whole lines of output where the line stands; it is written again below them."""
        with self.writes:
            if self.drawn:
                click.echo("\r\x1b[K", err=True, nl=False)
            print_result(output, nl=False)


@contextmanager
def waiting(doing: str, *, elsewhere: str = "") -> Iterator[StatusLine]:
    """Show `doing` and the time on one line of the terminal until the block ends.

    Gives the line, which takes a text to stand behind them. Without a terminal, or on one
    that cannot rewrite a line, `elsewhere` is printed once.
    """
    ended, line = threading.Event(), StatusLine()

    def show() -> None:
        started = time.monotonic()
        if ended.wait(_QUIET_S):
            return
        if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            if elsewhere:
                print_note(elsewhere)
            return
        import shutil

        while True:
            text = f"{doing} {time.monotonic() - started:.1f} s {line.text}"
            with line.writes:
                line.drawn = True
                click.echo(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", err=True, nl=False)
            if ended.wait(_EVERY_S):
                click.echo("\r\x1b[K", err=True, nl=False)
                return

    thread = threading.Thread(target=show, name="toolcrib-progress", daemon=True)
    thread.start()
    try:
        yield line
    finally:
        ended.set()
        # The thread clears its line at the end; a result printed before that would be lost in it.
        thread.join()
