"""A line on the terminal while a command takes its time."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from toolcrib.cli.output import print_note, printable

_QUIET_S = 0.3
"""A shorter wait shows nothing."""
_EVERY_S = 0.1


@contextmanager
def waiting(doing: str, *, elsewhere: str = "") -> Iterator[Callable[[str], None]]:
    """Show `doing` and the time on one line of the terminal until the block ends.

    Gives a function that sets a text behind them. Without a terminal, or on one that cannot rewrite a
    line, `elsewhere` is printed once.
    """
    ended, more = threading.Event(), [""]

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
            text = f"{doing} {time.monotonic() - started:.1f} s {more[0]}"
            click.echo(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", err=True, nl=False)
            if ended.wait(_EVERY_S):
                click.echo("\r\x1b[K", err=True, nl=False)
                return

    def say(text: str) -> None:
        # It comes from the tool: control characters could change what the terminal shows.
        more[0] = printable(text)

    thread = threading.Thread(target=show, name="toolcrib-progress", daemon=True)
    thread.start()
    try:
        yield say
    finally:
        ended.set()
        # The thread clears its line at the end; a result printed before that would be lost in it.
        thread.join()
