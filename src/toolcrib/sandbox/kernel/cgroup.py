"""Control groups: the only bound on the memory and the number of processes of a whole tree.

Runs in the server. `open_pool` looks for a place where the kernel lets us make groups, and proves it by doing
so: the v1 hierarchies `memory` and `pids`, a delegated subtree of v2, or one of each. A call takes a slot
from the pool, the child writes `0` to each of the slot's join files before it does anything else, and the
slot comes back when the call is over. Making, filling and removing a group costs milliseconds, so slots are
used again.

Files: https://docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/memory.html, .../cgroup-v1/pids.html.
"""

from __future__ import annotations

import atexit
import errno
import os
import shlex
import subprocess
import threading
import time
from typing import NamedTuple

from toolcrib.sandbox.kernel.hierarchy import (
    CONTROLLERS,
    NoCgroups,
    ParentGroup,
    candidates,
    kill_members,
    make_own_group,
    members,
    read,
    remove_tree,
    write,
)

LEFTOVER = 4 << 20
"""Bytes that may stay charged to a released slot: cached file pages, and what the kernel frees late."""
CLEAR_SECONDS = 0.25
"""Time for the killed to be reaped when a slot is released; their parent may be slow, or dead. To make a new
slot costs more than to wait for this one."""
_PAUSE_S = 0.001


class CgroupEvents(NamedTuple):
    """Number of times that the limits of a group had an effect."""

    oom_kills: int = 0
    """Processes killed because there was no memory."""
    memory_max: int = 0
    """Times that the memory limit was reached; on v1 0 or 1."""
    pids_max: int = 0
    """New processes or threads refused."""


def memory_writes(version: int, limit: int, *, swap: bool) -> list[tuple[str, str]]:
    """Return the files to write for a memory limit in bytes, in an order that the kernel accepts.

    On v1 memory with swap may never be limited to less than memory alone, so that limit is lifted first.
    """
    if version == 2:
        return [("memory.max", str(limit))]
    writes = [("memory.limit_in_bytes", str(limit))]
    if swap:
        file = "memory.memsw.limit_in_bytes"
        writes = [(file, "-1"), *writes, (file, str(limit))]
    return writes


def counter(text: str, name: str) -> int:
    """Return the number in one line of a file such as `memory.events`; 0 if there is no such line."""
    found = dict(line.split(" ", 1) for line in text.splitlines())
    return int(found.get(name, 0))


