"""Where a probe takes place: a project that may be granted, canaries that may not, and one sandbox.

What a probe reports is checked from here, outside of the sandbox, wherever that is possible: a random
token that must not turn up, files that must not have changed, listeners that must not be called.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tests.escape.contestants import CONTESTANTS, Done
from tests.escape.probe import Found, Outcome
from tests.patience import patient
from toolcrib.project import Project, find, load_config
from toolcrib.sandbox import Confinement
from toolcrib.spec import Result

__all__ = ["PATH", "PYTHON", "PYTHON_FILES", "Arena", "Listener", "eventually", "words"]

PATH = "/usr/local/bin:/usr/bin:/bin"
PYTHON = os.path.realpath(sys.executable)
PYTHON_FILES = () if PYTHON.startswith("/usr/") else (os.path.realpath(sys.base_prefix),)
T = TypeVar("T")
Snapshot = dict[str, tuple[Any, ...]]


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Whether a condition comes true within some seconds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > patient(seconds):
            return False
        time.sleep(0.005)
    return True


class Listener:
    """A canary that counts who calls; over unix sockets it hands a descriptor to whoever does."""

    def __init__(self, sock: socket.socket, gift: int = -1) -> None:
        self.sock = sock
        self.calls = 0
        self._gift = gift
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        if sock.type != socket.SOCK_DGRAM:
            sock.listen(16)
        sock.settimeout(0.02)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                if self.sock.type == socket.SOCK_DGRAM:
                    self.sock.recv(64)
                    self.calls += 1
                    continue
                peer, _ = self.sock.accept()
                self.calls += 1
                with peer:
                    if self._gift >= 0:
                        socket.send_fds(peer, [b"gift"], [self._gift])
            except TimeoutError:
                continue
            except OSError:
                continue

    def close(self) -> None:
        """Count those who wait already, and stop."""
        time.sleep(0.05)
        self._stop.set()
        self._thread.join()
        self.sock.close()


class Arena:
    """One sandbox, and what it must keep a job from."""

    def __init__(self, base: Path, contestant: str, attacks: Path | None) -> None:
        base = Path(os.path.realpath(base))
        self.base, self.contestant = base, contestant
        self.project, self.outside = base / "project", base / "outside"
        self.token = f"token-{secrets.token_hex(8)}"
        self.canary = self.outside / "canary"
        self.attacks = attacks
        self.report: Mapping[str, Any] = {}
        self._lay_out()

    def _lay_out(self) -> None:
        for folder in (".git/hooks", ".toolcrib/tools", ".toolcrib/audit", "src/deep", "secrets", "scripts"):
            (self.project / folder).mkdir(parents=True)
        self.outside.mkdir()
        for path in (
            self.canary,
            self.project / ".env",
            self.project / "secrets/key",
            self.project / ".toolcrib/state.db",
        ):
            path.write_text(f"{self.token}\n")
        for name in (
            ".git/config",
            ".git/hooks/pre-commit",
            ".toolcrib/config.yml",
            "src/file",
            "src/deep/file",
        ):
            (self.project / name).write_text("# as it was\n")

    # -- running ---------------------------------------------------------------------------------

    def run(self, *argv: str, **fields: Any) -> Done:
        """Give a job to the sandbox; in /tmp unless something else is said."""
        fields.setdefault("cwd", "/tmp")
        fields.setdefault("env", {"PATH": PATH})
        fields.setdefault("timeout_ms", 60_000)
        for name in ("read", "write", "hide", "protect", "scratch"):
            if name in fields:
                fields[name] = tuple(dict.fromkeys(str(path) for path in fields[name]))
        done = CONTESTANTS[self.contestant](Confinement(argv=argv, **fields))
        self.report = done.report
        return done

    def sh(self, script: str, *arguments: object, **fields: Any) -> Done:
        """Run a shell script; it is known to have run by the word it begins with."""
        return self.run("/bin/sh", "-c", f"echo tried; {script}", "sh", *map(str, arguments), **fields)

    def py(self, code: str, *arguments: object, **fields: Any) -> Done:
        """Run Python code; it is known to have run by the word it begins with."""
        fields["read"] = (*fields.get("read", ()), *PYTHON_FILES)
        argv = (PYTHON, "-I", "-S", "-c", f"print('tried', flush=True)\n{code}", *map(str, arguments))
        return self.run(*argv, **fields)

    def attack(self, name: str, *arguments: object, **fields: Any) -> Done:
        """Run one of the compiled attacks, which is granted for reading."""
        assert self.attacks is not None
        fields["read"] = (*fields.get("read", ()), self.attacks)
        return self.run(str(self.attacks), name, *map(str, arguments), **fields)

    @contextmanager
    def meanwhile(self, body: Callable[[], T]) -> Iterator[list[T]]:
        """Run a second job of the same sandbox beside what stands in the `with` block."""
        found: list[T] = []
        thread = threading.Thread(target=lambda: found.append(body()))
        thread.start()
        try:
            yield found
        finally:
            thread.join()

    # -- projects --------------------------------------------------------------------------------

    def tool(self, name: str, **manifest: Any) -> Path:
        """Write a manifest into the project; JSON is YAML. Its folder comes back."""
        kind = next(iter(manifest["exec"]))
        folder = self.project / ".toolcrib/tools" / name
        folder.mkdir(exist_ok=True)
        whole = {"name": name, "description": "A tool.", "kind": kind, "version": 1, **manifest}
        whole.setdefault("outputs", {"format": "text" if kind != "python" else "json"})
        (folder / "tool.yml").write_text(json.dumps(whole, indent=1))
        return folder

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Result:
        """Call a tool of the project, with a person's approval, and keep what held it."""
        import asyncio

        async def once() -> Result:
            async with self.opened() as project:
                return await project.call(name, arguments, approved_by="test")

        result = asyncio.run(once())
        details = result.details if result.error is None else result.error.details
        self.report = (details or {}).get("enforcement", {})
        if result.error is not None and result.error.code == "sandbox_unavailable":
            self.report = dict(result.error.details)
        return result

    def opened(self) -> Project:
        """The project, trusted and with the minimum that this sandbox stands for."""
        if self.contestant != "level landlock":
            return Project.open(self.project, accept="all")
        place = find(self.project)
        return Project(
            place, replace(load_config(place.config), sandbox_minimum="landlock"), trusted=True, accept="all"
        )

    # -- judging ---------------------------------------------------------------------------------

    def found(self, done: Done, escaped: object, evidence: str = "") -> Found:
        """Decide by what was seen from outside; `tried` in the output shows that the attempt was made."""
        said = " ".join((evidence or done.refused or done.text).split())[-300:]
        if escaped:
            return Found(Outcome.ESCAPED, said, self.report)
        if "tried" not in done.text:
            why = done.refused or f"exit {done.exit_code}, signal {done.signal}: {said}"
            return Found(Outcome.NOT_RUN, why, self.report)
        return Found(Outcome.BLOCKED, said, self.report)

    def refused(self, done: Done, escaped: object) -> Found:
        """The same for a job that is right not to be run at all."""
        if done.refused and not escaped:
            return Found(Outcome.BLOCKED, done.refused[-300:], self.report)
        return self.found(done, escaped)

    def token_kept(self, done: Done) -> Found:
        """Escaped where the token is in what was written."""
        return self.found(done, self.token in done.text)

    def nothing_gained(self, done: Done) -> Found:
        """Escaped where an attack says that a call worked which must not; for what leaves no other trace."""
        gained = [line for line in done.text.splitlines() if line.startswith("GAINED")]
        return self.found(done, gained, "; ".join(gained))

    def answered(self, result: Result, escaped: object, ran: object = True, evidence: str = "") -> Found:
        """Judge a project's call: `ran` says whether the attempt was made."""
        said = " ".join((evidence or str(result.error or result.value)).split())[-300:]
        if escaped:
            return Found(Outcome.ESCAPED, said, self.report)
        return Found(Outcome.BLOCKED if ran else Outcome.NOT_RUN, said, self.report)

    # -- looking ---------------------------------------------------------------------------------

    def snapshot(self, *roots: Path) -> Snapshot:
        """Everything about every file below some folders."""
        seen: Snapshot = {}
        for root in roots or (self.outside,):
            for path in (root, *sorted(root.rglob("*"))):
                info = path.lstat()
                what: Any = None
                if stat.S_ISREG(info.st_mode):
                    what = hashlib.sha256(path.read_bytes()).hexdigest()
                elif stat.S_ISLNK(info.st_mode):
                    what = str(path.readlink())
                names = os.listxattr(path, follow_symlinks=False)
                owner = (info.st_uid, info.st_gid, info.st_nlink if not path.is_dir() else 0)
                seen[str(path)] = (info.st_mode, *owner, info.st_mtime_ns, what, tuple(names))
        return seen

    def changes(self, before: Snapshot, *roots: Path) -> str:
        """The paths that are not as they were."""
        after = self.snapshot(*roots)
        paths = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        return " ".join(sorted(paths))

    @contextmanager
    def victim(self, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process of the same user that a tool must leave alone."""
        with subprocess.Popen(["sleep", "600"], env={"PATH": PATH, **env}, start_new_session=True) as process:
            comm = Path(f"/proc/{process.pid}/comm")
            try:
                eventually(lambda: comm.read_text() == "sleep\n")
                yield process
            finally:
                process.kill()


def words(result: Result) -> str:
    """All that a caller sees of a result."""
    return json.dumps(result.as_dict(), default=str)
