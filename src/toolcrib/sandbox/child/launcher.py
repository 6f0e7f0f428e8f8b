"""The launcher: a small process that stays, and forks every sandbox, so that the server never forks.

    server ──spawn──> launcher ──clone──> pid 1 of a sandbox ──fork──> pid 2: the command
                      (one for each        (new user, mount, pid, net,
                       interpreter)         ipc, uts, cgroup namespaces)

One thread, standard library only, started with an empty environment as `-I -S`, so that no package of the
interpreter is loaded here. `host.handle.START` makes only the folders `sandbox/kernel` and `sandbox/child`
importable, by their path: importing `toolcrib` itself would load the whole server, and the interpreter of a
tool's virtual environment does not have it. So nothing in these two folders imports anything of ours outside
of them, and their `__init__` files import nothing.

The server says what to build, never what to run: arguments, environment and pipes go from the server directly
to pid 2 over a socket that the launcher only passes on. Standard input is the socket to the server
(SOCK_SEQPACKET). A message is `make` with descriptors: the job in memory, the sandbox's own control socket,
files to join its cgroup by. The control socket then carries, to the server,

    `pid` with a pidfd of pid 1 · `listener` with the socket that the proxy serves, if there is one ·
    `watch` with a descriptor for the calls of a watched command · `ready` with what was bound, and `bound`
    before it if that is more than one message can name · `exec` the command starts ·
    `exit STATUS` (as of waitpid) the command and all it left behind have ended ·
    `fail STAGE NUL ERRNO NUL PATH NUL TEXT` nothing was run

and to pid 2, once, the names of the descriptors that come with the message. A control socket closed before
that, a killed pid 1, and the end of the launcher each end the sandbox; the end of the server ends all.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see `privileges`
import fcntl
import gc
import importlib
import marshal
import os
import select

from toolcrib.sandbox.child import keeper
from toolcrib.sandbox.child.init import run_init
from toolcrib.sandbox.kernel.libc import (
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    SIGKILL,
    SetupFailure,
    close_other,
    prctl,
    read_all,
    readable,
)
from toolcrib.sandbox.kernel.messages import RunScript, receive, report, run_child, send
from toolcrib.sandbox.kernel.namespaces import fork_into_namespaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PRIVATE = ("/tmp", "/dev/shm")  # noqa: S108 - names of what is private in the sandbox
FIRST_FD = 10
"""Descriptors below are the command's."""


def main(kind: str, *path: str) -> None:
    """Serve until the server is gone; in a forked interpreter, run the script of the call.

    Arguments:
        kind: `commands`; or `python`, which also calls functions of confined modules, so it loads what they
            use; or `functions`, which calls the server's own and keeps its user's groups.
        path: the server's `sys.path`, for functions.
    """
    server = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
    try:
        serve(server, kind, [*path])
    except RunScript as chosen:
        run = chosen.main
    except BaseException as error:
        report(server, repr(error))
        os._exit(0)
    else:
        os._exit(0)
    run()


def serve(server: int, kind: str, path: list[str]) -> None:
    """Become a process that nobody can look into, and serve."""
    prctl("parent death signal", PR_SET_PDEATHSIG, SIGKILL)
    if readable(server, 0):  # The server died before the line above.
        return
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    close_other((server,))
    if kind != "functions":
        try:
            os.setgroups([])
        except PermissionError:  # Only root may leave its groups.
            pass
    # No process of the same user may read its memory.
    prctl("dumpable", PR_SET_DUMPABLE, 0)
    null = os.open("/dev/null", os.O_RDWR)
    # A tool's code in a fork must not find the server's socket at 0, nor write to its standard error.
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    ForkServer(server, kind, path).run()


