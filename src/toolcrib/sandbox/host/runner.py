"""Run one confined command from an event loop: take a sandbox, start, read, time and end it.

A run takes a sandbox from the pool: a spare, or one that its launcher still makes. It sends the call as soon
as the sandbox can be started, and reads the pipes meanwhile. Everything that the sandbox reports comes over
its control socket. The end of that socket means that no more comes; the end of pid 1 (or of the keeper) means
that the whole tree is gone, and only then is the run over. Before the call was sent nothing has run: a
sandbox that dies until then is replaced by another one, and the caller notices nothing.
"""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
import resource
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from toolcrib.errors import ToolcribError, ToolUnavailable, UnavailableError
from toolcrib.sandbox.files.paths import PathCache, Paths, look
from toolcrib.sandbox.host.enforcement import NETWORK_BY, machine, process_limit
from toolcrib.sandbox.host.failures import explain, not_started, unavailable
from toolcrib.sandbox.host.handle import SandboxHandle, Stamps, in_memory
from toolcrib.sandbox.host.order import MADE_FROM, CommandOrder, new_order, refuses_sockets
from toolcrib.sandbox.host.pipe import PipeReader
from toolcrib.sandbox.host.pool import SandboxOrder, shared
from toolcrib.sandbox.job import Completed, Confinement, Outlet
from toolcrib.sandbox.kernel.cgroup import CgroupSlot
from toolcrib.sandbox.kernel.network import proxy_variables
from toolcrib.spec import Level

if TYPE_CHECKING:
    from toolcrib.sandbox.tracing.watch import Watcher

