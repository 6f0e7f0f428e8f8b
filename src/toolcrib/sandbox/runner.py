"""Run one confined command from an event loop: spawn its launcher, feed, read, time and end it."""

from __future__ import annotations

import asyncio
import fcntl
import marshal
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from toolcrib.errors import InvalidInput, UnavailableError, UsageError, Violation
from toolcrib.sandbox.failures import explain, unavailable
from toolcrib.sandbox.grants import Plan, plan
from toolcrib.sandbox.job import Completed, Confinement
from toolcrib.sandbox.streams import Drain

__all__ = ["ENFORCEMENT", "execute"]

GRACE = 0.3
"""Seconds between SIGTERM and the end of everything."""
LINGER = 0.3
"""Seconds output is still read after the end: somebody outside may hold a passed-on descriptor."""
LAUNCHER = Path(__file__).with_name("launcher.py")
# The bytecode of a module is cached, that of a script is compiled each time (6 ms).
START = "import sys; sys.path.append(sys.argv.pop()); import launcher; launcher.main(int(sys.argv[1]))"
LIMITS: dict[str, int] = {
    "cpu_s": resource.RLIMIT_CPU,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
}
ENFORCEMENT: dict[str, Any] = {
    "level": "namespaces",
    "fs": "mountns",
    "net": "netns",
    "proc": "pidns",
    "ipc": "ipcns",
    "privileges": "no capabilities, no_new_privs",
    "limits": {
        "wall": "kill of the pid namespace",
        "output": "discarded past the limit",
        "cpu": "rlimit (per process)",
        "file_size": "rlimit",
        "open_files": "rlimit (per process)",
        "tmp": "tmpfs size",
        "memory": "not enforced",
        "processes": "not enforced",
    },
    "missing": ["landlock", "seccomp", "cgroup"],
}


async def execute(job: Confinement) -> Completed:
    """Run a job; see `confine.run`."""
    check(job)
    mounts = plan(job)
    began = time.monotonic()
    run = Run(job, asyncio.get_running_loop())
    try:
        try:
            run.start(mounts)
        except OSError as error:
            raise UnavailableError(
                f"the command could not be started: {error.strerror}",
                hint="too many processes, open files or too little memory",
                retryable=True,
            ) from error
        await run.wait()
        await run.finish_reading()
    finally:
        run.close()
    return run.completed(mounts, (time.monotonic() - began) * 1000)


def check(job: Confinement) -> None:
    """Refuse what no process can be given."""
    if not job.argv or not job.argv[0]:
        raise UsageError("there is no command to run")
    for name in ("timeout_ms", "cpu_s", "open_files", "tmp_size"):
        if getattr(job, name) <= 0:
            raise UsageError(f"{name} must be above 0")
    for name in ("output_limit", "result_limit", "file_size"):
        if getattr(job, name) < 0:
            raise UsageError(f"{name} must not be negative")
    for index, argument in enumerate(job.argv):
        passable(argument, f"$.argv[{index}]")
    for name, value in job.env.items():
        if not name or "=" in name:
            raise UsageError(f"not a name of a variable: {name!r}")
        passable(name, "$.env")
        passable(value, f"$.env.{name}")


def passable(text: str, path: str) -> None:
    """Refuse text that cannot be an argument or variable of a process."""
    reason = "holds a NUL byte" if "\0" in text else ""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        reason = "holds a lone surrogate"
    if reason:
        raise InvalidInput(f"{path} {reason}", violations=(Violation(path, reason),))


