"""Run one confined command from an event loop: take a sandbox, feed, read, time and end it."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

from toolcrib.errors import (
    InvalidInput,
    ToolcribError,
    ToolUnavailable,
    UnavailableError,
    UsageError,
    Violation,
)
from toolcrib.sandbox.host.enforcement import report, told_limits
from toolcrib.sandbox.host.failures import explain, not_started, unavailable
from toolcrib.sandbox.host.handle import Sandbox, in_memory
from toolcrib.sandbox.host.order import Order, asked, order
from toolcrib.sandbox.host.pool import Pool, shared
from toolcrib.sandbox.host.streams import Drain
from toolcrib.sandbox.job import Completed, Confinement, Outlet
from toolcrib.sandbox.kernel.cgroup import Slot
from toolcrib.sandbox.kernel.network import proxy_variables
from toolcrib.sandbox.tracing.watch import Watcher
from toolcrib.spec import Level

__all__ = ["execute"]

GRACE = 0.3
"""Seconds between SIGTERM and the end of everything."""
STUBBORN = 2.0
"""Seconds a keeper has to end its tree, before the launcher is made to do it."""
LINGER = 0.3
"""Seconds output is still read after the end: somebody outside may hold a passed-on descriptor."""
RETRY = 0.003
"""Seconds between two tries to order a sandbox while the launcher is busy."""
TRIES = 3
MOST_AT_ONCE = 256
DESCRIPTORS_A_CALL = 12
"""Pipes, sockets and control groups of a call under way, generously."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
COME_AGAIN = (errno.EAGAIN, errno.EPIPE, errno.ECONNRESET, errno.ETOOMANYREFS)
"""The launcher has too much to do, or has just ended."""
TOLD_BY = (("cpu", signal.SIGXCPU), ("file_size", signal.SIGXFSZ))


async def execute(job: Confinement, level: Level) -> Completed:
    """Run a job at a level; see `confine.run`, which chooses it."""
    check(job)
    if sys.platform != "linux" or not sys.executable:
        raise unavailable("launcher", "a Python interpreter on Linux is needed")
    if job.watch is not None and level != "full":
        raise unavailable("watch", "commands are watched at the level full only")
    told_limits(job)
    async with turns():
        return await tried(job, level)


def turns() -> asyncio.Semaphore:
    """As many calls at once as this process has descriptors for; the others wait. One for each event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST_AT_ONCE if soft == resource.RLIM_INFINITY else (soft - 128) // DESCRIPTORS_A_CALL
        _turns[loop] = asyncio.Semaphore(max(4, min(MOST_AT_ONCE, most)))
    return _turns[loop]


async def tried(job: Confinement, level: Level) -> Completed:
    """Run a job, again if it never started through no fault of its own."""
    if job.script is not None and (job.watch is not None or shared().is_unfit(job.script.interpreter)):
        job = replace(job, script=None)
    reason = ""
    for _ in range(TRIES):
        try:
            return await attempt(job, level)
        except LauncherUnfit:
            # The program itself may still be started, inside of the sandbox.
            job = replace(job, script=None)
        except NeverStarted as error:
            reason = str(error)
    raise not_started("the command was not started", reason or "the sandbox was killed from outside")


async def attempt(job: Confinement, level: Level) -> Completed:
    """Run a job on the launcher that it names."""
    began = time.monotonic()
    run = Run(job, order(job, level), asyncio.get_running_loop(), level)
    try:
        try:
            await run.start()
        except OSError as error:
            raise not_started("the command could not be started", error.strerror) from error
        await run.wait()
        await run.finish_reading()
        done = run.completed((time.monotonic() - began) * 1000)
        run.give_back_soon()
        return done
    finally:
        run.close()
        if run.outlet is not None:
            await run.outlet.aclose()


def check(job: Confinement) -> None:
    """Refuse what no process can be given."""
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


class LauncherUnfit(Exception):
    """The launcher of a script's interpreter cannot be started; nothing was run."""


class NeverStarted(Exception):
    """A sandbox, one that waited perhaps, was killed, or its launcher was; nothing was run."""