class CgroupSlot:
    """A group of ours, for one call at a time.

    Raises:
        OSError: the group cannot be made.
    """

    def __init__(self, name: str, memory: ParentGroup, pids: ParentGroup) -> None:
        self.version = memory.version
        self.memory_folder = os.path.join(memory.folder, name)
        self.pids_folder = os.path.join(pids.folder, name)
        """The same folder on v2."""
        # On v1 the file for single threads: to move a whole process, the kernel waits until no process of the
        # machine is in the middle of a fork, which takes some 10 ms.
        files = {1: "tasks", 2: "cgroup.procs"}
        self.join_files = tuple(dict.fromkeys((
            os.path.join(self.memory_folder, files[memory.version]),
            os.path.join(self.pids_folder, files[pids.version]),
        )))  # fmt: skip
        """Files that a process of one thread writes `0` to before it forks, to join the group: all of
        them."""
        self.join_fds: tuple[int, ...] = ()
        """The same, open for writing; they belong to the slot."""
        self.before = CgroupEvents()
        self._limits: tuple[int, int] | None = None
        """Those that the kernel enforces now."""
        # On v1 what is sent and not yet received is counted by itself, and only where it has a limit.
        self.sockets = "memory.kmem.tcp.limit_in_bytes"
        try:
            for folder in self.folders:
                os.mkdir(folder)
            self.join_fds = tuple(os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in self.join_files)
            self.swap = os.path.exists(f"{self.memory_folder}/memory.memsw.limit_in_bytes")
            if not os.path.exists(f"{self.memory_folder}/{self.sockets}"):
                self.sockets = ""
            if self.version == 1 and not self.swap:
                # Nothing limits swap here, so it is not used: memory beyond the limit would go there.
                write("0", self.memory_folder, "memory.swappiness")
            if os.path.exists(f"{self.memory_folder}/memory.swap.max"):  # v2
                write("0", self.memory_folder, "memory.swap.max")
        except BaseException:
            self.remove()
            raise

    @property
    def folders(self) -> tuple[str, ...]:
        """The group's folders, one for each hierarchy."""
        return tuple(dict.fromkeys((self.memory_folder, self.pids_folder)))

    def set_limits(self, memory_bytes: int, processes: int) -> None:
        """Set the limits of the next call; mostly they are those of the last one."""
        if self.version == 1:
            write("0", self.memory_folder, "memory.max_usage_in_bytes")
        if self._limits == (memory_bytes, processes):
            return
        self._limits = None
        for file, text in memory_writes(self.version, memory_bytes, swap=self.swap):
            write(text, self.memory_folder, file)
        if self.sockets:
            write(str(memory_bytes), self.memory_folder, self.sockets)
        write(str(processes), self.pids_folder, "pids.max")
        self._limits = memory_bytes, processes

    def events(self) -> CgroupEvents:
        """Return how often the limits had an effect since the slot was acquired."""
        found = CgroupEvents(*(now - then for now, then in zip(self._counters(), self.before, strict=True)))
        if self.version == 2:
            return found
        # v1 counts no such events (failcnt stays 0 on Linux 6.18). Memory is charged many pages at a time, so
        # an attempt can fail well below the limit.
        peak = int(read(self.memory_folder, "memory.max_usage_in_bytes"))
        limit = int(read(self.memory_folder, "memory.limit_in_bytes"))
        return found._replace(memory_max=int(2 * peak >= limit))

    def _counters(self) -> CgroupEvents:
        """Return the events since the group was made."""
        file = "memory.oom_control" if self.version == 1 else "memory.events"
        memory = read(self.memory_folder, file)
        refused = counter(read(self.pids_folder, "pids.events"), "max")
        return CgroupEvents(counter(memory, "oom_kill"), counter(memory, "max"), refused)

    def clear(self) -> bool:
        """Kill what is left and drop what is cached; return True if the next call can have the slot."""
        deadline, pause_s = time.monotonic() + CLEAR_SECONDS, _PAUSE_S
        # The number of processes includes those that nobody has waited for yet.
        while int(read(self.pids_folder, "pids.current")) or members(self.memory_folder):
            # At the first look they end already, with pid 1. What is left at the next one is killed.
            if pause_s > _PAUSE_S:
                self._limits = None  # Nothing more may start.
                for folder in self.folders:
                    kill_members(folder)
            if time.monotonic() > deadline:
                return False
            time.sleep(pause_s)
            pause_s *= 2
        self.before = self._counters()
        if self._usage() <= LEFTOVER:
            return True
        self._drop_cache()
        # Files on a tmpfs of the machine stay charged as long as they exist: there is no room for the next
        # call.
        return self._usage() <= LEFTOVER

    def _usage(self) -> int:
        """Return the bytes charged to the group now."""
        file = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int(read(self.memory_folder, file))

    def _drop_cache(self) -> None:
        """Give back the file pages that a call has left in the cache."""
        try:
            if self.version == 1:
                write("0", self.memory_folder, "memory.force_empty")
            else:
                write(str(self._usage()), self.memory_folder, "memory.reclaim")
        except OSError:  # Not everything could be freed, or the kernel is older than 5.19.
            pass

    def close(self) -> None:
        """Close the join files."""
        for fd in self.join_fds:
            os.close(fd)
        self.join_fds = ()

    def remove(self) -> bool:
        """Remove the group; return True if it is gone."""
        self.close()
        gone = [remove_tree(folder) for folder in self.folders]
        return all(gone)