class Run:
    """The life of one launcher: its descriptors, its messages and its clock."""

    def __init__(self, job: Confinement, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.loop = loop
        self.messages: list[str] = []
        self.timed_out = False
        self.ended: asyncio.Future[None] = loop.create_future()
        self.drains: list[Drain] = []
        self.timers: list[asyncio.TimerHandle] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.pidfd = -1

    def start(self, mounts: Plan) -> None:
        """Spawn the launcher with its job, and begin to read and to count time."""
        theirs: list[int] = []
        self.control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            fds = {"stdin": -1, "result": -1}
            limits = {"stdout": self.job.output_limit, "stderr": self.job.output_limit}
            if self.job.result_limit:
                limits["result"] = self.job.result_limit
            for name, limit in limits.items():
                mine, fds[name] = os.pipe2(os.O_CLOEXEC)
                theirs.append(fds[name])
                self.drains.append(Drain(self.loop, mine, limit))
            if self.job.stdin:
                fds["stdin"] = in_memory("stdin", self.job.stdin)
                theirs.append(fds["stdin"])
            job_fd = in_memory("job", marshal.dumps(self.describe(mounts, fds), 2))
            theirs.append(job_fd)
            self.process = spawn(job_fd, other.fileno(), theirs)
        finally:
            other.close()
            for fd in theirs:
                os.close(fd)
        self.control.setblocking(False)
        self.loop.add_reader(self.control.fileno(), self._receive)
        self.pidfd = os.pidfd_open(self.process.pid)
        self.loop.add_reader(self.pidfd, self._reap)
        self._after(self.job.timeout_ms / 1000, self._time_out)

    def describe(self, mounts: Plan, fds: dict[str, int]) -> dict[str, Any]:
        """The job as the launcher reads it."""
        job = self.job
        # Core limit 1 and not 0: the kernel then does not feed a core dump program either (core(5)).
        limits = [(resource.RLIMIT_CORE, 1), *((which, getattr(job, n)) for n, which in LIMITS.items())]
        return {
            "argv": list(job.argv),
            "cwd": job.cwd,
            "env": dict(job.env),
            "fds": fds,
            "limits": limits,
            "links": mounts.links,
            "mounts": [tuple(mount) for mount in mounts.mounts],
            "tmp_size": job.tmp_size,
        }

    async def wait(self) -> None:
        """Wait for the end of the whole tree; when cancelled, bring it about first."""
        try:
            await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            self._kill()
            await uncancelled(self.ended)
            raise

    async def finish_reading(self) -> None:
        """Read the rest; with all writers dead that is at once."""
        await asyncio.wait([drain.ended for drain in self.drains], timeout=LINGER)

    def close(self) -> None:
        """Let go of everything; a launcher that still runs dies of its closed socket."""
        for timer in self.timers:
            timer.cancel()
        for drain in self.drains:
            drain.close()
        if self.control is not None:
            self.loop.remove_reader(self.control.fileno())
            self.control.close()
            self.control = None
        if self.pidfd >= 0:
            self.loop.remove_reader(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = -1

    def completed(self, mounts: Plan, duration_ms: float) -> Completed:
        """Put the answer together, or raise what kept the command from running."""
        status = self._status()
        out, err, *result = self.drains
        report = dict(ENFORCEMENT)
        if mounts.unprotected:
            report["unprotected"] = list(mounts.unprotected)
        return Completed(
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            stdout=bytes(out.kept),
            stderr=bytes(err.kept),
            stdout_total=out.total,
            stderr_total=err.total,
            timed_out=self.timed_out,
            duration_ms=duration_ms,
            enforcement=report,
            result=bytes(result[0].kept) if result else b"",
            result_total=result[0].total if result else 0,
        )

    def _status(self) -> int:
        """The command's wait status; SIGKILL's where the end of everything left none."""
        for message in self.messages:
            if message.startswith("fail "):
                raise explain(message[5:])
        for message in self.messages:
            if message.startswith("exit "):
                return int(message[5:])
        if "exec" in self.messages or self.timed_out:
            return 9
        noise = "".join(self.messages)[-2000:]
        raise unavailable("launcher", f"it ended without a word: {noise}" if noise else "it was killed")

    def _receive(self) -> None:
        assert self.control is not None
        try:
            data = self.control.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.messages.append(data.decode("utf-8", "surrogateescape"))
            return
        self.loop.remove_reader(self.control.fileno())

    def _reap(self) -> None:
        assert self.process is not None
        self.loop.remove_reader(self.pidfd)
        self.process.wait()
        while self.control is not None:
            before = len(self.messages)
            self._receive()
            if len(self.messages) == before:
                break
        if not self.ended.done():
            self.ended.set_result(None)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append(self.loop.call_later(seconds, action))

    def _time_out(self) -> None:
        if any(message.startswith(("exit ", "fail ")) for message in self.messages):
            self._after(GRACE, self._kill)
            return
        self.timed_out = True
        self._order(b"term")
        self._after(GRACE, self._kill)

    def _kill(self) -> None:
        self._order(b"kill")
        self._after(0.2, self._kill_launcher)

    def _kill_launcher(self) -> None:
        """A launcher that does not obey (not up yet, stopped) dies, and pid 1 with it."""
        if self.process is not None and not self.ended.done():
            self.process.kill()

    def _order(self, word: bytes) -> None:
        try:
            if self.control is not None:
                self.control.send(word)
        except OSError:
            pass


async def uncancelled(future: asyncio.Future[None]) -> None:
    """Wait to the end, however often the waiting task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            continue


def in_memory(name: str, data: bytes) -> int:
    """A read-only descriptor on bytes that are no file."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def spawn(job_fd: int, control: int, fds: Iterable[int]) -> subprocess.Popen[bytes]:
    """Start a launcher: nothing of ours but the named descriptors reaches it."""
    if sys.platform != "linux" or not sys.executable:
        raise unavailable("launcher", "a Python interpreter on Linux is needed")
    # An interpreter built with a shared library may not start without this one.
    keep = ("LD_LIBRARY_PATH",)
    return subprocess.Popen(  # never waited for in a blocking way: a pidfd tells of its end
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", START, str(job_fd), str(LAUNCHER.parent)],
        stdin=control,
        stdout=subprocess.DEVNULL,
        stderr=control,
        pass_fds=tuple(fds),
        env={name: os.environ[name] for name in keep if name in os.environ},
        cwd="/",
        start_new_session=True,
    )
