"""Control groups: the only bound on the memory and the number of processes of a whole tree.

Runs in the server. `open_pool` looks for a place where the kernel lets us make groups and proves it by
doing so: the v1 hierarchies `memory` and `pids`, a delegated subtree of v2, or one of each. A call takes a
`Slot` from the pool, the child writes `0` to each of the slot's join files before it does anything else,
and the slot comes back when the call is over. Making a group, filling and removing it costs milliseconds,
so slots are used again.

Files: https://docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/memory.html, .../cgroup-v1/pids.html.
"""

from __future__ import annotations

import atexit
import errno
import os
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TypedDict

from toolcrib.sandbox.kernel.hierarchy import (
    CONTROLLERS,
    Parent,
    Unusable,
    candidates,
    kill,
    members,
    read,
    remove_tree,
    settle,
    write,
)

__all__ = ["Events", "Pool", "Slot", "open_pool"]

LEFTOVER = 4 << 20
"""Bytes that may stay charged to a released slot: cached file pages, and what the kernel frees late."""
ZOMBIE_SECONDS = 0.05
"""How long a release waits until the killed are waited for; their parent may be slow at it, or dead."""
UNLIMITED = {1: "-1", 2: "max"}


class Events(TypedDict):
    """What the limits did during one call."""

    oom_kills: int
    """Processes killed because the memory was used up."""
    pids_max: int
    """New processes or threads refused."""
    memory_peak: int | None
    """Most bytes in use at one time; None where this kernel cannot say it for one call."""


# Limits and counters of one group. The names differ between versions for memory only.


def memory_limit(version: int, limit: int | None, before: int | None, *, swap: bool) -> list[tuple[str, str]]:
    """The files to write for a memory limit, in an order that the kernel takes.

    On v1 memory with swap may never be limited to less than memory alone, not even in between.
    """
    text = UNLIMITED[version] if limit is None else str(limit)
    if version == 2:
        return [("memory.max", text)]
    writes = [("memory.limit_in_bytes", text)]
    if swap:
        rises = limit is None or (before is not None and limit > before)
        writes.insert(0 if rises else 1, ("memory.memsw.limit_in_bytes", text))
    return writes


