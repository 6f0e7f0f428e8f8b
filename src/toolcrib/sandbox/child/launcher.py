"""The launcher: a small process that stays, and forks every sandbox, so that the server never does.

    server ──spawn──> launcher ──clone──> pid 1 of a sandbox ──fork──> pid 2: the command
                      (one for each        (new user, mount, pid, net,
                       interpreter)         ipc, uts, cgroup namespaces)

One thread, standard library only, started with an empty environment as `-I -S`, so that no package of the
interpreter's is loaded here. It is told what to build, never what to run: arguments, environment and pipes
go from the server straight to pid 2 over a socket that the launcher only passes on.

Standard input is the socket to the server (SOCK_SEQPACKET). A message is `make` with descriptors: the
job in memory, the sandbox's own control socket, files to join its cgroup by. On that come, to the server,

    `pid` with a pidfd of pid 1 · `listener` with the socket that the way out is served on, if there is one ·
    `ready` what was bound, ready to go · `exec` the command starts ·
    `exit STATUS` (as of waitpid) the command and all it left behind have ended ·
    `fail STAGE NUL ERRNO NUL PATH NUL TEXT` nothing was run

and to pid 2, once, the names of the descriptors that come with the message. A closed control socket before
that, a killed pid 1, and the end of the launcher each end the sandbox; the end of the server ends all.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see `confined`
import ctypes
import errno
import fcntl
import gc
import importlib
import marshal
import os
import select

from toolcrib.sandbox.child import keeper
from toolcrib.sandbox.child import warm as zygote
from toolcrib.sandbox.child.confined import NEWCGROUP, NEWUSER, SIGKILL, run_init
from toolcrib.sandbox.kernel import network
from toolcrib.sandbox.kernel.calls import (
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    Failure,
    check,
    clone,
    close_other,
    guarded,
    libc,
    prctl,
    readable,
    receive,
    report,
    send,
    whole,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["main"]

# linux/sched.h
NAMESPACES = (
    ("user namespace", NEWUSER),
    ("mount namespace", 0x20000),
    ("pid namespace", 0x20000000),
    ("network namespace", network.NEWNET),
    ("ipc namespace", 0x8000000),
    ("uts namespace", 0x4000000),
    ("cgroup namespace", NEWCGROUP),
)
KEPT = {"landlock": "landlocked", "none": "plain"}
"""Modules of the levels that have no namespaces."""
PRIVATE = ("/tmp", "/dev/shm")  # noqa: S108 - names of what is private in the sandbox
FIRST_FD = 10
"""Descriptors below are the command's."""


def main(kind: str, path: list[str]) -> None:
    """Serve until the server is gone.

    Arguments:
        kind: `commands`; or `python`, which also calls functions of confined modules, so it loads what they
            use; or `functions`, which calls the server's own and keeps its user's groups.
        path: the server's `sys.path`, for functions.
    """
    server = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
    try:
        prctl("parent death signal", PR_SET_PDEATHSIG, SIGKILL)
        if readable(server, 0):  # The server died before the line above.
            return
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        close_other((server,))
        if kind != "functions":
            leave_groups()
        # No process of the same user reads what is in memory.
        prctl("dumpable", PR_SET_DUMPABLE, 0)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        Launcher(server, kind, path).serve()
    except Exception as error:
        report(server, repr(error))
    finally:
        os._exit(0)


def leave_groups() -> None:
    """Belong to no further groups, where that may be chosen."""
    try:
        os.setgroups([])
    except PermissionError:
        pass


