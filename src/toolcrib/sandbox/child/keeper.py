"""The keeper: keeps the process tree of a command together that has no pid namespace. It sits above it and
waits.

All that its command starts and leaves behind becomes its child (a subreaper, prctl(2)), so it can end the
whole tree. It does so at the command's end, when the server asks for it (SIGUSR1), and when the launcher
dies, which the kernel reports by the same signal. Where the keeper itself is killed, the launcher inherits
the tree and ends it. A keeper that was stopped learns of the launcher's death when it is continued (SIGHUP,
SIGCONT): the kernel does that to a stopped process group that has nobody left above it (setpgid(2)).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see `privileges`
import os

from toolcrib.sandbox.child.command import offer
from toolcrib.sandbox.child.privileges import join_cgroup, leave_keyring, reset_process, set_limits
from toolcrib.sandbox.kernel.libc import (
    PR_SET_PDEATHSIG,
    SIGKILL,
    SIGTERM,
    SetupFailure,
    close_other,
    prctl,
    readable,
    write_if_allowed,
)
from toolcrib.sandbox.kernel.messages import report, run_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import Any

    Stamps = list[tuple[int, int] | None]

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
    # Sent with SIGCONT when the launcher dies while this process is stopped (see above).
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
        run_child(control, lambda: begin(control, proc, groups, body))
    _signal.signal(SIGTERM, lambda *_: os.kill(pid, SIGTERM))
    close_other((control,))
    while True:
        gone, status = os.wait()
        if gone == pid:
            ended.append(status)
            end()


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own."""
    prctl("subreaper", PR_SET_CHILD_SUBREAPER, 1)


def begin(control: int, proc: int, groups: list[int], body: Callable[[], None]) -> None:
    """Take the first steps of every kept process.

    Only it joins the cgroup: the keeper must outlive what is killed there, to remove the folder.
    """
    join_cgroup(groups)
    # With a session of its own, no process group in it has foreign members, so each can be killed as a whole.
    os.setsid()
    prctl("parent death signal", PR_SET_PDEATHSIG, SIGKILL)
    write_if_allowed(proc, "self/oom_score_adj", "1000")
    close_other((control,))
    body()


def run_kept(job: dict[str, Any], control: int, confine: Callable[[dict[str, Any], int], Stamps]) -> None:
    """Confine this process as far as the level does, wait for the call, become the command."""
    home = job["home"]

    def use_home(env: dict[str, str]) -> dict[str, str]:
        places = ("/tmp", "/dev/shm")  # noqa: S108 - private in a full sandbox, replaced by a folder here
        return {name: home if text in places else text for name, text in env.items()} | {"TMPDIR": home}

    reset_process(job["cwd"])
    found = confine(job, control)
    set_limits(job["limits"])  # Only now: the grants were open descriptors until here.
    offer(job, control, found, use_home)


def finish(job: dict[str, Any], control: int, status: int) -> None:
    """Kill everything that is left, remove the private folder, and only then report the end."""
    for number in (END, SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)
    end_children()
    remove_folder(job["home"])
    report(control, f"exit {status}")
    os._exit(0)


def end_children(spare: Container[int] = ()) -> None:
    """Kill every child but those in `spare`, and what becomes a child by that, until there is none."""
    while doomed := [pid for pid in children() if pid not in spare]:
        for pid in doomed:
            kill(pid)
        for pid in doomed:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


def kill(pid: int) -> None:
    """Kill a child, and in the same moment its whole process group where that is not ours.

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
    """Return the children of this process."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(pid) == me]


def parent(pid: int) -> int:
    """Return the parent of a process; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


# The folder that replaces a private /tmp.


def private_folder() -> str:
    """Return a name for an empty folder that only this user can enter; the keeper makes and removes it."""
    base = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else "/var/tmp"  # noqa: S108 - the name is random
    return f"{os.path.realpath(base)}/{HOME_PREFIX}{os.urandom(8).hex()}"


def make_folder(path: str) -> None:
    """Make the private folder; an existing one is refused."""
    if path:
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            raise SetupFailure("private folder", error.errno or 0, path) from None


def remove_folder(path: str) -> None:
    """Remove a folder, whatever a tool, dead by now, has made of its content.

    Subfolders are moved up one by one: a tree may be deeper than a recursion can go, or than a path can be
    long.
    """
    try:
        top = open_folder(path)
    except OSError:
        return
    try:
        os.fchmod(top, 0o700)
        while names := os.listdir(top):
            for name in names:
                if not remove_file(top, name):
                    inner = open_folder(name, top)
                    for entry in os.listdir(inner):
                        if not remove_file(inner, entry):
                            os.rename(entry, os.urandom(8).hex(), src_dir_fd=inner, dst_dir_fd=top)
                    os.close(inner)
                    os.rmdir(name, dir_fd=top)
        os.rmdir(path)
    except OSError:  # It stays; there is nobody to report it to.
        pass
    finally:
        os.close(top)


def remove_file(folder: int, name: str) -> bool:
    """Remove an entry of a folder; return False for a folder, to which this user gets all rights again."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        os.chmod(name, 0o700, dir_fd=folder)
        return False
    return True


def open_folder(path: str, base: int | None = None) -> int:
    """Open a folder itself, not a link to one."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=base)