T = TypeVar("T")
GRACE = 0.3
"""Seconds between SIGTERM and the end of the whole tree."""
KEEPER_S = 2.0
"""Seconds that a keeper has to end its tree, before the launcher does it."""
LINGER = 0.3
"""Seconds that output is still read after the end: a process outside may have the pipe's other end."""
RETRY = 0.003
"""Seconds between two tries to order a sandbox while the launcher is busy."""
TRIES = 3
MOST_AT_ONCE = 256
DESCRIPTORS_A_CALL = 12
"""Pipes, sockets and control groups of a running call, generously."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
BUSY_ERRORS = (errno.EAGAIN, errno.EPIPE, errno.ECONNRESET, errno.ETOOMANYREFS)
"""The launcher has too many orders, or has just ended; or this user has too many descriptors under way."""
LIMIT_SIGNALS = (("cpu", signal.SIGXCPU), ("file_size", signal.SIGXFSZ))
_orders: PathCache[CommandOrder] = PathCache()


async def execute(job: Confinement, level: Level) -> Completed:
    """Run a command at a level; see `confine.run`, which chooses the level."""
    return await retried(lambda: CommandRun(job, level).complete(), CommandRun.trouble)


def order(job: Confinement, level: Level) -> CommandOrder:
    """Return the order for a job; an earlier one as long as all its paths are unchanged.

    Raises what `grants.plan` raises.
    """
    if job.watch is not None:  # A watched command shares its sandbox with no other call.
        return new_order(job, level, Paths())
    key = (level, process_limit(job.processes, level), *MADE_FROM(job))
    return _orders.get(key, lambda paths: new_order(job, level, paths))


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
        try:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        except OSError as error:
            raise unavailable("prlimit64", os.strerror(error.errno or 0)) from None
        most = MOST_AT_ONCE if soft == resource.RLIM_INFINITY else (soft - 128) // DESCRIPTORS_A_CALL
        _turns[loop] = asyncio.Semaphore(max(4, min(MOST_AT_ONCE, most)))
    return _turns[loop]


class NeverStarted(Exception):
    """The sandbox or its launcher was killed before the command started; nothing was run."""


class SandboxRun:
    """One use of a sandbox: it is taken, started once, ended with its whole tree, and given back.

    Subclasses say what the process reads and writes, and what came of it.
    """

    trouble = "the command could not be started"
    """First words of the error if nothing could be run at the moment."""

    def __init__(self, order: SandboxOrder, now: Stamps) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = now
        self.started = False
        """True once the command was started; before that, nothing of it has run."""
        self.answered = False
        """True once it has given its whole answer, so that its end need not be awaited."""
        self.timed_out = False
        self.failure: ToolcribError | None = None
        """The reason if it was killed because something of ours failed."""
        self.fds: dict[str, int] = {}
        """The process's ends of its pipes, until it is started."""
        self.readers: list[PipeReader] = []
        self.sandbox: SandboxHandle | None = None
        self._order = order
        self._event = asyncio.Event()
        self._message = b""
        """The message that the process reads when it is started, once that is known."""
        self._over = False
        self._watched = -1

    def open_pipes(self) -> None:
        """Open what the process reads and writes."""
        raise NotImplementedError

    def call(self, sandbox: SandboxHandle) -> bytes:
        """Return the message that the process reads when it is started."""
        raise NotImplementedError

    def may_start(self, sandbox: SandboxHandle) -> bool:
        """Return True if the sandbox has all that it needs to be started."""
        return sandbox.pidfd >= 0 and (sandbox.bound is not None or not sandbox.spare)

    def watch_calls(self, listener: int) -> None:
        """Take over the descriptor for watching a command."""
        raise NotImplementedError

    def begin(self) -> None:
        """Open the pipes, and start a task that is done when the whole tree is gone."""
        try:
            self.open_pipes()
        except OSError as error:
            raise not_started(self.trouble, error.strerror) from error
        self.ended = self.loop.create_task(self._supervise())

    async def _supervise(self) -> None:
        """Take a sandbox, start the process as soon as it can be, and wait for the end of its tree.

        Raises:
            UnavailableError: this machine has too little of something at the moment; nothing was run.
        """
        while not self._over:
            if self.sandbox is None and not self._take():
                await asyncio.sleep(RETRY)
                continue
            sandbox = self.sandbox
            assert sandbox is not None
            self._event.clear()
            sandbox.receive()
            if "watch" in sandbox.fds:
                self.watch_calls(sandbox.fds.pop("watch"))
            # Nothing has run, so another sandbox is taken and the caller notices nothing.
            if sandbox.spare and not self.started and self._is_stale(sandbox):
                self._give_back()
                continue
            if sandbox.outcome or (sandbox.gone and sandbox.pidfd < 0):
                return
            if sandbox.gone:
                # The whole tree has ended when pid 1 has.
                self._watch(sandbox.pidfd, self.finish)
            elif not self.started and self.may_start(sandbox) and not self._start(sandbox):
                await asyncio.sleep(RETRY)
                continue
            await self._event.wait()

    def _is_stale(self, spare: SandboxHandle) -> bool:
        """Return True if a spare has ended, or has mounted other files than its paths name now."""
        if spare.unexpected:  # The call fails for it.
            return False
        return spare.gone or bool(spare.outcome) or spare.bound not in (None, self.now)

    def _take(self) -> bool:
        """Take a sandbox; return False if the launcher is too busy."""
        try:
            self.sandbox = shared().take(self._order, self.now)
        except OSError as error:
            if error.errno in BUSY_ERRORS:
                return False
            raise not_started(self.trouble, error.strerror) from error
        self._watch(self.sandbox.control.fileno(), self._event.set)
        return True

    def _start(self, sandbox: SandboxHandle) -> bool:
        """Start the process; return False if the user's processes have too many descriptors under way."""
        try:
            self._message = self._message or self.call(sandbox)
            sandbox.send("call", self._message, self.fds)
        except ConnectionError:  # It has ended already; its message says why.
            pass
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                return False
            raise not_started(self.trouble, error.strerror) from error
        self.started = True
        self._close_fds()
        return True

    def finish(self) -> None:
        """Have the task end: the tree is gone, or its end need not be awaited."""
        self._over = True
        self._event.set()

    def kill(self) -> None:
        """End the whole tree; a command that was not started has none."""
        if self.sandbox is None or not self.started:
            self.finish()
            return
        # SIGKILL to pid 1 of a pid namespace kills all that is in it (pid_namespaces(7)).
        self.sandbox.end()
        if self.sandbox.has_keeper:
            # The launcher ends the tree of a keeper that does not respond.
            self.loop.call_later(KEEPER_S, self.sandbox.signal, signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the command to end."""
        self.timed_out = True
        if self.sandbox is not None and self.started:
            self.sandbox.signal(signal.SIGTERM)
        else:
            self.finish()

    async def end_within(self, seconds: float | None) -> None:
        """Wait until the whole tree is gone: after some time it is asked to end, and then killed.

        Cancelling kills it at once, and still waits until it is gone.
        """
        try:
            for limit, action in ((seconds, self.terminate), (GRACE, self.kill)):
                # `wait` and not `wait_for`: a limit must not cancel the task that still has to see the end.
                await asyncio.wait([self.ended], timeout=limit)
                if self.ended.done():
                    return
                action()
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            while not self.ended.done():
                try:
                    await asyncio.wait([self.ended])
                except asyncio.CancelledError:
                    continue

    async def result(self) -> int:
        """Read the rest of the output, and return the wait status (as of waitpid(2)).

        Raises what kept the command from running.
        """
        self.ended.result()
        self._close_fds()
        # With all writers dead, the rest is there at once.
        if unread := [reader.ended for reader in self.readers if not reader.ended.done()]:
            await asyncio.wait(unread, timeout=LINGER)
        return self.status()

    def status(self) -> int:
        """Return the wait status, or raise what kept the command from running."""
        # What was reported comes first. Without a report, what still lives shows what was killed.
        sandbox = self.sandbox
        if self.failure is not None:
            raise self.failure
        if sandbox is not None and sandbox.unexpected:
            why = f"the sandbox was ended for an unexpected message: {sandbox.unexpected}"
            error = unavailable("control socket", why)
            error.details["started"] = self.started
            raise error
        if sandbox is not None and sandbox.outcome.startswith("fail "):
            raise explain(sandbox.outcome[5:])
        if sandbox is not None and sandbox.outcome:
            return int(sandbox.outcome[5:])
        if self.answered:
            return 0
        if self.timed_out or sandbox is None:
            return signal.SIGKILL
        alive = sandbox.launcher.alive()
        if alive and sandbox.executed:
            return signal.SIGKILL
        if alive:
            check_memory(sandbox.slot, self._order.job.get("memory_bytes"))
            raise NeverStarted(sandbox.why)
        if sandbox.executed:
            raise UnavailableError(
                "the sandbox's launcher was ended from outside, and the command with it",
                hint="It is started again for the next call.",
                retryable=True,
                details={"started": True},
            )
        noise = sandbox.launcher.last_words()
        # A launcher that made this sandbox works; so what ended it came from outside, and another try may
        # succeed.
        if sandbox.pidfd >= 0 or not sandbox.launcher.unable():
            raise NeverStarted(noise or "the sandbox's launcher was ended from outside")
        if sandbox.launcher.kind != "python":
            raise unavailable("launcher", f"it cannot be started: {noise or 'it ended at once'}")
        # The interpreter itself may still be started inside the sandbox.
        shared().note_unfit(sandbox.launcher.interpreter)
        raise NeverStarted(noise)

    def close(self) -> None:
        """Close everything, and end what has not ended."""
        for reader in self.readers:
            reader.close()
        self._close_fds()
        self._give_back()

    def _give_back(self) -> None:
        """Give the sandbox back, but only once the caller has its answer.

        The kernel takes half a millisecond to remove one, in which the caller could not continue.
        """
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is None:
            return
        self._watch(-1)
        if self.loop.is_closed():
            shared().give_back(sandbox)
        else:
            self.loop.call_soon(shared().give_back, sandbox)

    def _watch(self, fd: int, action: Callable[[], None] | None = None) -> None:
        """Call `action` whenever there is something to read; one descriptor is watched at a time."""
        if self._watched >= 0:
            self.loop.remove_reader(self._watched)
        self._watched = fd
        if action is not None:
            self.loop.add_reader(fd, action)

    def read(self, name: str, limit: int, on_data: Callable[[], None] | None = None) -> PipeReader:
        """Open a pipe for the process to write to, and read it."""
        mine, self.fds[name] = os.pipe2(os.O_CLOEXEC)
        self.readers.append(reader := PipeReader(self.loop, mine, limit, on_data))
        return reader

    def _close_fds(self) -> None:
        while self.fds:
            os.close(self.fds.popitem()[1])


class CommandRun(SandboxRun):
    """The run of one command: its output, its network and its report."""

    def __init__(self, job: Confinement, level: Level) -> None:
        if job.script is not None and (job.watch is not None or shared().is_unfit(job.script.interpreter)):
            job = replace(job, script=None)
        self.is_pinned = level == "full" or not job.pinned
        job = job if self.is_pinned else replace(job, pinned=())
        self.job = job
        self.level = level
        self.order = made = order(job, level)
        super().__init__(made.sandbox, made.paths.identities(made.sources))
        self.outlet: Outlet | None = None
        self.watcher: Watcher | None = None

    async def complete(self) -> Completed:
        """Run the command to its end."""
        began = time.monotonic()
        try:
            self.begin()
            await self.end_within(self.job.timeout_ms / 1000)
            return self.completed(await self.result(), (time.monotonic() - began) * 1000)
        finally:
            self.close()
            if self.outlet is not None:
                await self.outlet.aclose()

    def open_pipes(self) -> None:
        """Open the command's streams."""
        is_script = self.job.script is not None and self.job.result_limit
        on_data = self._check_answer if is_script else None
        streams = {name: self.read(name, self.job.output_limit, on_data) for name in ("stdout", "stderr")}
        streams["stdout"].on_output = self.job.on_output
        if self.job.on_long is not None:
            for name, reader in streams.items():
                reader.on_long = partial(self.job.on_long, name)
        if self.job.result_limit:
            self.read("result", self.job.result_limit, on_data)
        if self.job.stdin:
            self.fds["stdin"] = in_memory("stdin", self.job.stdin)

    def _check_answer(self) -> None:
        """Finish once a script has given its whole answer and closed its streams."""
        answer = self.readers[-1]
        whole = answer.kept.endswith(b"}") and answer.total == len(answer.kept)
        if whole and all(reader.ended.done() for reader in self.readers):
            self.answered = True
            self.finish()

    def may_start(self, sandbox: SandboxHandle) -> bool:
        """Return True if the sandbox has all that it needs, also the listener for a proxy."""
        needs_listener = self.job.network == "proxy" and self.level == "full"
        return super().may_start(sandbox) and ("listener" in sandbox.fds or not needs_listener)

    def call(self, sandbox: SandboxHandle) -> bytes:
        """Return arguments and environment; the proxy serves the command's network by then."""
        env = dict(self.job.env)
        if self.job.outlet is not None and "listener" in sandbox.fds:
            listener = socket.socket(fileno=sandbox.fds.pop("listener"))
            env = proxy_variables(env, listener.getsockname()[1])
            try:
                self.outlet = self.job.outlet(listener)
            except BaseException:
                listener.close()
                raise
            self.outlet.start()
        return marshal.dumps({"argv": list(self.job.argv), "env": env}, 2)

    def watch_calls(self, listener: int) -> None:
        """Report each watched call of the command to the job's `watch`."""
        assert self.job.watch is not None
        from toolcrib.sandbox.tracing.watch import Watcher

        self.watcher = Watcher(listener, self.job.watch, sockets=not refuses_sockets(self.job))
        self.loop.add_reader(listener, self._serve_watcher)

    def _serve_watcher(self) -> None:
        """Let one watched call continue. If it cannot be read, the command is ended."""
        assert self.watcher is not None
        try:
            if self.watcher.serve():
                return
        except Exception as error:
            self.failure = unavailable("watch", f"the command's calls cannot be read: {error}")
            self.kill()
        self._close_watcher()

    def _close_watcher(self) -> None:
        if self.watcher is not None and self.watcher.listener >= 0:
            self.loop.remove_reader(self.watcher.listener)
            self.watcher.close()

    def completed(self, status: int, duration_ms: float) -> Completed:
        """Put the answer together."""
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
        """Return the enforcement report; of a failed command with the limits that it reached."""
        found = dict(machine(self.level))
        if self.sandbox is not None and self.sandbox.missing:
            found["missing"] = [*found.get("missing", ()), *self.sandbox.missing]
        if self.level == "full":
            found["net"] = NETWORK_BY[self.job.network]
        if not self.is_pinned:
            found["code"] = "not pinned during the run"
        lists = {
            "unprotected": self.order.plan.unprotected,
            "exceeded": self.exceeded(status),
            "replaced": self.replaced(),
        }
        return found | {name: [*paths] for name, paths in lists.items() if paths}

    def replaced(self) -> list[str]:
        """Return the protected places that now are other files than those that were mounted.

        The kernel removes a mount whose place is renamed over in another namespace, so the command could
        write there from then on.
        """
        if self.level != "full":
            return []
        mounted = ((self.order.plan.mounts[n].target, self.now[n]) for n in self.order.guards)
        now = ((path, was, look(path).identity) for path, was in mounted if was is not None)
        return [path for path, was, here in now if here is not None and here != was]

    def exceeded(self, status: int) -> tuple[str, ...]:
        """Return the limits that a failed command reached: of the whole tree, or by its signal."""
        good = self.job.good
        failed = status != 0 or (good and not self.readers[-1].kept.startswith(good))
        if self.timed_out or not failed:
            return ()
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        reached = {name: ended_by == number for name, number in LIMIT_SIGNALS}
        if self.sandbox is not None and self.sandbox.slot is not None:
            events = self.sandbox.slot.events()
            reached |= {"memory": events.oom_kills > 0, "processes": events.pids_max > 0}
        return tuple(name for name, is_reached in reached.items() if is_reached)

    def close(self) -> None:
        """Close everything, and end what has not ended."""
        self._close_watcher()
        super().close()


def check_memory(slot: CgroupSlot | None, memory_bytes: int | None) -> None:
    """Raise ToolUnavailable if a sandbox was killed at the start because its own limit is too small."""
    if slot is None or memory_bytes is None:
        return
    events = slot.events()
    if events.oom_kills and events.memory_max:
        raise ToolUnavailable(
            f"no command can be started in a sandbox with {memory_bytes} bytes of memory",
            hint="Raise limits.memory_bytes.",
        )
