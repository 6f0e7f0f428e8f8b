"""The launchers and spare sandboxes of this process, shared by all of its event loops and threads.

A spare is a sandbox made ahead of need, for what was called twice within a short time: same grants, limits
and working folder. It holds nothing of any call and is used for one only. One thread of ours starts and
ends launchers and orders spares; it must stay, because the kernel ends a launcher with the thread that
started it.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolcrib.sandbox.host.enforcement import group_for, groups
from toolcrib.sandbox.host.handle import Launcher, Sandbox, Stamps
from toolcrib.sandbox.job import Warmth
from toolcrib.sandbox.kernel.cgroup import Slot

__all__ = ["Key", "Pool", "shared"]

Key = tuple[Any, ...]
"""Interpreter (empty for commands), then everything else a sandbox is made from."""
REMEMBERED = 64
UNFIT_S = 60.0
"""Seconds until an interpreter whose launcher could not be started is tried again."""
BUSY = 4
"""Calls that run at once, above which spares would only take time from them."""


@dataclass(slots=True)
class Use:
    """How a key was used of late."""

    job: dict[str, Any]
    count: int = 0
    wanted: int = 1
    last: float = 0.0
    prepare: Callable[[Sandbox], None] | None = None
    """What is done to a sandbox as soon as it is ordered."""
    spares: list[Sandbox] = field(default_factory=list)


class Pool:
    """Hands out sandboxes: a spare where one fits, else one just ordered."""

    def __init__(self, warmth: Warmth | None = None) -> None:
        self.warmth = warmth or Warmth()
        self.unfit: dict[str, float] = {}
        """Interpreters whose launcher could not be started, and until when none is tried."""
        self._lock = threading.RLock()
        self._launchers: OrderedDict[str, Launcher] = OrderedDict()
        self._uses: OrderedDict[Key, Use] = OrderedDict()
        self._running = 0
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def take(
        self,
        key: Key,
        program: str,
        job: dict[str, Any],
        now: Stamps,
        prepare: Callable[[Sandbox], None] | None = None,
    ) -> Sandbox:
        """A sandbox for one call.

        Where it is a spare that is not ready yet, the caller still has to compare what it has bound.

        Arguments:
            program: the interpreter of the launcher.
            now: what the paths of the job name now; a spare that has bound anything else is ended.
            prepare: what is done to a sandbox as soon as it is ordered.

        Raises:
            BlockingIOError: too many orders wait.
            OSError: there are too many open files or processes.
        """
        with self._lock:
            use = self._note(key, job)
            use.prepare = prepare
            while use.spares:
                spare = use.spares.pop(0)
                while spare.receive():
                    pass
                usable = not spare.gone and not spare.messages and spare.launcher.alive()
                if usable and spare.found in (None, now):
                    self._running += 1
                    return spare
                spare.close()
            if use.count > 2 and use.wanted < self.warmth.spares_each and self._running:
                use.wanted += 1
            sandbox = self._make(self._launcher(key[0], program), use)
            self._running += 1
            return sandbox

    def is_unfit(self, interpreter: str) -> bool:
        """Whether a launcher of this interpreter could not be started of late."""
        return time.monotonic() < self.unfit.get(interpreter, 0.0)

    def note_unfit(self, interpreter: str) -> None:
        """Have its programs started inside of the sandbox for some time: what is wrong may be mended."""
        self.unfit[interpreter] = time.monotonic() + UNFIT_S

    def give_back(self, key: Key, sandbox: Sandbox) -> None:
        """End a sandbox that was taken, and see to a spare for the next call."""
        with self._lock:
            sandbox.close()
            self._running -= 1
            use = self._uses.get(key)
            if use is not None and use.count > 1 and self.warmth.spares:
                self._tasks.put(lambda: self._refill(key))

    def close(self) -> None:
        """End every launcher and sandbox; the pool can be used again."""
        with self._lock:
            for use in self._uses.values():
                drop_spares(use)
            self._uses.clear()
            while self._launchers:
                self._launchers.popitem()[1].close()
            if self._thread is not None:
                self._tasks.put(None)
                self._thread = None

    def forget(self) -> None:
        """In a forked child: start anew, without touching what is the parent's."""
        for launcher in self._launchers.values():
            launcher.forget()
        for use in self._uses.values():
            drop_spares(use)
        groups.cache_clear()
        self.__init__(self.warmth)  # type: ignore[misc]  # every field is made anew, the lock too

    def sweep(self) -> None:
        """End what was not used for long, or has ended by itself."""
        now = time.monotonic()
        with self._lock:
            for use in self._uses.values():
                if now - use.last >= self.warmth.spare_idle_s:
                    drop_spares(use)
                    use.wanted = 1
            spares = self._spares()
            for name, launcher in list(self._launchers.items()):
                idle = launcher.living - spares.get(launcher, 0) <= 0
                if not launcher.alive() or (idle and now - launcher.used >= self.warmth.idle_s):
                    self._drop(name)

    def pids(self) -> dict[str, int]:
        """The launchers that run, by interpreter (empty for commands)."""
        with self._lock:
            return {n: one.process.pid for n, one in self._launchers.items() if one.process and one.alive()}

    def waiting(self) -> int:
        """How many spares are ready."""
        with self._lock:
            count = 0
            for use in self._uses.values():
                for spare in use.spares:
                    while spare.receive():
                        pass
                    count += spare.found is not None and not spare.gone
            return count

    def drop_spares(self) -> None:
        """End all spares that wait."""
        with self._lock:
            for use in self._uses.values():
                drop_spares(use)

    def _note(self, key: Key, job: dict[str, Any]) -> Use:
        now = time.monotonic()
        use = self._uses.get(key)
        if use is None:
            use = self._uses[key] = Use(job)
            if len(self._uses) > REMEMBERED:
                drop_spares(self._uses.popitem(last=False)[1])
        elif now - use.last > self.warmth.spare_idle_s:
            use.count = 0
        self._uses.move_to_end(key)
        use.count += 1
        use.last = now
        return use

    def _make(self, launcher: Launcher, use: Use) -> Sandbox:
        job = use.job
        stated = job["memory_bytes"] or job["processes"]
        # The server's own functions are held to what is stated, and to nothing else.
        free = job["level"] == "function" and not stated
        slot = None if free else group_for(job["memory_bytes"], job["processes"])
        try:
            sandbox = launcher.make(job, slot, self._release)
        except BaseException:
            if slot is not None:
                self._release(slot)
            raise
        if use.prepare is not None:
            try:
                use.prepare(sandbox)
            except BaseException:
                sandbox.close()
                raise
        return sandbox

    def _release(self, slot: Slot) -> None:
        pool, _ = groups()
        if pool is not None:
            # It waits for the killed to be gone, so it is for the thread.
            self._tasks.put(lambda: pool.release(slot))

    def _launcher(self, name: str, program: str) -> Launcher:
        launcher = self._launchers.get(name)
        if launcher is not None and not launcher.alive():
            self._drop(name)
            launcher = None
        if launcher is None:
            launcher = self._launchers[name] = Launcher(program, name)
            self._make_room()
            self._tasks.put(launcher.start)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=keep, args=(self, self._tasks), name="toolcrib-launchers", daemon=True
                )
                self._thread.start()
        self._launchers.move_to_end(name)
        return launcher

    def _make_room(self) -> None:
        spares = self._spares()
        for name, launcher in list(self._launchers.items())[:-1]:
            if len(self._launchers) <= self.warmth.launchers:
                return
            if launcher.living - spares.get(launcher, 0) <= 0:
                self._drop(name)

    def _drop(self, name: str) -> None:
        for key, use in self._uses.items():
            if key[0] == name:
                drop_spares(use)
        launcher = self._launchers.pop(name)
        if not launcher.alive():
            launcher.last_words()  # Those whose calls it ends will ask for them.
        # A socket that is closed ends it at once; waiting for that is the thread's business.
        launcher.socket.close()
        self._tasks.put(launcher.close)

    def _spares(self) -> dict[Launcher, int]:
        found: dict[Launcher, int] = {}
        for use in self._uses.values():
            for spare in use.spares:
                found[spare.launcher] = found.get(spare.launcher, 0) + 1
        return found

    def _refill(self, key: Key) -> None:
        with self._lock:
            use = self._uses.get(key)
            launcher = self._launchers.get(key[0])
            if use is None or launcher is None or not launcher.alive() or self._running > BUSY:
                return
            while len(use.spares) < use.wanted:
                if sum(self._spares().values()) >= self.warmth.spares:
                    oldest = next((u for u in self._uses.values() if u.spares), use)
                    if oldest is use:
                        return
                    oldest.spares.pop(0).close()
                try:
                    spare = self._make(launcher, use)
                except OSError:
                    return
                spare.spare = True
                use.spares.append(spare)


def drop_spares(use: Use) -> None:
    """End all spares made for one use."""
    while use.spares:
        use.spares.pop().close()


def keep(pool: Pool, tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    """What the pool's thread does until it is told to end."""
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


_shared = Pool()
os.register_at_fork(after_in_child=_shared.forget)
atexit.register(_shared.close)


def shared() -> Pool:
    """The pool of this process."""
    return _shared
