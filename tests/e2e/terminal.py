"""A program on a terminal of its own, as a person has it: typed at, read from, interrupted."""

from __future__ import annotations

import contextlib
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Any

from tests.commands import PROGRAM, Forked, accept_before
from tests.patience import patient

# The new session takes the terminal as its own, so that Ctrl-C reaches it as a signal.
TAKE = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """One program and the screen it writes to."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], columns: int = 80) -> None:
        self.master, theirs = os.openpty()
        self.process: subprocess.Popen[Any]
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        streams: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        if argv[0] == PROGRAM:
            self.process = Forked(argv, terminal=True, cwd=cwd, env=env, **streams)
        else:
            words = [sys.executable, "-c", TAKE, *argv]
            self.process = subprocess.Popen(words, cwd=cwd, env=env, start_new_session=True, **streams)
        os.close(theirs)
        self.raw = ""

    @property
    def text(self) -> str:
        """What was written, without colours and cursor movements."""
        return CONTROL.sub("", self.raw).replace("\r\n", "\n")

    def read_until(self, expected: str, seconds: float = 60.0) -> str:
        """Read until the screen has shown this text."""
        began = time.monotonic()
        while expected not in self.text:
            assert time.monotonic() - began < patient(seconds), f"{expected!r} never came: {self.text!r}"
            assert self._read(), f"{expected!r} never came: {self.text!r}"
        return self.text

    def read_more(self) -> bool:
        """Read what comes next; False at the end."""
        return self._read()

    def type(self, keys: str) -> None:
        """Press these keys; `\\x03` is Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self.master, keys.encode())

    def end(self, seconds: float = 60.0) -> int:
        """Read to the end; the exit status."""
        began = time.monotonic()
        while self._read():
            assert time.monotonic() - began < patient(seconds), self.text
        return self.process.wait(patient(seconds))

    def _read(self) -> bool:
        answers = select.poll()  # The tests may have more files open than select(2) takes.
        answers.register(self.master, select.POLLIN)
        if not answers.poll(5_000):
            return True
        try:
            data = os.read(self.master, 65_536)
        except OSError:  # The other side is closed.
            data = b""
        self.raw += data.decode(errors="replace")
        return bool(data)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@contextlib.contextmanager
def terminal(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], columns: int = 80, *, accepted: bool = True
) -> Iterator[Terminal]:
    """A program on a terminal, killed at the end; a command of `toolcrib` in an accepted project."""
    if accepted:
        accept_before(argv[1:], cwd, env)
    opened = Terminal(argv, cwd, env, columns)
    try:
        yield opened
    finally:
        opened.close()