class Launcher:
    """The sandboxes that live, and what is still to be loaded."""

    def __init__(self, server: int, kind: str, path: list[str]) -> None:
        self.path = path
        self.server = server
        self.me = os.pidfd_open(os.getpid())
        self.privileged = os.geteuid() == 0
        self.children: dict[int, int] = {}
        """Pid 1 of each sandbox, or its keeper, by pidfd."""
        self.homes: dict[int, str] = {}
        """The private folders of those that keep a tree without namespaces."""
        self.poll = select.poll()
        self.poll.register(server, select.POLLIN)
        self.to_load: list[str] = []
        gc.disable()
        if kind != "commands":
            self.to_load = [*reversed(zygote.PRELOADED), "site"]
        if kind == "functions":
            from toolcrib.sandbox.child import function

            self.function = function
            self.to_load = [*reversed(function.PRELOADED), *self.to_load]

    def serve(self) -> None:
        """Fork what is asked for and reap what ends; load a module whenever there is nothing to do."""
        while True:
            for fd, _ in self.poll.poll(0 if self.to_load else None):
                if fd in self.children:
                    self.bury(fd)
                elif not self.take_order():
                    return
                break
            else:
                self.load_one()

    def load_one(self) -> None:
        """Load the next module ahead of need; what fails here will fail in the tool that wants it."""
        name = self.to_load.pop()
        try:
            if name == "toolcrib":
                zygote.know_ourselves(self.path)
            importlib.import_module(name)
            if name == "site":
                zygote.begin_site()
        except Exception:  # noqa: S110 - also what a user's own module of that name may raise
            pass
        if not self.to_load:
            gc.collect()
            gc.freeze()

    def take_order(self) -> bool:
        """Make one sandbox; False when the server is gone."""
        words, fds = receive(self.server)
        if not words:
            return False
        given, passed, *groups = fds
        control = fcntl.fcntl(passed, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
        os.close(passed)
        job: dict[str, Any] = marshal.loads(whole(given))  # noqa: S302 - written by the server
        try:
            self.make(job, control, groups)
        except Failure as failure:
            report(control, failure.message)
        except OSError as error:
            report(control, Failure("fork", error.errno or 0).message)
        finally:
            for fd in (control, *groups):
                os.close(fd)
        return True

    def make(self, job: dict[str, Any], control: int, groups: list[int]) -> None:
        """Fork pid 1 of a new sandbox into its namespaces."""
        if job["warm"]:
            zygote.load(job["warm"]["script"])
        if job["level"] != "full":
            self.make_kept(job, control, groups)
            return
        job["ids"] = (os.geteuid(), os.getegid())
        flags = sum(flag for _, flag in NAMESPACES) & ~NEWCGROUP  # That one once it has joined its group.
        flags = flags & ~network.NEWNET | network.namespace(job["network"])
        mapped = not self.privileged
        pid = clone(flags if mapped else flags & ~NEWUSER)
        if pid < 0 and self.privileged and ctypes.get_errno() == errno.EPERM:
            # Root without the right to do so, as in most containers, can as an ordinary user does.
            mapped = True
            pid = clone(flags)
        if pid == 0:
            guarded(control, lambda: run_init(job, control, self.me, groups, mapped))
        if pid < 0:
            raise reason(mapped, ctypes.get_errno())
        self.tell(pid, control, SIGKILL)

    def make_kept(self, job: dict[str, Any], control: int, groups: list[int]) -> None:
        """Fork the keeper of a tree without namespaces."""
        body, home = self.body(job, control), ""
        if not self.homes:
            keeper.adopt_orphans()  # those of a keeper that was killed
        if job["level"] != "function":
            home = keeper.private_folder()
        job["home"] = home
        if job["cwd"] in PRIVATE:
            job["cwd"] = home
        # Until the keeper knows what to do about it.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, (keeper.END,))
        pid = os.fork()
        if pid == 0:
            guarded(control, lambda: keeper.run_keeper(job, control, self.me, groups, body))
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        self.homes[pid] = home
        self.tell(pid, control, keeper.END)

    def body(self, job: dict[str, Any], control: int) -> Callable[[], None]:
        """What the process of a level does."""
        if job["level"] == "function":
            return lambda: self.function.run_function(job, control)
        confine = importlib.import_module(f"toolcrib.sandbox.child.{KEPT[job['level']]}").confine
        return lambda: keeper.run_kept(job, control, confine)

    def tell(self, pid: int, control: int, end: int) -> None:
        """Give the server a hold on a sandbox; `end` is the signal that ends it."""
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = pid
        self.poll.register(pidfd, select.POLLIN)
        try:
            send(control, b"pid", (pidfd,))
        except OSError:  # Not wanted any more.
            os.kill(pid, end)

    def bury(self, pidfd: int) -> None:
        """Reap what has ended, and end what a keeper that was killed has left."""
        self.poll.unregister(pidfd)
        pid = self.children.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        home = self.homes.pop(pid, None)
        if home is not None and status != 0:
            keeper.end_children(spare=set(self.children.values()))
            keeper.remove_folder(home)


def reason(mapped: bool, number: int) -> Failure:
    """Which of the namespaces it was that the kernel did not give, found out one by one."""
    wanted = NAMESPACES if mapped else NAMESPACES[1:]
    told, tell = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            for index, (name, flag) in enumerate(wanted):
                try:
                    check(name, libc.unshare(flag))
                except Failure as failure:
                    os.write(tell, bytes((index, failure.args[1])))
                    break
        finally:
            os._exit(0)
    os.close(tell)
    found = whole(told)
    os.waitpid(pid, 0)
    return Failure(wanted[found[0]][0], found[1]) if found else Failure("fork", number)
