"""The places for control groups: the kernel's hierarchies, and this server's group in them.

Groups are made below the one that the server is in, so that what bounds the server bounds its tools:

    <group of the server>/toolcrib-server-RANDOM/slot-N

The server keeps its own group locked (flock(2)). One that nobody has locked was left behind by a dead server,
and the next one removes it. On v2 a group that has processes cannot pass controllers on, so where the
server's group is delegated to it and holds nothing else, the server first moves into a group below it
(`toolcrib-home`).

Our own code, because the libraries for control groups (libcgroup, the one of systemd) must be installed and
want to manage a whole machine. Rules: https://docs.kernel.org/admin-guide/cgroup-v2.html,
https://systemd.io/CGROUP_DELEGATION.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple

from toolcrib.sandbox.kernel.signals import sender

CONTROLLERS = ("memory", "pids")
PREFIX = "toolcrib-server-"
HOME = "toolcrib-home"
KILL_SECONDS = 0.5
"""Time for the killed to disappear."""
MOUNT = re.compile(r"\d+ \d+ \S+ (?P<root>\S+) (?P<point>\S+) .*- (?P<kind>cgroup2?) \S+ (?P<options>\S+)")
"""A mount of control groups in /proc/self/mountinfo (proc(5))."""


class ParentGroup(NamedTuple):
    """A group in which groups may be made, for these controllers."""

    version: int
    folder: str
    controllers: tuple[str, ...]


class NoCgroups(Exception):
    """No groups can be made here."""


def read(*path: str) -> str:
    """Return the text of a file of the kernel."""
    # Not open(): it asks the kernel five more things about each file, and every call reads many.
    fd = os.open(os.path.join(*path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, 65_536), b"")).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def write(text: str, *path: str) -> None:
    """Write to a file of the kernel, in one go as it demands; never make one."""
    fd = os.open(os.path.join(*path), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


# Finding the group of the server.


def candidates(mountinfo: str, cgroup: str) -> list[ParentGroup]:
    """Return the groups that a process is in, one for each hierarchy that matters.

    A controller that is in a v1 hierarchy is in no other.

    Arguments:
        mountinfo: the text of its `/proc/PID/mountinfo`.
        cgroup: the text of its `/proc/PID/cgroup`.
    """
    member: dict[str, str] = {}
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        member.update(dict.fromkeys(controllers.split(","), path))
    wanted: tuple[str, ...] = CONTROLLERS
    found = []
    mounts = [match for line in mountinfo.splitlines() if (match := MOUNT.fullmatch(line))]
    for mount in sorted(mounts, key=lambda match: match["kind"]):  # v1 first
        old = mount["kind"] == "cgroup"
        has = tuple(name for name in wanted if name in mount["options"].split(",")) if old else wanted
        folder = folder_of(mount, member.get(has[0] if old else "", "/")) if has else None
        if folder is not None:
            found.append(ParentGroup(1 if old else 2, folder, has))
            wanted = tuple(name for name in wanted if name not in has)
    return found


def folder_of(mount: re.Match[str], group: str) -> str | None:
    """Return the folder of a group; None if it is not below the group that is mounted, as in some
    containers."""
    root, point = (
        re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount[name])
        for name in ("root", "point")
    )
    root = root.rstrip("/")
    if group != root and not group.startswith(f"{root}/"):
        return None
    return os.path.normpath(f"{point}/{group[len(root) :]}")


# Making groups.


def make_own_group(parent: ParentGroup) -> tuple[ParentGroup, int]:
    """Make and lock the group that holds our slots; return it with the descriptor that locks it.

    Raises:
        NoCgroups: v2 does not let us.
        OSError: the kernel refuses.
    """
    if parent.version == 2:
        parent = divided(parent)
    for name in os.listdir(parent.folder):
        if name.startswith(PREFIX):
            remove_if_abandoned(os.path.join(parent.folder, name))
    while True:
        folder = os.path.join(parent.folder, PREFIX + os.urandom(8).hex())
        os.mkdir(folder, 0o700)
        lock = lock_group(folder)
        if lock >= 0:
            break
    try:
        if parent.version == 2:
            pass_on(folder, parent.controllers)
    except BaseException:
        remove_tree(folder)
        os.close(lock)
        raise
    return parent._replace(folder=folder), lock


def lock_group(folder: str) -> int:
    """Lock a group; return -1 if a server has it locked or has just removed it, or another user owns it."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return -1
    try:
        # The kernel drops the lock when its holder dies, however it dies: a locked group has a living server.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between open and lock another server may have removed it: then the lock is on a folder without a
        # name.
        os.stat(folder)
    except OSError:
        os.close(fd)
        return -1
    return fd


