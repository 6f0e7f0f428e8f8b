"""The launchers and spare sandboxes of this process, shared by all its event loops and threads.

A spare is a sandbox made before it is needed, for a tool that was called twice within a short time: with the
same grants, limits and working folder. It has nothing of any call, and is used for one only. A thread of
the pool starts and ends launchers and orders spares. It must stay, because the kernel ends a launcher
together with the thread that started it.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox.host.enforcement import group_for, groups
from toolcrib.sandbox.host.handle import LauncherHandle, SandboxHandle, Stamps
from toolcrib.sandbox.job import Warmth
from toolcrib.sandbox.kernel.cgroup import CgroupSlot
from toolcrib.spec.record import record

REMEMBERED = 64
UNFIT_S = 60.0
"""Seconds until an interpreter whose launcher could not be started is tried again."""
BUSY = 4
"""Running calls above which spares would only take time from them."""


@record
class SandboxOrder:
    """All that a launcher needs to make a sandbox: nothing of the call itself."""

    launcher: str
    """The interpreter; empty for commands, `FUNCTIONS` for registered functions."""
    job: dict[str, Any]
    """The message to the launcher; never changed."""
    key: Hashable
    """Two calls with an equal key can use each other's spares."""
    prepare: Callable[[SandboxHandle], None] | None = None
    """Called with each sandbox as soon as it is ordered."""


@dataclass(slots=True)
class Demand:
    """The recent calls with one key, and the spares made for the next."""

    order: SandboxOrder
    count: int = 0
    wanted: int = 1
    last: float = 0.0
    spares: list[SandboxHandle] = field(default_factory=list)

    def drop_spares(self) -> None:
        """End all spares."""
        while self.spares:
            self.spares.pop().close()


