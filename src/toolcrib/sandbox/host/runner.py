"""Run one confined command from an event loop: take a sandbox, start, read, time and end it."""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from toolcrib.errors import (
    InvalidInput,
    ToolcribError,
    ToolUnavailable,
    UnavailableError,
    UsageError,
    Violation,
)
from toolcrib.sandbox.host.enforcement import check_limits, report
from toolcrib.sandbox.host.failures import explain, not_started, unavailable
from toolcrib.sandbox.host.handle import SandboxHandle, Stamps, in_memory
from toolcrib.sandbox.host.order import order, refuses_sockets
from toolcrib.sandbox.host.pool import SandboxOrder, shared
from toolcrib.sandbox.host.streams import PipeReader
from toolcrib.sandbox.job import Completed, Confinement, Outlet
from toolcrib.sandbox.kernel.cgroup import Slot
from toolcrib.sandbox.kernel.network import proxy_variables
from toolcrib.sandbox.tracing.watch import Watcher
from toolcrib.spec import Level

__all__ = ["GRACE", "CommandRun", "NeverStarted", "SandboxRun", "check", "execute", "retried", "uncancelled"]

T = TypeVar("T")
GRACE = 0.3
"""Seconds between SIGTERM and the end of the whole tree."""
KEEPER_S = 2.0
"""Seconds that a keeper has to end its tree, before the launcher does it."""
LINGER = 0.3
"""Seconds that output is still read after the end: a process outside may hold the pipe's other end."""
RETRY = 0.003
"""Seconds between two tries to order a sandbox while the launcher is busy."""
TRIES = 3
MOST_AT_ONCE = 256
DESCRIPTORS_A_CALL = 12
"""Pipes, sockets and control groups of a running call, generously."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
BUSY_ERRORS = (errno.EAGAIN, errno.EPIPE, errno.ECONNRESET, errno.ETOOMANYREFS)
"""The launcher has too many orders, or has just ended."""
LIMIT_SIGNALS = (("cpu", signal.SIGXCPU), ("file_size", signal.SIGXFSZ))


async def execute(job: Confinement, level: Level) -> Completed:
    """Run a command at a level; see `confine.run`, which chooses the level."""
    check(job, level)
    pool = shared()

    def attempt() -> Awaitable[Completed]:
        script = job.script
        cold = script is not None and (job.watch is not None or pool.is_unfit(script.interpreter))
        return CommandRun(replace(job, script=None) if cold else job, level).complete()

    return await retried(attempt, CommandRun.trouble)


async def retried(attempt: Callable[[], Awaitable[T]], trouble: str) -> T:
    """Await an attempt when it is its turn; again if nothing was run through no fault of its own."""
    reason = ""
    async with turns():
        for _ in range(TRIES):
            try:
                return await attempt()
            except NeverStarted as error:
                reason = str(error)
    raise not_started(trouble, reason or "the sandbox was killed from outside")


def turns() -> asyncio.Semaphore:
    """Return the event loop's semaphore: this process has descriptors for so many calls at once."""
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST_AT_ONCE if soft == resource.RLIM_INFINITY else (soft - 128) // DESCRIPTORS_A_CALL
        _turns[loop] = asyncio.Semaphore(max(4, min(MOST_AT_ONCE, most)))
    return _turns[loop]


def check(job: Confinement, level: Level) -> None:
    """Refuse what no process can be given, and what this machine cannot enforce."""
    if not job.argv or not job.argv[0]:
        raise UsageError("there is no command to run")
    if (job.network == "proxy") != (job.outlet is not None):
        raise UsageError("an outlet is needed for the network `proxy`, and only for that")
    for name in ("timeout_ms", "cpu_s", "open_files", "tmp_size", "memory_bytes", "processes"):
        value = getattr(job, name)
        if value is not None and value <= 0:
            raise UsageError(f"{name} must be above 0")
    for name in ("output_limit", "result_limit", "file_size"):
        if getattr(job, name) < 0:
            raise UsageError(f"{name} must not be negative")
    for name in job.env:
        if not name or "=" in name:
            raise UsageError(f"not a name of a variable: {name!r}")
    if not is_passable("".join((*job.argv, *job.env, *job.env.values()))):
        refuse_text(job)
    if sys.platform != "linux" or not sys.executable:
        raise unavailable("launcher", "a Python interpreter on Linux is needed")
    if job.watch is not None and level != "full":
        raise unavailable("watch", "commands can be watched at level full only")
    check_limits(job.memory_bytes, job.processes)