class CgroupPool:
    """Groups for calls, some of them ready; safe to use from several threads.

    Arguments:
        parents: controller to the group that our own is made in.
        keep: slots that wait for the next call; others are removed when they come back.

    Raises:
        NoCgroups: none can be made.
        OSError: the kernel refuses.
    """

    def __init__(self, parents: dict[str, ParentGroup], *, keep: int = 16) -> None:
        self.keep = keep
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.free: list[CgroupSlot] = []
        self.used: set[CgroupSlot] = set()
        self.stuck: list[CgroupSlot] = []
        self.made = 0
        self.closed = False
        self._groups: dict[ParentGroup, ParentGroup] = {}
        self._locks: list[int] = []
        atexit.register(self.close)
        try:
            for parent in dict.fromkeys(parents.values()):
                self._groups[parent], lock = make_own_group(parent)
                self._locks.append(lock)
        except BaseException:
            self.close()
            raise
        self.memory, self.pids = (self._groups[parents[name]] for name in CONTROLLERS)

    @property
    def description(self) -> str:
        """The versions in use, for reports."""
        versions = {"memory": self.memory.version, "pids": self.pids.version}
        if len(set(versions.values())) == 1:
            return f"cgroup v{self.memory.version} memory and pids"
        return " and ".join(f"cgroup v{version} {name}" for name, version in versions.items())

    def acquire(self, memory_bytes: int, processes: int) -> CgroupSlot:
        """Take a group with these limits.

        `processes` counts threads too, and everything that joins: add what the sandbox itself needs.

        Raises:
            OSError: the kernel refuses, or the pool is closed (EAGAIN).
        """
        while True:
            with self.lock:
                if self.closed:
                    raise OSError(errno.EAGAIN, "the pool is closed")
                slot = self.free.pop() if self.free else None
                self.made += slot is None
                name = f"slot-{self.made}"
            fresh = slot is None
            slot = slot or CgroupSlot(name, self.memory, self.pids)
            try:
                slot.set_limits(memory_bytes, processes)
            except OSError:
                self._remove(slot)
                # What earlier calls left in it may be more than this one's limit.
                if fresh:
                    raise
                continue
            with self.lock:
                self.used.add(slot)
            return slot

    def release(self, slot: CgroupSlot) -> None:
        """Give a group back. What still runs in it is killed, which can take up to half a second."""
        with self.lock:
            if slot not in self.used:
                return
            self.used.discard(slot)
        try:
            clean = slot.clear()
        except OSError:
            clean = False
        with self.lock:
            if clean and not self.closed and len(self.free) < self.keep:
                self.free.append(slot)
                return
        self._remove(slot)

    def _remove(self, slot: CgroupSlot) -> None:
        """Remove a group, and those that could not be removed before."""
        with self.lock:
            stuck, self.stuck = [*self.stuck, slot], []
        left = [one for one in stuck if not one.remove()]
        with self.lock:
            self.stuck += left

    def close(self) -> None:
        """Kill what still runs in our groups and remove them. A fork of the server does nothing."""
        if os.getpid() != self.owner:
            return
        atexit.unregister(self.close)
        with self.lock:
            self.closed = True
            # Slots in use as well: the process ends, and nobody else would remove their groups.
            slots = [*self.free, *self.used, *self.stuck]
            self.free, self.stuck, locks, self._locks = [], [], self._locks, []
            self.used.clear()
        for slot in slots:
            slot.close()
        for group in self._groups.values():
            remove_tree(group.folder)
        for lock in locks:
            os.close(lock)


def open_pool(*, keep: int = 16) -> tuple[CgroupPool | None, str]:
    """Find a place for groups and prove it by running a process in one.

    Arguments:
        keep: slots that wait for the next call.

    Returns the pool and what it is made of, or None and the reason.
    """
    try:
        places = candidates(read("/proc/self/mountinfo"), read("/proc/self/cgroup"))
        parents = {name: place for place in places for name in place.controllers}
        if missing := sorted(set(CONTROLLERS) - set(parents)):
            raise NoCgroups(f"no cgroup hierarchy with the {' and '.join(missing)} controller")
        pool = CgroupPool(parents, keep=keep)
    except (OSError, NoCgroups) as error:
        return None, f"no writable cgroup: {error}"
    try:
        prove(pool)
    except (OSError, NoCgroups, subprocess.SubprocessError) as error:
        pool.close()
        return None, f"the cgroup has no effect: {error}"
    return pool, pool.description


def prove(pool: CgroupPool) -> None:
    """Run a process in a slot and check that it is counted there.

    Raises:
        NoCgroups: it is not.
    """
    slot = pool.acquire(64 << 20, 16)
    files = (*(f"{folder}/cgroup.procs" for folder in slot.folders), f"{slot.pids_folder}/pids.current")
    join = "".join(f"echo 0 >{shlex.quote(file)} || exit 1; " for file in slot.join_files)
    script = f"{join} echo $$; " + "".join(f"read -r n <{shlex.quote(file)}; echo $n; " for file in files)
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, env={}, text=True, check=False)
    if done.returncode != 0:
        raise NoCgroups(f"a process could not join: {done.stderr.strip()}")
    pid, *inside, counted = done.stdout.split()
    if set(inside) != {pid} or counted != "1":
        raise NoCgroups("a process that joined is not counted")
    pool.release(slot)