class ForkServer:
    """The sandboxes that live, and the modules still to be loaded."""

    def __init__(self, server: int, kind: str, path: list[str]) -> None:
        self.path = path
        self.server = server
        self.me = os.pidfd_open(os.getpid())
        self.children: dict[int, int] = {}
        """Pidfd to pid of each sandbox's pid 1, or keeper."""
        self.homes: dict[int, str] = {}
        """Pid of each keeper to its private folder."""
        self.poll = select.poll()
        self.poll.register(server, select.POLLIN)
        self.to_load: list[str] = []
        # A collection would write to every object, so each child would copy the pages that it shares.
        gc.disable()
        if kind != "commands":
            from toolcrib.sandbox.child import warm

            self.warm = warm
            self.to_load = [*reversed(warm.PRELOADED)]
        if kind == "functions":
            from toolcrib.sandbox.child import function

            self.function = function
            self.to_load = [*reversed(function.PRELOADED), *self.to_load]

    def run(self) -> None:
        """Fork what is ordered and reap what ends; load a module whenever there is nothing else to do."""
        while True:
            ready = self.poll.poll(0 if self.to_load else None)
            # The server comes last, as it was registered first: what ended is reaped before the next order,
            # because the server waits for that to use its control group again.
            for fd, _ in reversed(ready):
                if fd in self.children:
                    self.reap(fd)
                elif not self.take_order():
                    return
            if not ready:
                self.load_one()

    def load_one(self) -> None:
        """Load the next module ahead of need; what fails here will fail in the tool that wants it."""
        name = self.to_load.pop()
        try:
            if name == "toolcrib":
                self.warm.know_package(self.path)
            importlib.import_module(name)
        except Exception:  # noqa: S110 - a user's module of that name may raise anything
            pass
        if not self.to_load:
            gc.collect()
            # What was loaded until now is never looked at again by a collection, so it stays shared with all
            # children.
            gc.freeze()

    def take_order(self) -> bool:
        """Make one sandbox; return False when the server is gone."""
        words, fds = receive(self.server)
        if not words:
            return False
        memory, passed, *groups = fds
        control = fcntl.fcntl(passed, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
        os.close(passed)
        job: dict[str, Any] = marshal.loads(read_all(memory))  # noqa: S302 - written by the server
        try:
            self.make(job, control, groups)
        except SetupFailure as failure:
            report(control, failure.message)
        except OSError as error:
            report(control, SetupFailure("fork", error.errno or 0).message)
        # Not in a `finally`: a forked process that leaves this code has closed them.
        for fd in (control, *groups):
            os.close(fd)
        return True

    def make(self, job: dict[str, Any], control: int, groups: list[int]) -> None:
        """Fork the process that a sandbox begins with."""
        if job["warm"]:
            self.warm.load(job["warm"]["script"])
        if job["level"] != "full":
            self.make_kept(job, control, groups)
            return
        job["ids"] = (os.geteuid(), os.getegid())
        pid, in_user_namespace = fork_into_namespaces(own_network=job["network"] != "host")
        if pid == 0:
            run_child(control, lambda: run_init(job, control, self.me, groups, in_user_namespace))
        self.announce(pid, control, SIGKILL)

    def make_kept(self, job: dict[str, Any], control: int, groups: list[int]) -> None:
        """Fork the keeper of a tree without namespaces."""
        body = self.body(job, control)
        if not self.homes:
            keeper.adopt_orphans()  # those of a keeper that was killed
        home = "" if job["level"] == "function" else keeper.private_folder()
        job["home"] = home
        if job["cwd"] in PRIVATE:
            job["cwd"] = home
        # The signal waits until the keeper can handle it.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, (keeper.END,))
        pid = os.fork()
        if pid == 0:
            run_child(control, lambda: keeper.run_keeper(job, control, self.me, groups, body))
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        self.homes[pid] = home
        self.announce(pid, control, keeper.END)

    def body(self, job: dict[str, Any], control: int) -> Callable[[], None]:
        """Return what the process of a level does."""
        if job["level"] == "function":
            return lambda: self.function.run_function(job, control)
        from toolcrib.sandbox.child import landlocked

        confine = landlocked.confine if job["level"] == "landlock" else landlocked.confine_nothing
        return lambda: keeper.run_kept(job, control, confine)

    def announce(self, pid: int, control: int, end: int) -> None:
        """Send the server a pidfd of a new sandbox; `end` is the signal that ends it."""
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = pid
        self.poll.register(pidfd, select.POLLIN)
        try:
            send(control, b"pid", (pidfd,))
        except OSError:  # It is not wanted any more.
            os.kill(pid, end)

    def reap(self, pidfd: int) -> None:
        """Reap what has ended, and end what a keeper that was killed has left."""
        self.poll.unregister(pidfd)
        pid = self.children.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        home = self.homes.pop(pid, None)
        if home is not None and status != 0:
            keeper.end_children(spare=set(self.children.values()))
            keeper.remove_folder(home)
