"""Keeps a tree of processes together that has no pid namespace: one process above it, which only waits.

All that its command starts and leaves behind becomes its child (a subreaper, prctl(2)), so it can end the
whole tree, and does at the command's end, when the server says so (SIGUSR1), and when the launcher dies,
which the kernel tells it by the same signal. Where the keeper itself is killed, the launcher inherits the
tree and ends it. One that was stopped hears of the launcher's death by being let go on (SIGHUP, SIGCONT):
the kernel does so for a process group that is stopped and has nobody left above it (setpgid(2)).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see `confined`
import os
import stat

from toolcrib.sandbox.child.confined import SIGKILL, SIGTERM, leave_keyring, limit, offer, settle
from toolcrib.sandbox.kernel.calls import (
    PR_SET_PDEATHSIG,
    Failure,
    close_other,
    guarded,
    prctl,
    readable,
    report,
    write_if_allowed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import Any

    Stamps = list[tuple[int, int] | None]

__all__ = ["adopt_orphans", "end_children", "private_folder", "remove_folder", "run_keeper", "run_kept"]

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
END = 10
"""SIGUSR1: end the tree."""
HOME_PREFIX = "toolcrib-"


def run_keeper(
    job: dict[str, Any], control: int, launcher: int, groups: list[int], body: Callable[[], None]
) -> None:
    """Start the command, whose process runs `body`, and keep its tree.

    Arguments:
        launcher: a pidfd of the launcher.
        groups: files to join the call's cgroup by.
    """
    ended: list[int] = []

    def end(*_: object) -> None:
        finish(job, control, ended[0] if ended else SIGKILL)

    os.setpgid(0, 0)
    _signal.signal(END, end)
    _signal.signal(_signal.SIGHUP, end)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    adopt_orphans()
    prctl("parent death signal", PR_SET_PDEATHSIG, END)
    if readable(launcher):
        end()
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    close_other((control, launcher, proc, *groups))
    make_folder(job["home"])
    if job["level"] != "function":
        os.umask(0o022)
        leave_keyring()
    pid = os.fork()
    if pid == 0:
        guarded(control, lambda: begin(control, proc, groups, body))
    _signal.signal(SIGTERM, lambda *_: os.kill(pid, SIGTERM))
    close_other((control,))
    while True:
        gone, status = os.wait()
        if gone == pid:
            ended.append(status)
            end()


def adopt_orphans() -> None:
    """From now on what descends from this process and loses its parent becomes its child."""
    prctl("subreaper", PR_SET_CHILD_SUBREAPER, 1)


def begin(control: int, proc: int, groups: list[int], body: Callable[[], None]) -> None:
    """What every process kept does first.

    Only it joins the cgroup: the keeper must outlive what is killed there, to take the folder away.
    """
    try:
        for group in groups:
            os.write(group, b"0")
    except OSError as error:
        raise Failure("cgroup", error.errno or 0) from None
    # A session of its own: no group in it is anybody else's, so that a group can be killed as a whole.
    os.setsid()
    prctl("parent death signal", PR_SET_PDEATHSIG, SIGKILL)
    write_if_allowed(proc, "self/oom_score_adj", "1000")
    close_other((control,))
    body()


def run_kept(job: dict[str, Any], control: int, confine: Callable[[dict[str, Any], int], Stamps]) -> None:
    """Confine this process as far as the level does, wait for the word, become the command."""
    settle(job)
    found = confine(job, control)
    limit(job)  # Not before: a descriptor was held for each grant.
    offer(job, control, found, moved(job["home"]))


def moved(home: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """What sends the places that are private in a full sandbox to the call's own folder."""
    places = ("/tmp", "/dev/shm")  # noqa: S108 - named to be replaced

    def change(env: dict[str, str]) -> dict[str, str]:
        found = {name: home if text in places else text for name, text in env.items()}
        found["TMPDIR"] = home
        return found

    return change


def finish(job: dict[str, Any], control: int, status: int) -> None:
    """End all that is left, take away what was private, and only then tell."""
    for number in (END, SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)
    end_children()
    remove_folder(job["home"])
    report(control, f"exit {status}")
    os._exit(0)


def end_children(spare: Container[int] = ()) -> None:
    """Kill every child but these, and what becomes a child by that, until there is none."""
    while True:
        doomed = [pid for pid in children() if pid not in spare]
        if not doomed:
            return
        for pid in doomed:
            kill(pid)
        for pid in doomed:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


def kill(pid: int) -> None:
    """Kill a child, and in the same moment all of its process group where that is none of ours.

    A child that nobody has waited for keeps its number, so no other process is meant by it.
    """
    try:
        group = os.getpgid(pid)
        if group != os.getpgrp() and os.getsid(pid) != os.getsid(0):
            os.killpg(group, SIGKILL)
        os.kill(pid, SIGKILL)
    except (PermissionError, ProcessLookupError):
        pass


def children() -> list[int]:
    """The children of this process."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(pid) == me]


def parent(pid: int) -> int:
    """The parent of a process; 0 for one that has gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


# The folder that stands in for a private /tmp.


def private_folder() -> str:
    """A name for an empty folder that only this user can enter; the keeper makes it, and takes it away."""
    base = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else "/var/tmp"  # noqa: S108 - only for its parent
    return f"{os.path.realpath(base)}/{HOME_PREFIX}{os.urandom(8).hex()}"


def make_folder(path: str) -> None:
    """Make it; nobody else can have made it before."""
    if path:
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            raise Failure("private folder", error.errno or 0, path) from None


def remove_folder(path: str) -> None:
    """Remove a folder whatever a tool, dead by now, has made of what is in it.

    Folders inside are moved up one by one, so that depth costs nothing.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fchmod(top, 0o700)
        count = 0
        while names := os.listdir(top):
            for name in names:
                count = flatten(top, name, count)
        os.rmdir(path)
    except OSError:  # What cannot be removed stays; there is nobody to tell.
        pass
    finally:
        os.close(top)


def flatten(top: int, name: str, count: int) -> int:
    """Remove one entry of the folder; what is in a folder moves up, under names that count on."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=top)
        return count
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for entry in os.listdir(inner):
            if stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                os.chmod(entry, 0o700, dir_fd=inner)
                count += 1
                os.rename(entry, f".moved-{os.getpid()}-{count}", src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
    return count