def is_passable(text: str) -> bool:
    """Return True if the text can be an argument or variable of a process."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def refuse_text(job: Confinement) -> None:
    """Raise InvalidInput with the first text that no process can be given."""
    texts = [(f"$.argv[{index}]", text) for index, text in enumerate(job.argv)]
    for name, value in job.env.items():
        texts += [("$.env", name), (f"$.env.{name}", value)]
    path, text = next(one for one in texts if not is_passable(one[1]))
    reason = "contains a NUL byte" if "\0" in text else "contains a lone surrogate"
    raise InvalidInput(f"{path} {reason}", violations=(Violation(path, reason),))


class NeverStarted(Exception):
    """The sandbox or its launcher was killed before the command started; nothing was run."""


class SandboxRun:
    """One use of a sandbox: it is taken, started once, ended with its whole tree, and given back."""

    trouble = "the command could not be started"
    """First words of the error if nothing could be run at the moment."""

    def __init__(self, order: SandboxOrder, now: Stamps) -> None:
        self.loop = asyncio.get_running_loop()
        self.pool = shared()
        self.now = now
        self.started = False
        """True once it was told to start: before that, nothing of the command has run."""
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.fds: dict[str, int] = {}
        """The command's ends of its pipes, until it is started."""
        self.readers: list[PipeReader] = []
        self.sandbox: SandboxHandle | None = None
        self._order = order
        self._timers: list[asyncio.TimerHandle] = []
        self._watched = -1

    # What differs between commands and registered functions.

    def open_pipes(self) -> None:
        """Open what the process reads and writes."""
        raise NotImplementedError

    def call(self) -> bytes:
        """Return what the process reads when it is started."""
        raise NotImplementedError

    def may_start(self, sandbox: SandboxHandle) -> bool:
        """Return True if the sandbox has all that it needs to be started."""
        return sandbox.pidfd >= 0

    def unfit(self, noise: str) -> Exception:
        """Return the error for a launcher that cannot be started."""
        return unavailable("launcher", f"it cannot be started: {noise or 'it ended at once'}")

    # What they share.

    def begin(self) -> None:
        """Open the pipes and take a sandbox; the rest happens in callbacks, until `ended` is done."""
        try:
            self.open_pipes()
        except OSError as error:
            raise not_started(self.trouble, error.strerror) from error
        self._take()

    def _take(self) -> None:
        """Take a sandbox, or try again soon if the launcher is busy."""
        if self.ended.done():
            return
        try:
            self.sandbox = self.pool.take(self._order, self.now)
        except OSError as error:
            if error.errno in BUSY_ERRORS:
                self.after(RETRY, self._take)
            else:
                self.fail(not_started(self.trouble, error.strerror))
            return
        except ToolcribError as error:
            self.fail(error)
            return
        self._watch(self.sandbox.control.fileno(), self.receive)
        self.receive()

    def receive(self) -> None:
        """Take in the sandbox's messages, and do what follows from them."""
        sandbox = self.sandbox
        if sandbox is None:
            return
        sandbox.receive_all()
        if sandbox.spare and not self.started and (sandbox.is_dead or sandbox.bound != self.now):
            # Either it is not ready, or another file has come to a place that it has mounted.
            if sandbox.is_dead or sandbox.bound is not None:
                self._give_back()
                self._take()
        elif sandbox.outcome or (sandbox.gone and sandbox.pidfd < 0):
            self._end()
        elif sandbox.gone:
            # The whole tree has ended when pid 1 has.
            self._watch(sandbox.pidfd, self._end)
        elif not self.started and not self.ended.done() and self.may_start(sandbox):
            self._start(sandbox)

    def _start(self, sandbox: SandboxHandle) -> None:
        # This is a callback: an error would be lost.
        try:
            sandbox.start(self.call(), self.fds)
        except ConnectionError:  # It has ended already; its message says why.
            pass
        except OSError as error:
            self.fail(not_started(self.trouble, error.strerror))
            return
        except Exception as error:
            self.fail(error)
            return
        self.started = True
        self._close_fds()

    def fail(self, error: Exception) -> None:
        """End with an error: nothing was run, and nothing will be."""
        self._unwatch()
        if not self.ended.done():
            self.ended.set_exception(error)

    def _end(self) -> None:
        self._unwatch()
        if not self.ended.done():
            self.ended.set_result(None)

    def kill(self) -> None:
        """End the whole tree; a command that was not started needs no waiting."""
        if self.sandbox is not None and self.started:
            self.sandbox.end()
            if self.sandbox.has_keeper:
                self.after(KEEPER_S, self.sandbox.kill_keeper)
        else:
            self._end()

    async def wait(self) -> None:
        """Wait for the end of the whole tree, and read the rest of its output. Cancelling kills it first."""
        try:
            await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            self.kill()
            await uncancelled(self.ended)
            raise
        self._close_fds()
        # With all writers dead, the rest is there at once.
        if unread := [reader.ended for reader in self.readers if not reader.ended.done()]:
            await asyncio.wait(unread, timeout=LINGER)

    def status(self) -> int:
        """Return the wait status (as of waitpid(2)), or raise what kept the command from running."""
        sandbox = self.sandbox
        if sandbox is None:
            return signal.SIGKILL
        if sandbox.outcome.startswith("fail "):
            raise explain(sandbox.outcome[5:])
        if sandbox.outcome:
            return int(sandbox.outcome[5:])
        if sandbox.launcher.alive():
            if sandbox.executed:
                return signal.SIGKILL
            check_memory(sandbox.slot, self._order.job["memory_bytes"])
            raise NeverStarted(sandbox.why)
        if sandbox.executed:
            raise UnavailableError(
                "the sandbox's launcher was ended from outside, and the command with it",
                hint="It is started again for the next call.",
                retryable=True,
                details={"started": True},
            )
        noise = sandbox.launcher.last_words()
        if sandbox.pidfd >= 0 or not sandbox.launcher.unable():
            raise NeverStarted(noise or "the sandbox's launcher was ended from outside")
        raise self.unfit(noise)

    def close(self) -> None:
        """Close everything, and end what has not ended."""
        for timer in self._timers:
            timer.cancel()
        for reader in self.readers:
            reader.close()
        self._close_fds()
        self._give_back()

    def give_back_soon(self) -> None:
        """Have the ended sandbox closed once the caller has its answer.

        The kernel takes half a millisecond to remove one, in which the caller could not go on.
        """
        if self.sandbox is not None:
            self.loop.call_soon(self.pool.give_back, self.sandbox)
            self.sandbox = None

    def _give_back(self) -> None:
        self._unwatch()
        if self.sandbox is not None:
            self.pool.give_back(self.sandbox)
            self.sandbox = None

    def read(self, name: str, limit: int, on_data: Callable[[], None] | None = None) -> None:
        """Open a pipe for the command to write to, and read it."""
        mine, self.fds[name] = os.pipe2(os.O_CLOEXEC)
        self.readers.append(PipeReader(self.loop, mine, limit, on_data))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` after some time, unless the run is closed before."""
        self._timers.append(self.loop.call_later(seconds, action))

    def _watch(self, fd: int, action: Callable[[], None]) -> None:
        """Call `action` when there is something to read; one descriptor is watched at a time."""
        self._unwatch()
        self._watched = fd
        self.loop.add_reader(fd, action)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            self.loop.remove_reader(self._watched)
            self._watched = -1

    def _close_fds(self) -> None:
        while self.fds:
            os.close(self.fds.popitem()[1])


class CommandRun(SandboxRun):
    """The run of one command: its clock, its output, its network and its report."""

    def __init__(self, job: Confinement, level: Level) -> None:
        self.job = job
        self.level = level
        self.order = order(job, level)
        super().__init__(self.order.sandbox, self.order.stamps())
        self.timed_out = False
        self.answered = False
        """True once a script has given its whole answer."""
        self.outlet: Outlet | None = None
        self.watcher: Watcher | None = None
        self.blind: ToolcribError | None = None
        """The reason if a watched command could not be watched."""

    async def complete(self) -> Completed:
        """Run the command to its end."""
        began = time.monotonic()
        try:
            self.begin()
            await self.wait()
            done = self.completed((time.monotonic() - began) * 1000)
            self.give_back_soon()
            return done
        finally:
            self.close()
            if self.outlet is not None:
                await self.outlet.aclose()

    def open_pipes(self) -> None:
        """Open the command's streams, and start the clock."""
        self.after(self.job.timeout_ms / 1000, self._time_out)
        is_script = self.job.script is not None and self.job.result_limit
        on_data = self._check_answer if is_script else None
        self.read("stdout", self.job.output_limit, on_data)
        self.read("stderr", self.job.output_limit, on_data)
        if self.job.result_limit:
            self.read("result", self.job.result_limit, on_data)
        if self.job.stdin:
            self.fds["stdin"] = in_memory("stdin", self.job.stdin)

    def _check_answer(self) -> None:
        """End the run once a script has given its whole answer and closed its streams."""
        answer = self.readers[-1]
        whole = answer.kept.endswith(b"}") and answer.total == len(answer.kept)
        if whole and all(reader.ended.done() for reader in self.readers):
            self.answered = True
            self._end()

    def _time_out(self) -> None:
        if self.ended.done():
            return
        self.timed_out = True
        if self.sandbox is not None and self.started:
            self.sandbox.end(signal.SIGTERM)
            self.after(GRACE, self.kill)
        else:
            self.kill()

    def receive(self) -> None:
        """Watch the command, too, once the kernel has sent the descriptor for that."""
        super().receive()
        if self.sandbox is not None and self.watcher is None and b"watch" in self.sandbox.fds:
            assert self.job.watch is not None
            listener = self.sandbox.fds.pop(b"watch")
            self.watcher = Watcher(listener, self.job.watch, sockets=not refuses_sockets(self.job))
            self.loop.add_reader(listener, self._serve_watcher)

    def _serve_watcher(self) -> None:
        """Let one watched call continue. If it cannot be read, the command is ended."""
        assert self.watcher is not None
        try:
            if self.watcher.serve():
                return
        except Exception as error:
            self.blind = unavailable("watch", f"the command's calls cannot be read: {error}")
            self.kill()
        self._stop_watching()

    def _stop_watching(self) -> None:
        if self.watcher is not None and self.watcher.listener >= 0:
            self.loop.remove_reader(self.watcher.listener)
            self.watcher.close()

    def may_start(self, sandbox: SandboxHandle) -> bool:
        """Wait for the proxy's listener, too, if there must be one."""
        needs_listener = self.job.network == "proxy" and self.level == "full"
        return sandbox.pidfd >= 0 and (b"listener" in sandbox.fds or not needs_listener)

    def call(self) -> bytes:
        """Return arguments and environment; the proxy serves the command's network by then."""
        assert self.sandbox is not None
        env = dict(self.job.env)
        if self.job.outlet is not None and b"listener" in self.sandbox.fds:
            listener = socket.socket(fileno=self.sandbox.fds.pop(b"listener"))
            port: int = listener.getsockname()[1]
            try:
                self.outlet = self.job.outlet(listener)
            except BaseException:
                listener.close()
                raise
            self.outlet.start()
            env = proxy_variables(env, port)
        return marshal.dumps({"argv": list(self.job.argv), "env": env}, 2)

    def unfit(self, noise: str) -> Exception:
        """Have the interpreter of a script started inside the sandbox from now on."""
        if self.job.script is None:
            return super().unfit(noise)
        self.pool.note_unfit(self.job.script.interpreter)
        return NeverStarted(noise)

    def status(self) -> int:
        """Return the wait status; SIGKILL at the timeout if there was no other."""
        if self.blind is not None:
            raise self.blind
        if self.sandbox is None or not self.sandbox.outcome:
            if self.answered:
                return 0
            if self.timed_out:
                return signal.SIGKILL
        return super().status()

    def completed(self, duration_ms: float) -> Completed:
        """Put the answer together, or raise what kept the command from running."""
        status = self.status()
        out, err, *result = self.readers
        return Completed(
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            stdout=bytes(out.kept),
            stderr=bytes(err.kept),
            stdout_total=out.total,
            stderr_total=err.total,
            timed_out=self.timed_out,
            duration_ms=duration_ms,
            enforcement=self.enforcement(status),
            result=bytes(result[0].kept) if result else b"",
            result_total=result[0].total if result else 0,
        )

    def enforcement(self, status: int = 0) -> dict[str, Any]:
        """Return the enforcement report; of a failed command with the limits that it met."""
        unprotected, exceeded = self.order.plan.unprotected, self.exceeded(status)
        found = report(unprotected, exceeded, self.job.network, self.level)
        if self.order.guards and self.level == "full" and (replaced := self.order.replaced(self.now)):
            found["replaced"] = list(replaced)
        return found

    def exceeded(self, status: int) -> tuple[str, ...]:
        """Return the limits that a failed command met: those of the whole tree, and that of its signal."""
        good = self.job.good
        failed = status != 0 or (good and not self.readers[-1].kept.startswith(good))
        if self.timed_out or not failed:
            return ()
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        met = {name: ended_by == number for name, number in LIMIT_SIGNALS}
        if self.sandbox is not None and self.sandbox.slot is not None:
            events = self.sandbox.slot.events()
            met |= {"memory": events["oom_kills"] > 0, "processes": events["pids_max"] > 0}
        return tuple(name for name, is_met in met.items() if is_met)

    def close(self) -> None:
        """Close everything, and end what has not ended."""
        self._stop_watching()
        super().close()


def check_memory(slot: Slot | None, memory_bytes: int | None) -> None:
    """Raise ToolUnavailable if a sandbox was killed at the start because its own limit is too small."""
    if slot is None or memory_bytes is None:
        return
    events = slot.events()
    peak = events["memory_peak"]
    if events["oom_kills"] and (peak is None or 2 * peak >= memory_bytes):
        raise ToolUnavailable(
            f"no command can be started in a sandbox with {memory_bytes} bytes of memory",
            hint="Raise limits.memory_bytes.",
        )


async def uncancelled(future: asyncio.Future[None]) -> None:
    """Wait for a future, however often the waiting task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            continue