class WarmPool:
    """Hands out sandboxes: a spare if one fits, else a new one."""

    def __init__(self, warmth: Warmth | None = None) -> None:
        self.warmth = warmth or Warmth()
        self.unfit: dict[str, float] = {}
        """Interpreters whose launcher could not be started, and until when none is tried."""
        self._lock = threading.RLock()
        self._launchers: OrderedDict[str, LauncherHandle] = OrderedDict()
        self._demands: OrderedDict[Hashable, Demand] = OrderedDict()
        self.tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def take(self, order: SandboxOrder, now: Stamps) -> SandboxHandle:
        """Return a sandbox for one call. A spare may still be in the making (`bound` is None).

        Arguments:
            now: the files that the order's paths name now; a spare that mounted other files is ended.

        Raises:
            BlockingIOError: too many orders are waiting.
            OSError: there are too many open files or processes.
            SandboxUnavailable: a stated limit cannot be enforced any more.
        """
        with self._lock:
            demand = self._note(order)
            while demand.spares:
                # The oldest first: it has had the longest time to get ready.
                spare = demand.spares.pop(0)
                spare.receive()
                dead = spare.gone or spare.outcome or not spare.launcher.alive()
                # A spare mounted what its paths named when it was made. If one leads to another file now, its
                # grants are old.
                if not dead and spare.bound in (None, now):
                    return spare
                spare.close()
            # Calls of one tool overlap: one spare at a time is not enough for it.
            if demand.count > 2 and demand.wanted < self.warmth.spares_each and self._running():
                demand.wanted += 1
            return self._make(order)

    def give_back(self, sandbox: SandboxHandle) -> None:
        """End a sandbox that was taken, and order a spare for the next call."""
        with self._lock:
            demand = self._demands.get(sandbox.key)
            # First, as the thread waits for the end of the processes of what is closed.
            if demand is not None and demand.count > 1 and self.warmth.spares:
                self.tasks.put(lambda: self._refill(demand))
            sandbox.close()

    def is_unfit(self, interpreter: str) -> bool:
        """Return True if a launcher of this interpreter could not be started a short time ago."""
        return time.monotonic() < self.unfit.get(interpreter, 0.0)

    def note_unfit(self, interpreter: str) -> None:
        """Have this interpreter started inside the sandbox for some time; the cause may be fixed by then."""
        self.unfit[interpreter] = time.monotonic() + UNFIT_S

    def close(self) -> None:
        """End every launcher and sandbox; the pool can be used again."""
        with self._lock:
            self.drop_spares()
            self._demands.clear()
            while self._launchers:
                self._launchers.popitem()[1].close()
            if self._thread is not None:
                self.tasks.put(None)
                # The next thread has a queue of its own: the end is for the one that is to end.
                self._thread, self.tasks = None, queue.SimpleQueue()

    def forget(self) -> None:
        """Start anew in a fork of the server, without touching what belongs to the parent."""
        for launcher in self._launchers.values():
            launcher.forget()
        for demand in self._demands.values():
            demand.drop_spares()
        groups.cache_clear()
        # A lock that another thread of the parent had at the fork would stay locked for ever.
        self.__init__(self.warmth)  # type: ignore[misc]  # every field is made anew, the lock too

    def sweep(self) -> None:
        """End spares and launchers that were not used for long, and forget launchers that have ended."""
        now = time.monotonic()
        with self._lock:
            for demand in self._demands.values():
                if now - demand.last >= self.warmth.spare_idle_s:
                    demand.drop_spares()
                    demand.wanted = 1
            for name, launcher in list(self._launchers.items()):
                old = now - launcher.used >= self.warmth.idle_s
                if not launcher.alive() or (old and not self._running(launcher)):
                    self._drop(name)

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running launchers, by interpreter (empty for commands)."""
        with self._lock:
            return {n: one.process.pid for n, one in self._launchers.items() if one.process and one.alive()}

    def waiting(self) -> int:
        """Return the number of spares that are ready."""
        with self._lock:
            spares = self._spares()
            for spare in spares:
                spare.receive()
            return sum(spare.bound is not None and not spare.gone for spare in spares)

    def drop_spares(self) -> None:
        """End all spares."""
        with self._lock:
            for demand in self._demands.values():
                demand.drop_spares()

    def _note(self, order: SandboxOrder) -> Demand:
        now = time.monotonic()
        demand = self._demands.get(order.key)
        if demand is None:
            demand = self._demands[order.key] = Demand(order)
            if len(self._demands) > REMEMBERED:
                self._demands.popitem(last=False)[1].drop_spares()
        elif now - demand.last > self.warmth.spare_idle_s:
            demand.count = 0
        self._demands.move_to_end(order.key)
        demand.count += 1
        demand.last = now
        return demand

    def _make(self, order: SandboxOrder) -> SandboxHandle:
        launcher = self._launcher(order.launcher)
        job = order.job
        # Registered functions are the user's own code, which nothing limits.
        is_own = job["level"] == "function"
        slot = None if is_own else group_for(job["memory_bytes"], job["processes"], job["level"])
        try:
            sandbox = launcher.make(job, slot)
        except BaseException:
            if slot is not None:
                self._release(slot)
            raise
        sandbox.key = order.key
        if order.prepare is not None:
            try:
                order.prepare(sandbox)
            except BaseException:
                sandbox.close()
                raise
        return sandbox

    def _release(self, slot: CgroupSlot) -> None:
        pool, _ = groups()
        if pool is not None:
            # It waits until the killed processes are gone, so the thread does it.
            self.tasks.put(lambda: pool.release(slot))

    def _launcher(self, name: str) -> LauncherHandle:
        """Return the launcher with this name; a new one is started if it does not run."""
        launcher = self._launchers.get(name)
        if launcher is not None and not launcher.alive():
            self._drop(name)
            launcher = None
        # The kernel ends a launcher with the thread that started it (PR_SET_PDEATHSIG), so it must be this
        # one.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=serve, args=(self, self.tasks), name="toolcrib-launchers", daemon=True
            )
            self._thread.start()
        if launcher is None:
            launcher = self._launchers[name] = LauncherHandle(name, self._release)
            self._limit_launchers()
            self.tasks.put(launcher.start)
        self._launchers.move_to_end(name)
        return launcher

    def _limit_launchers(self) -> None:
        """End the least recently used launchers where there are too many and they run no call."""
        for name, launcher in list(self._launchers.items())[:-1]:
            if len(self._launchers) <= self.warmth.launchers:
                return
            if not self._running(launcher):
                self._drop(name)

    def _drop(self, name: str) -> None:
        for demand in self._demands.values():
            if demand.order.launcher == name:
                demand.drop_spares()
        launcher = self._launchers.pop(name)
        if not launcher.alive():
            launcher.last_words()  # The calls that it ends will ask for them.
        # Closing the socket ends the process at once; the thread waits for its end.
        launcher.socket.close()
        self.tasks.put(launcher.close)

    def _spares(self) -> list[SandboxHandle]:
        return [spare for demand in self._demands.values() for spare in demand.spares]

    def _running(self, launcher: LauncherHandle | None = None) -> int:
        """Return the number of sandboxes in use, of one launcher or of all."""
        launchers = self._launchers.values() if launcher is None else [launcher]
        waiting = sum(spare.launcher in launchers for spare in self._spares())
        return sum(one.living for one in launchers) - waiting

    def _refill(self, demand: Demand) -> None:
        """Order the spares that a demand lacks."""
        with self._lock:
            launcher = self._launchers.get(demand.order.launcher)
            # Checked again: this runs later, in the thread, and the pool may have been closed or the demand
            # forgotten.
            known = self._demands.get(demand.order.key) is demand
            if not known or launcher is None or not launcher.alive() or self._running() > BUSY:
                return
            while len(demand.spares) < demand.wanted:
                if len(self._spares()) >= self.warmth.spares:
                    oldest = next((one for one in self._demands.values() if one.spares), demand)
                    if oldest is demand:
                        return
                    oldest.spares.pop(0).close()
                try:
                    spare = self._make(demand.order)
                except (OSError, SandboxUnavailable):  # The next call reports it.
                    return
                spare.spare = True
                demand.spares.append(spare)


def serve(pool: WarmPool, tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    """Do the pool's tasks, in its thread, until it is closed."""
    while True:
        warmth = pool.warmth
        every = min(warmth.idle_s, warmth.spare_idle_s) / 2 + 0.01
        try:
            task = tasks.get(timeout=every if pool.pids() else None)
        except queue.Empty:
            pool.sweep()
            continue
        if task is None:
            return
        task()


_shared = WarmPool()
os.register_at_fork(after_in_child=_shared.forget)
atexit.register(_shared.close)


def shared() -> WarmPool:
    """Return the pool of this process."""
    return _shared
