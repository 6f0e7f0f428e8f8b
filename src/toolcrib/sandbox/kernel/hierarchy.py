"""Where groups of processes can be made: the kernel's hierarchies, and our place in them.

A place is the group we are in ourselves, so that whatever bounds us bounds our tools. What we make there
is named after us:

    <group of the server>/toolcrib-NAMESPACE-PID-START/slot-N

so a server removes what dead ones of its pid namespace left behind, and never touches a group that it did
not make. On v2 a group with processes cannot hand controllers on, so where the group we are in is
delegated to us and holds nothing but us, we move into a group below it first (`…-home`).

Rules: https://docs.kernel.org/admin-guide/cgroup-v2.html, https://systemd.io/CGROUP_DELEGATION.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = [
    "CONTROLLERS",
    "Parent",
    "Unusable",
    "candidates",
    "kill",
    "members",
    "read",
    "remove_tree",
    "settle",
    "write",
]

CONTROLLERS = ("memory", "pids")
PREFIX = "toolcrib"
OURS = re.compile(rf"{PREFIX}-(\d+)-(\d+)-(\d+)(?:-home|\.\d+)?")
KILL_SECONDS = 0.5
"""How long to wait for what is killed."""


class Mounted(NamedTuple):
    """A hierarchy: where it is mounted, which of its groups is seen there, and what it controls."""

    version: int
    point: str
    root: str
    options: frozenset[str]


class Parent(NamedTuple):
    """A group in which groups may be made, for these controllers."""

    version: int
    folder: str
    controllers: tuple[str, ...]


class Unusable(Exception):
    """No groups can be made here."""


# Where we are.


def read(*path: str) -> str:
    """The text of a file of the kernel."""
    with open(os.path.join(*path), encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def write(text: str, *path: str) -> None:
    """Write to a file of the kernel, in one go as it wants it; never make one."""
    fd = os.open(os.path.join(*path), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def hierarchies(mountinfo: str) -> list[Mounted]:
    """The mounts of cgroups, from the text of `/proc/self/mountinfo`."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        version = {"cgroup": 1, "cgroup2": 2}.get(kind)
        if version is not None:
            root, point = (unescaped(field) for field in before.split(" ")[3:5])
            found.append(Mounted(version, point, root, frozenset(options.split(","))))
    return found


def unescaped(path: str) -> str:
    """A path as mountinfo writes it, with blanks and the like back in it."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def memberships(text: str) -> dict[str, str]:
    """Controller to our group, from the text of `/proc/self/cgroup`; the empty name is v2."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def folder_of(mounted: Mounted, path: str) -> str | None:
    """Where a group is seen, if it is below what is mounted."""
    if mounted.root == "/":
        return os.path.normpath(f"{mounted.point}/{path}")
    if path == mounted.root or path.startswith(mounted.root + "/"):
        return os.path.normpath(f"{mounted.point}/{path[len(mounted.root) :]}")
    return None


def candidates(mountinfo: str, cgroup: str) -> Iterator[Parent]:
    """The groups we are in, one for each hierarchy that matters."""
    member = memberships(cgroup)
    wanted = list(CONTROLLERS)
    for mounted in hierarchies(mountinfo):
        has = [name for name in wanted if mounted.version == 1 and name in mounted.options]
        folder = folder_of(mounted, member.get(has[0], "/")) if has else None
        if folder is not None:
            wanted = [name for name in wanted if name not in has]
            yield Parent(1, folder, tuple(has))
    for mounted in hierarchies(mountinfo):
        folder = folder_of(mounted, member.get("", "/")) if mounted.version == 2 and wanted else None
        if folder is not None:
            yield Parent(2, folder, tuple(wanted))
            return


def identity(pid: int | str = "self") -> tuple[int, int, int]:
    """What tells a process from all others of this machine: pid namespace, number, start time."""
    text = read(f"/proc/{pid}/stat")
    number, rest = text.split(" ", 1)[0], text.rpartition(")")[2].split()
    return os.stat("/proc/self/ns/pid").st_ino, int(number), int(rest[19])


def alive(name: str) -> bool:
    """Whether the server that a group is named after may still run; unsure means yes."""
    match = OURS.fullmatch(name)
    if match is None:
        return True
    namespace, pid, start = (int(number) for number in match.groups())
    if namespace != identity()[0]:
        return True
    try:
        return identity(pid)[2] == start
    except FileNotFoundError:
        return False
    except OSError:
        return True