def remove_if_abandoned(folder: str) -> None:
    """Remove the group of a server that has died."""
    lock = lock_group(folder)
    if lock >= 0:
        remove_tree(folder)
        os.close(lock)


def divided(parent: ParentGroup) -> ParentGroup:
    """Make a v2 group pass its controllers on, or one above it that belongs to our user.

    Raises:
        NoCgroups: none can.
    """
    folder = own = os.path.dirname(parent.folder) if parent.folder.endswith(f"/{HOME}") else parent.folder
    reason = ""
    while True:
        try:
            divide(folder, parent.controllers, own=folder == own)
            return parent._replace(folder=folder)
        except (OSError, NoCgroups) as error:
            reason = reason or f"{folder}: {error.strerror if isinstance(error, OSError) else error}"
        folder = os.path.dirname(folder)
        # The groups above one of root's belong to the machine's manager, even if we can write there.
        inner = os.path.exists(f"{folder}/cgroup.type")
        if not inner or os.geteuid() == 0 or os.stat(folder).st_uid != os.geteuid():
            raise NoCgroups(reason)


def divide(folder: str, controllers: Iterable[str], *, own: bool) -> None:
    """Make one v2 group pass controllers on; move out of it first where we are alone in it."""
    absent = set(controllers) - set(read(folder, "cgroup.controllers").split())
    if absent:
        raise NoCgroups(f"no {' and '.join(sorted(absent))} controller there")
    if not os.access(f"{folder}/cgroup.procs", os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    is_root = not os.path.exists(f"{folder}/cgroup.type")  # which may have processes of its own
    inside = [] if is_root else members(folder)
    if inside and not set(controllers) <= set(read(folder, "cgroup.subtree_control").split()):
        if not own or not is_delegated(folder):
            raise NoCgroups("not delegated to us (systemd: Delegate=yes)")
        if not all(is_descendant(pid) for pid in inside):
            raise NoCgroups("other programs run in it")
        home = os.path.join(folder, HOME)
        os.makedirs(home, exist_ok=True)
        # The rule of v2: a group with processes of its own cannot pass controllers on (no internal
        # processes).
        for pid in inside:
            write(str(pid), home, "cgroup.procs")
    pass_on(folder, controllers)


def pass_on(folder: str, controllers: Iterable[str]) -> None:
    """Enable controllers for the groups below a v2 group."""
    missing = set(controllers) - set(read(folder, "cgroup.subtree_control").split())
    if missing:
        write(" ".join(f"+{name}" for name in sorted(missing)), folder, "cgroup.subtree_control")


def is_delegated(folder: str) -> bool:
    """Return True if a v2 group is ours to divide: the manager of the machine's groups marks it."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    owner = os.stat(folder).st_uid
    return owner == os.geteuid() != 0 or not os.path.isdir("/run/systemd/system")


def is_descendant(pid: int) -> bool:
    """Return True if a process is this one or descends from it."""
    while pid not in (0, 1, os.getpid()):
        try:
            pid = int(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return False
    return pid == os.getpid()


# Ending groups.


def members(folder: str) -> list[int]:
    """Return the processes of a group; 0 stands for one that we cannot see."""
    return [int(line) for line in read(folder, "cgroup.procs").split()]


def remove_tree(folder: str) -> bool:
    """Kill everything in a group of ours and in those below it, and remove them; return True if all are
    gone."""
    try:
        inner = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        gone = [remove_tree(path) for path in inner]
        deadline = time.monotonic() + KILL_SECONDS
        while kill_members(folder) and time.monotonic() < deadline:
            time.sleep(0.001)
        os.rmdir(folder)
        return all(gone)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def kill_members(folder: str) -> int:
    """Kill the processes of a group one by one; return how many there were.

    No new ones can start where the group limits processes. Elsewhere the next call finds them.
    """
    pids = members(folder)
    if pids and os.path.exists(f"{folder}/pids.max"):
        write("0", folder, "pids.max")
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # Looked up again with the descriptor open: the number may belong to another process by now.
            if pid in members(folder):
                sender()(fd, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            os.close(fd)
    return len(pids)