def counter(text: str, name: str) -> int:
    """One line of a file such as `memory.events`; 0 if it is not there."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


@dataclass(eq=False)
class Slot:
    """A group of ours, for one call at a time."""

    name: str
    memory: Parent
    pids: Parent
    limits: tuple[int | None, int | None] = (None, None)
    counted: tuple[int, int] = (0, 0)
    """Out-of-memory kills and refused forks before the present call."""
    calls: int = 0
    swap: bool = False
    peak_fd: int = -1
    held: list[int] = field(default_factory=list)

    @property
    def memory_folder(self) -> str:
        """The group that holds the memory."""
        return os.path.join(self.memory.folder, self.name)

    @property
    def pids_folder(self) -> str:
        """The group that holds the number of processes; the same on v2."""
        return os.path.join(self.pids.folder, self.name)

    @property
    def folders(self) -> tuple[str, ...]:
        """The group's folders, one for each hierarchy."""
        return tuple(dict.fromkeys((self.memory_folder, self.pids_folder)))

    @property
    def join_files(self) -> tuple[str, ...]:
        """Files that a process of one thread writes `0` to, to join the group: all of them, before it forks.

        On v1 the file for single threads: for a whole process the kernel waits until no process of the
        machine is in the middle of a fork, which takes it some 10 ms.
        """
        places = {self.memory_folder: self.memory, self.pids_folder: self.pids}
        names = {1: "tasks", 2: "cgroup.procs"}
        return tuple(os.path.join(folder, names[place.version]) for folder, place in places.items())

    @property
    def join_fds(self) -> tuple[int, ...]:
        """The same, open for writing; they belong to the slot."""
        if not self.held:
            self.held += [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in self.join_files]
        return tuple(self.held)

    def make(self) -> None:
        """Make the group."""
        for folder in self.folders:
            os.mkdir(folder)
        folder = self.memory_folder
        if self.memory.version == 1:
            self.swap = os.path.exists(f"{folder}/memory.memsw.limit_in_bytes")
            if not self.swap:
                write("0", folder, "memory.swappiness")
            return
        if os.path.exists(f"{folder}/memory.swap.max"):
            write("0", folder, "memory.swap.max")
        try:
            self.peak_fd = os.open(f"{folder}/memory.peak", os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # Before Linux 6.12 it can be read, and counts since the group was made.
            self.peak_fd = -1

    def begin(self, memory_bytes: int | None, processes: int | None) -> None:
        """Set the limits and start counting."""
        if self.memory.version == 2:  # A group that was removed can still be written to where it is open.
            os.stat(self.memory_folder)
        before_memory, before_processes = self.limits
        folder = self.memory_folder
        if memory_bytes != before_memory:
            for file, text in memory_limit(self.memory.version, memory_bytes, before_memory, swap=self.swap):
                write(text, folder, file)
        if processes != before_processes:
            write("max" if processes is None else str(processes), self.pids_folder, "pids.max")
        self.limits = (memory_bytes, processes)
        self.calls += 1
        if self.memory.version == 1:
            write("0", folder, "memory.max_usage_in_bytes")
        elif self.peak_fd >= 0:
            try:
                os.pwrite(self.peak_fd, b"reset\n", 0)
            except OSError:
                os.close(self.peak_fd)
                self.peak_fd = -1

    def counters(self) -> tuple[int, int]:
        """Out-of-memory kills and refused forks since the group was made."""
        file = "memory.oom_control" if self.memory.version == 1 else "memory.events"
        kills = counter(read(self.memory_folder, file), "oom_kill")
        return kills, counter(read(self.pids_folder, "pids.events"), "max")

    def events(self) -> Events:
        """What the limits did since the slot was acquired."""
        kills, refused = self.counters()
        return {
            "oom_kills": kills - self.counted[0],
            "pids_max": refused - self.counted[1],
            "memory_peak": self.peak(),
        }

    def peak(self) -> int | None:
        """Most memory in use since the slot was acquired, if that can be known."""
        if self.memory.version == 1:
            return int(read(self.memory_folder, "memory.max_usage_in_bytes"))
        if self.peak_fd >= 0:
            return int(os.pread(self.peak_fd, 32, 0))
        if self.calls > 1 or not os.path.exists(f"{self.memory_folder}/memory.peak"):
            return None
        return int(read(self.memory_folder, "memory.peak"))

    def empty(self) -> bool:
        """Whether no process is left, not even one that nobody has waited for yet."""
        if int(read(self.pids_folder, "pids.current")):
            return False
        return self.memory_folder == self.pids_folder or not members(self.memory_folder)

    def clear(self) -> bool:
        """Kill what is left, drop what is cached, note the counters; whether the next call can have it."""
        deadline = time.monotonic() + ZOMBIE_SECONDS
        while not self.empty():
            self.limits = (self.limits[0], -1)  # It may be lowered to stop forks.
            started = time.monotonic()
            dead = [kill(folder) for folder in self.folders]
            deadline += time.monotonic() - started
            if not all(dead) or time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        used = self.usage()
        if used > LEFTOVER:
            self.drop(used)
            # Files on a tmpfs of the machine stay charged as long as they stand: no room for the next call.
            if self.usage() > LEFTOVER:
                return False
        self.counted = self.counters()
        return True

    def usage(self) -> int:
        """Bytes charged to the group now."""
        file = "memory.usage_in_bytes" if self.memory.version == 1 else "memory.current"
        return int(read(self.memory_folder, file))

    def drop(self, used: int) -> None:
        """Give file pages back that the call has left in the cache."""
        try:
            if self.memory.version == 1:
                write("0", self.memory_folder, "memory.force_empty")
            else:
                write(str(used), self.memory_folder, "memory.reclaim")
        except OSError:  # Not all could be had, or the kernel is older than 5.19.
            pass

    def close(self) -> None:
        """Close what is open of the group."""
        for fd in (*self.held, self.peak_fd):
            if fd >= 0:
                os.close(fd)
        self.held.clear()
        self.peak_fd = -1

    def remove(self) -> bool:
        """Remove the group; whether it is gone."""
        self.close()
        gone = [remove_tree(folder) for folder in self.folders]
        return all(gone)


class Pool:
    """Groups for calls, some of them ready; safe to use from several threads.

    Arguments:
        memory, pids: where our own group has been made, for each controller.
        size: calls that can hold a slot at one time.
        keep: slots that wait for the next call; others are removed when they come back.
    """

    def __init__(self, memory: Parent, pids: Parent, *, size: int = 512, keep: int = 16) -> None:
        self.memory = memory
        self.pids = pids
        self.size = size
        self.keep = keep
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.free: list[Slot] = []
        self.used: set[Slot] = set()
        self.stuck: list[Slot] = []
        self.made = 0
        self.closed = False
        atexit.register(self.close)

    @property
    def description(self) -> str:
        """Which versions hold what, for reports."""
        versions = {"memory": self.memory.version, "pids": self.pids.version}
        if len(set(versions.values())) == 1:
            return f"cgroup v{self.memory.version} memory and pids"
        return " and ".join(f"cgroup v{version} {name}" for name, version in versions.items())

    def acquire(self, memory_bytes: int | None, processes: int | None) -> Slot:
        """Take a group with these limits; None stands for no limit.

        `processes` counts threads too, and everything that joins, so add what the sandbox itself needs.

        Raises:
            OSError: EAGAIN where all slots are in use; else what the kernel said.
        """
        while True:
            slot = self.take()
            fresh = slot.calls == 0
            try:
                slot.begin(memory_bytes, processes)
                return slot
            except BaseException as error:
                with self.lock:
                    self.used.discard(slot)
                    self.stuck.append(slot)
                self.retry()
                # What earlier calls left in it may be more than this one's limit.
                if fresh or not isinstance(error, OSError):
                    raise

    def take(self) -> Slot:
        """A slot that is ready, or a new one."""
        with self.lock:
            if self.closed or len(self.used) + len(self.stuck) >= self.size:
                reason = "the pool is closed" if self.closed else f"all {self.size} cgroups are in use"
                raise OSError(errno.EAGAIN, reason)
            if self.free:
                slot = self.free.pop()
                self.used.add(slot)
                return slot
            self.made += 1
            slot = Slot(f"slot-{self.made}", self.memory, self.pids)
            self.used.add(slot)
        try:
            slot.make()
        except BaseException:
            slot.remove()
            with self.lock:
                self.used.discard(slot)
            raise
        return slot

    def release(self, slot: Slot) -> None:
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
            self.stuck.append(slot)
        self.retry()

    def retry(self) -> None:
        """Remove groups that could not be, or need not be, used again."""
        with self.lock:
            stuck, self.stuck = self.stuck, []
        left = [slot for slot in stuck if not slot.remove()]
        with self.lock:
            self.stuck += left

    def warm(self, count: int) -> None:
        """Have some groups ready beforehand, up to what is kept."""
        slots: list[Slot] = []
        try:
            while len(slots) < min(count, self.keep):
                slots.append(self.take())
        finally:
            for slot in slots:
                self.release(slot)

    def close(self) -> None:
        """Kill what still runs in our groups and remove them. A fork of the server leaves them alone."""
        if os.getpid() != self.owner:
            return
        atexit.unregister(self.close)
        with self.lock:
            self.closed = True
            slots = [*self.free, *self.used, *self.stuck]
            self.free, self.stuck = [], []
            self.used.clear()
        for slot in slots:
            slot.close()
        for folder in dict.fromkeys((self.memory.folder, self.pids.folder)):
            remove_tree(folder)


def open_pool(parent: str | None = None, *, size: int = 512, keep: int = 16) -> tuple[Pool | None, str]:
    """Find a place for groups and prove it by running a process in one.

    Arguments:
        parent: a v2 group to make ours in, instead of the one the server is in.
        size: calls that can hold a slot at one time.
        keep: slots that wait for the next call.

    Returns the pool and what it is made of, or None and the reason.
    """
    made: list[str] = []
    try:
        if parent is None:
            places = list(candidates(read("/proc/self/mountinfo"), read("/proc/self/cgroup")))
        else:
            places = [Parent(2, os.path.realpath(parent), CONTROLLERS)]
        missing = set(CONTROLLERS) - {name for place in places for name in place.controllers}
        if missing:
            raise Unusable(f"no cgroup hierarchy with the {' and '.join(sorted(missing))} controller")
        ours: dict[str, Parent] = {}
        for place in places:
            ours.update(dict.fromkeys(place.controllers, settle(place, made)))
        pool = Pool(ours["memory"], ours["pids"], size=size, keep=keep)
    except (OSError, Unusable) as error:
        for folder in made:
            remove_tree(folder)
        return None, f"no writable cgroup: {error}"
    try:
        prove(pool)
    except (OSError, Unusable, subprocess.SubprocessError) as error:
        pool.close()
        return None, f"the cgroup does not hold: {error}"
    return pool, pool.description


def prove(pool: Pool) -> None:
    """Run a process in a slot and see that it is held there.

    Raises:
        Unusable: it is not.
    """
    slot = pool.acquire(64 << 20, 16)
    joined = 'for file; do echo 0 >"$file" || exit 1; done; echo joined; read -r _'
    argv = ["/bin/sh", "-c", joined, "sh", *slot.join_files]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        if child.stdout.readline() != "joined\n":
            reason = child.stderr.read().strip()
            raise Unusable(f"a process could not join: {reason}")
        inside = all(members(folder) == [child.pid] for folder in slot.folders)
        counted = int(read(slot.pids_folder, "pids.current"))
        child.communicate()
    if not inside or counted != 1:
        raise Unusable("a process that joined is not counted")
    pool.release(slot)