def is_ours(pid: int) -> bool:
    """Whether a process is this one or comes from it."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return False
    return pid == os.getpid()


def delegated(folder: str) -> bool:
    """Whether a v2 group is ours to divide: whoever manages the machine's groups says so."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    owner = os.stat(folder).st_uid
    return owner == os.geteuid() != 0 or not os.path.isdir("/run/systemd/system")


# Making groups.


def enable(folder: str, controllers: Iterable[str]) -> None:
    """Have a v2 group hand controllers on to those below it."""
    missing = set(controllers) - set(read(folder, "cgroup.subtree_control").split())
    if missing:
        write(" ".join(f"+{name}" for name in sorted(missing)), folder, "cgroup.subtree_control")


def members(folder: str) -> list[int]:
    """The processes of a group; 0 stands for one that we cannot see."""
    return [int(line) for line in read(folder, "cgroup.procs").split()]


def ready(parent: Parent) -> Parent:
    """Make a v2 group, or one above it that belongs to us, hand on what is needed.

    Raises:
        Unusable: none does.
    """
    reasons = []
    if os.path.basename(parent.folder) == f"{name_of_ours()}-home":  # A pool before this one moved us.
        parent = parent._replace(folder=os.path.dirname(parent.folder))
    folder = parent.folder
    while True:
        try:
            prepare(folder, parent.controllers, own=folder == parent.folder)
            return parent._replace(folder=folder)
        except (OSError, Unusable) as error:
            reasons.append(f"{folder}: {error.strerror if isinstance(error, OSError) else error}")
        folder = os.path.dirname(folder)
        # What lies above a group of root's is divided by the machine's manager, even if we can write there.
        inner = os.path.exists(f"{folder}/cgroup.type")
        if not inner or os.geteuid() == 0 or os.stat(folder).st_uid != os.geteuid():
            raise Unusable(reasons[0])


def prepare(folder: str, controllers: Sequence[str], *, own: bool) -> None:
    """Make one v2 group hand on the controllers, moving ourselves out of the way where we may."""
    absent = set(controllers) - set(read(folder, "cgroup.controllers").split())
    if absent:
        raise Unusable(f"no {' and '.join(sorted(absent))} controller there")
    if not os.access(f"{folder}/cgroup.procs", os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    is_root = not os.path.exists(f"{folder}/cgroup.type")
    inside = members(folder)
    if inside and not is_root and not set(controllers) <= set(read(folder, "cgroup.subtree_control").split()):
        if not own or not delegated(folder):
            raise Unusable("not delegated to us (systemd: Delegate=yes)")
        if not all(is_ours(pid) for pid in inside):
            raise Unusable("other programs run in it")
        home = f"{folder}/{name_of_ours()}-home"
        os.makedirs(home, exist_ok=True)
        for pid in inside:
            write(str(pid), home, "cgroup.procs")
    enable(folder, controllers)


def name_of_ours() -> str:
    """The name of the group all our slots are in."""
    return "-".join((PREFIX, *(str(number) for number in identity())))


def sweep(folder: str) -> None:
    """Remove what dead servers left in a group."""
    for name in os.listdir(folder):
        if OURS.fullmatch(name) and not alive(name):
            remove_tree(os.path.join(folder, name))


def remove_tree(folder: str) -> bool:
    """Kill everything in a group of ours and in those below it, and remove them; whether all are gone."""
    try:
        inner = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        gone = [remove_tree(path) for path in inner]
        kill(folder)
        os.rmdir(folder)
        return all(gone)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def kill(folder: str) -> bool:
    """Kill all processes of a group; whether none is left."""
    deadline = time.monotonic() + KILL_SECONDS
    while members(folder):
        try:
            write("1", folder, "cgroup.kill")
        except OSError:  # v1, or before Linux 5.14
            kill_each(folder)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def kill_each(folder: str) -> None:
    """Kill the processes of a group one by one; what forks meanwhile is met in the next round."""
    if os.path.exists(f"{folder}/pids.max"):
        write("0", folder, "pids.max")
    for pid in members(folder):
        if pid == 0:
            continue
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # Looked up again with the descriptor in hand: a number may have gone to another process.
            if pid in members(folder):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            os.close(fd)


def settle(place: Parent, made: list[str]) -> Parent:
    """Make the group that our slots will be in, after removing what dead servers left."""
    if place.version == 2:
        place = ready(place)
    sweep(place.folder)
    folder = os.path.join(place.folder, name_of_ours())
    serial = 0
    while True:
        ours = folder if serial == 0 else f"{folder}.{serial}"
        try:
            os.mkdir(ours)
            break
        except FileExistsError:  # a second pool of this process
            serial += 1
    made.append(ours)
    if place.version == 2:
        enable(ours, place.controllers)
    return place._replace(folder=ours)