class Run:
    """The life of one call: its sandbox, its pipes and its clock."""

    def __init__(self, job: Confinement, order: Order, loop: asyncio.AbstractEventLoop, level: Level) -> None:
        self.job = job
        self.level = level
        self.order = order
        self.loop = loop
        self.pool: Pool = shared()
        self.now = order.stamps()
        self.timed_out = False
        self.started = False
        """Whether the word was given: before, nothing of the command's has run."""
        self.answered = False
        self.ended: asyncio.Future[None] = loop.create_future()
        self.drains: list[Drain] = []
        self.timers: list[asyncio.TimerHandle] = []
        self.fds: dict[str, int] = {}
        self.sandbox: Sandbox | None = None
        self.outlet: Outlet | None = None
        self.watched = -1
        self.watcher: Watcher | None = None
        self.blind: ToolcribError | None = None
        """Why a command that was to be watched could not be."""

    async def start(self) -> None:
        """Take a sandbox, and begin to read and to count time."""
        self.open_pipes()
        while not self.ended.done() and self.sandbox is None:
            await self._take()

    def open_pipes(self) -> None:
        """Make what the command reads and writes, and arm the clock."""
        self._after(self.job.timeout_ms / 1000, self._time_out)
        limits = {"stdout": self.job.output_limit, "stderr": self.job.output_limit}
        if self.job.result_limit:
            limits["result"] = self.job.result_limit
        for name, limit in limits.items():
            mine, self.fds[name] = os.pipe2(os.O_CLOEXEC)
            self.drains.append(Drain(self.loop, mine, limit))
        if self.job.script is not None and self.job.result_limit:
            for drain in self.drains:
                drain.ended.add_done_callback(self._answered)
        if self.job.stdin:
            self.fds["stdin"] = in_memory("stdin", self.job.stdin)

    async def _take(self) -> None:
        """Get a sandbox that has bound what the paths name now; none where there is not one yet."""
        script = self.job.script
        program = sys.executable if script is None else script.interpreter
        try:
            sandbox = self.pool.take(self.order.key, program, self.order.job, self.now)
        except OSError as error:
            if error.errno not in COME_AGAIN:
                raise
            await asyncio.sleep(RETRY)
            return
        try:
            usable = not sandbox.spare or sandbox.found is not None or await self._is_made(sandbox)
        except BaseException:
            self.pool.give_back(self.order.key, sandbox)
            raise
        if not usable:
            self.pool.give_back(self.order.key, sandbox)
            return
        self.sandbox = sandbox
        self._watch(sandbox.control.fileno(), self._receive)
        self._receive()

    async def _is_made(self, spare: Sandbox) -> bool:
        """Wait until a spare is ready; whether it has bound what the paths name now."""
        made: asyncio.Future[None] = self.loop.create_future()

        def look() -> None:
            while spare.receive():
                pass
            if (spare.found is not None or spare.gone or spare.messages) and not made.done():
                made.set_result(None)

        fd = spare.control.fileno()
        self.loop.add_reader(fd, look)
        try:
            await asyncio.wait([made, self.ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.loop.remove_reader(fd)
        return not spare.gone and not spare.messages and spare.found == self.now

    def _answered(self, _: asyncio.Future[None]) -> None:
        """A script that has given its whole answer and closed its streams is done (see `zygote.finish`)."""
        answer = self.drains[-1]
        whole = answer.kept.endswith(b"}") and answer.total == len(answer.kept)
        if whole and all(drain.ended.done() for drain in self.drains):
            self.answered = True
            self._end()

    async def wait(self) -> None:
        """Wait for the end of the whole tree; when cancelled, bring it about first."""
        try:
            await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            self.kill()
            await uncancelled(self.ended)
            raise

    async def finish_reading(self) -> None:
        """Read the rest; with all writers dead that is at once."""
        self._close_theirs()
        if unread := [drain.ended for drain in self.drains if not drain.ended.done()]:
            await asyncio.wait(unread, timeout=LINGER)

    def close(self) -> None:
        """Let go of everything, and end what has not ended."""
        for timer in self.timers:
            timer.cancel()
        for drain in self.drains:
            drain.close()
        self._close_theirs()
        self._unwatch()
        self._stop_watching()
        if self.sandbox is not None:
            self.pool.give_back(self.order.key, self.sandbox)
            self.sandbox = None

    def give_back_soon(self) -> None:
        """Have the ended sandbox taken away once the caller has its answer.

        The kernel has so much to take to pieces that whoever computes meanwhile is held up by half a
        millisecond.
        """
        if self.sandbox is not None:
            self.loop.call_soon(self.pool.give_back, self.order.key, self.sandbox)
            self.sandbox = None

    def completed(self, duration_ms: float) -> Completed:
        """Put the answer together, or raise what kept the command from running."""
        status = self.status()
        out, err, *result = self.drains
        enforcement = report(self.order.plan.unprotected, self.exceeded(status), self.job.network, self.level)
        if self.order.guards and self.level == "full" and (replaced := self.order.replaced(self.now)):
            enforcement["replaced"] = list(replaced)
        return Completed(
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            stdout=bytes(out.kept),
            stderr=bytes(err.kept),
            stdout_total=out.total,
            stderr_total=err.total,
            timed_out=self.timed_out,
            duration_ms=duration_ms,
            enforcement=enforcement,
            result=bytes(result[0].kept) if result else b"",
            result_total=result[0].total if result else 0,
        )

    def exceeded(self, status: int) -> tuple[str, ...]:
        """The limits that a failed command met: those of the whole tree, and what its own signal tells."""
        if self.timed_out or (status == 0 and self.succeeded()):
            return ()
        met = {name: os.WIFSIGNALED(status) and os.WTERMSIG(status) == number for name, number in TOLD_BY}
        slot = None if self.sandbox is None else self.sandbox.slot
        if slot is not None:
            events = slot.events()
            met |= {"memory": events["oom_kills"] > 0, "processes": events["pids_max"] > 0}
        return tuple(name for name, held in met.items() if held)

    def succeeded(self) -> bool:
        """Whether the result of a command that ended well is not one that tells of a failure."""
        return not self.job.good or self.drains[-1].kept.startswith(self.job.good)

    def status(self) -> int:
        """The command's wait status; SIGKILL's where the end of everything left none."""
        if self.blind is not None:
            raise self.blind
        messages = self.sandbox.messages if self.sandbox is not None else []
        for message in messages:
            if message.startswith("fail "):
                raise explain(message[5:])
        for message in messages:
            if message.startswith("exit ") and message[5:].isdigit():
                return int(message[5:])
        if self.answered:
            return 0
        if self.timed_out or self.sandbox is None:
            return 9
        if self.sandbox.launcher.alive():
            if "exec" in messages:
                return 9
            refuse_small(self.sandbox.slot, self.job.memory_bytes)
            raise NeverStarted(self.sandbox.why)
        if "exec" in messages:
            raise UnavailableError(
                "the sandbox's launcher was ended from outside, and the command with it",
                hint="It is started anew for the next call.",
                retryable=True,
                details={"started": True},
            )
        raise self._without_launcher(self.sandbox)

    def _without_launcher(self, sandbox: Sandbox) -> Exception:
        """What it means that a launcher ended before the command started."""
        noise = sandbox.launcher.last_words()
        if sandbox.pidfd >= 0 or not sandbox.launcher.unable():
            return NeverStarted(noise or "the sandbox's launcher was ended from outside")
        if self.job.script is not None:
            self.pool.note_unfit(self.job.script.interpreter)
            return LauncherUnfit()
        return unavailable("launcher", f"it cannot be started: {noise or 'it ended at once'}")

    def _receive(self) -> None:
        """Take in what came, and answer it."""
        sandbox = self.sandbox
        assert sandbox is not None
        while sandbox.receive():
            pass
        if sandbox.watch >= 0:
            self._begin_watching(sandbox)
        told = any(message.startswith(("exit ", "fail ")) for message in sandbox.messages)
        if told or (sandbox.gone and sandbox.pidfd < 0):
            self._end()
        elif sandbox.gone:
            # All of it has gone when pid 1 has.
            self._unwatch()
            self._watch(sandbox.pidfd, self._end)
        elif self._may_start(sandbox):
            self._give_word(sandbox)

    def _may_start(self, sandbox: Sandbox) -> bool:
        """Whether all is there that must be before the word."""
        awaited = self.job.network == "proxy" and self.level == "full"
        led_out = sandbox.listener is not None or not awaited
        return sandbox.pidfd >= 0 and led_out and not self.started and not self.timed_out

    def _give_word(self, sandbox: Sandbox) -> None:
        """Let the command start, its way out open by then."""
        # This is a callback: nobody else would hear of an error.
        try:
            env = self._open_outlet(sandbox) if sandbox.listener is not None else dict(self.job.env)
            sandbox.go({"argv": list(self.job.argv), "env": env}, self.fds)
        except ConnectionError:  # It has ended already, and says why.
            pass
        except OSError as error:
            self._fail(not_started("the command could not be started", error.strerror))
            return
        except Exception as error:
            self._fail(error)
            return
        self.started = True
        self._close_theirs()

    def _fail(self, error: Exception) -> None:
        """End with an error: nothing was run, nor will be."""
        self._unwatch()
        if not self.ended.done():
            self.ended.set_exception(error)

    def _open_outlet(self, sandbox: Sandbox) -> dict[str, str]:
        """Have the sandbox's listener served; the environment that leads the command to it."""
        listener, sandbox.listener = sandbox.listener, None
        assert listener is not None
        assert self.job.outlet is not None
        port: int = listener.getsockname()[1]
        try:
            self.outlet = self.job.outlet(listener)
        except BaseException:
            listener.close()
            raise
        self.outlet.start()
        return proxy_variables(self.job.env, port)

    def _begin_watching(self, sandbox: Sandbox) -> None:
        assert self.job.watch is not None
        self.watcher = Watcher(sandbox.watch, self.job.watch, sockets=not asked(self.job))
        sandbox.watch = -1
        self.loop.add_reader(self.watcher.listener, self._serve)

    def _serve(self) -> None:
        """Let one watched call go on; when it cannot be read, nothing goes on any more."""
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

    def _watch(self, fd: int, action: Callable[[], None]) -> None:
        self.watched = fd
        self.loop.add_reader(fd, action)

    def _unwatch(self) -> None:
        if self.watched >= 0:
            self.loop.remove_reader(self.watched)
            self.watched = -1

    def _close_theirs(self) -> None:
        while self.fds:
            os.close(self.fds.popitem()[1])

    def _end(self) -> None:
        self._unwatch()
        if not self.ended.done():
            self.ended.set_result(None)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append(self.loop.call_later(seconds, action))

    def _time_out(self) -> None:
        if self.ended.done():
            return
        self.timed_out = True
        if self.sandbox is not None and self.started:
            self.sandbox.signal(signal.SIGTERM)
            self._after(GRACE, self.kill)
        else:
            self.kill()

    def kill(self) -> None:
        """End everything; what has not been given the word has nothing to wait for."""
        if self.sandbox is not None and self.started:
            self.sandbox.signal(signal.SIGKILL)
            if self.sandbox.kept:
                self._after(STUBBORN, self.sandbox.kill_keeper)
        else:
            self._end()


def refuse_small(slot: Slot | None, memory_bytes: int | None) -> None:
    """Say so where what never started was killed for its own limit, not for want of memory elsewhere.

    Raises:
        ToolUnavailable: the limit is too small for a sandbox.
    """
    if slot is None or memory_bytes is None:
        return
    events = slot.events()
    peak = events["memory_peak"]
    if events["oom_kills"] and (peak is None or 2 * peak >= memory_bytes):
        raise ToolUnavailable(
            f"memory of {memory_bytes} bytes is too little for anything to be started in a sandbox",
            hint="raise limits.memory_bytes",
        )


async def uncancelled(future: asyncio.Future[None]) -> None:
    """Wait to the end, however often the waiting task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            continue
