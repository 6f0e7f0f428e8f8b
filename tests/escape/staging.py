"""Run probes in a process of their own, as root or as an ordinary user."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import toolcrib
from tests.escape.contestants import bwrap
from tests.escape.probe import Found, Outcome, Probe
from tests.patience import patient

__all__ = ["NOBODY", "Stage", "Worker", "compile_attacks", "for_an_ordinary_user", "kinds"]

NOBODY = 65534
ROOT = Path(__file__).parents[2]
SOURCE = Path(toolcrib.__file__).parents[1]
PATIENCE = 60.0
"""Seconds after which a probe counts as hung."""
USEFUL = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def kinds() -> tuple[str, ...]:
    """Who the probes are run as: by root also as an ordinary user."""
    return ("root", "user") if os.geteuid() == 0 else ("user",)


def compile_attacks(folder: Path) -> Path | None:
    """Build the C attacks, static where that works; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    target = folder / "attack"
    sources = sorted(str(path) for path in Path(__file__).with_name("programs").glob("*.c"))
    said = ""
    for extra in (["-static"], []):
        done = subprocess.run(
            [compiler, "-O1", *extra, "-o", str(target), *sources, "-lrt"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            target.chmod(0o755)
            return target
        said = done.stderr
    raise RuntimeError(f"the attacks do not compile: {said}")


class Stage:
    """A temporary folder that every user can read: compiled attacks, and copies of what he cannot reach."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="escape-", dir="/var/tmp", ignore_cleanup_errors=True
        )
        self.folder = Path(os.path.realpath(self._folder.name))
        self.folder.chmod(0o755)
        self.attacks = compile_attacks(self.folder)
        self._workers: dict[str, Worker] = {}
        self._user: tuple[str, str] | None = None

    def run(self, probe: Probe, kind: str, contestant: str = "ours") -> Found:
        """Run one probe; a server that the probe has killed or hung is an outcome, too."""
        denied = "namespaces" if contestant == "level landlock" else ""
        key = f"{kind} {denied}"
        worker = self._workers.get(key)
        if worker is None:
            worker = self._workers[key] = self._start(kind, denied)
        found = worker.run(probe, contestant)
        if worker.process.poll() is not None:
            del self._workers[key]
        return found

    def close(self) -> None:
        """End the workers, remove everything."""
        for worker in self._workers.values():
            worker.close()
        self._folder.cleanup()

    def _start(self, kind: str, denied: str) -> Worker:
        room = self.folder / f"room-{kind}-{secrets.token_hex(4)}"
        room.mkdir()
        attacks = str(self.attacks or "-")
        if kind == "root" or os.geteuid() != 0:
            path = os.pathsep.join([str(ROOT), str(SOURCE)])
            return Worker(sys.executable, path, room, attacks, None, denied)
        os.chown(room, NOBODY, NOBODY)
        if self._user is None:
            self._user = for_an_ordinary_user(self.folder)
        return Worker(*self._user, room, attacks, NOBODY, denied)


def for_an_ordinary_user(folder: Path) -> tuple[str, str]:
    """An interpreter and a search path that such a user can use: the originals, or copies in the folder."""
    for python in interpreters():
        if ordinary(python, os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])):
            return python, os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    copies = folder / "copies"
    copy_modules(copies)
    for python in interpreters():
        if ordinary(python, str(copies)):
            return python, str(copies)
    raise RuntimeError("no interpreter of this version that an ordinary user may run")


def interpreters() -> list[str]:
    """This interpreter, and the system's of the same version."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [os.path.realpath(sys.executable), f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"]


def ordinary(python: str, path: str) -> bool:
    """Whether an ordinary user can import the suite by this interpreter and search path."""
    try:
        done = subprocess.run(
            [python, "-c", "import tests.escape.worker, toolcrib.project, orjson, jsonschema_rs"],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            env={"PYTHONPATH": path, "PATH": ":".join(USEFUL)},
            cwd="/",
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def copy_modules(target: Path) -> None:
    """Copy the product, this suite and every third-party package they take."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE / "toolcrib", target / "toolcrib", ignore=ignore)
    shutil.copytree(Path(__file__).parent, target / "tests/escape", ignore=ignore)
    for name in ("certificates.py", "patience.py"):
        shutil.copy(ROOT / "tests" / name, target / "tests")
    done = subprocess.run(
        [sys.executable, "-m", "tests.escape.worker", "--modules"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(SOURCE)]),
            "ESCAPE_SERVER_SECRET": "-",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in json.loads(done.stdout.splitlines()[-1]):
        file = Path(name)
        site = next((parent for parent in file.parents if parent.name == "site-packages"), None)
        if site is None:
            continue
        top = site / file.relative_to(site).parts[0]
        if top.is_dir():
            shutil.copytree(top, target / top.name, ignore=ignore, dirs_exist_ok=True)
        else:
            shutil.copy(top, target)
    program = Path(bwrap() or "/")
    for package in program.parents[1:2] if "site-packages" in program.parts else ():
        for folder in package.parent.glob(f"{package.name}*"):  # itself, and the libraries beside it
            shutil.copytree(folder, target / folder.name, ignore=ignore)


class Worker:
    """One process that runs probes; see `worker`."""

    def __init__(
        self, python: str, path: str, room: Path, attacks: str, user: int | None, denied: str = ""
    ) -> None:
        self.secret = f"server-{secrets.token_hex(8)}"
        env: Mapping[str, str] = {
            "PATH": os.environ.get("PATH", ":".join(USEFUL)) if user is None else ":".join(path_of_a_user()),
            "PYTHONPATH": path,
            "ESCAPE_SERVER_SECRET": self.secret,
            "HOME": str(room),
            "TMPDIR": str(room),
            "LANG": "C.UTF-8",
        }
        more: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
        # What a container's filter denies is denied to the server, too.
        before = [python, "-m", "tests.escape.denied", denied] if denied else []
        self.process = subprocess.Popen(
            [*before, python, "-m", "tests.escape.worker", str(room), attacks],
            env=env,
            cwd="/" if user is not None else ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **more,
        )

    def run(self, probe: Probe, contestant: str) -> Found:
        """Ask for one probe and wait for its outcome."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = json.dumps({"probe": probe.name, "contestant": contestant}) + "\n"
        try:
            self.process.stdin.write(asked.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return Found(Outcome.NOT_RUN, "the server could not be started", {})
        line = b""
        answers = select.poll()  # The tests may have more files open than select(2) takes.
        answers.register(self.process.stdout, select.POLLIN)
        if answers.poll(patient(PATIENCE) * 1000):
            line = self.process.stdout.readline()
        if not line:
            hung = self.process.poll() is None
            self.close()
            how = "hung" if hung else f"ended with {self.process.returncode}"
            return Found(Outcome.ESCAPED, f"the server {how}", {})
        answer = json.loads(line)
        return Found(Outcome(answer["outcome"]), answer["evidence"], answer["report"])

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


def path_of_a_user() -> list[str]:
    """The search path without the folders of root's that an ordinary user cannot enter."""
    return [*dict.fromkeys([*USEFUL, *(part for part in os.environ.get("PATH", "").split(":") if part)])]
