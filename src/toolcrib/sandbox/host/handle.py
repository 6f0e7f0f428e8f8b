"""The server's handles: on a launcher process, and on a sandbox that a launcher made.

The messages that a handle sends and receives are listed at the top of `child.launcher`.
"""

from __future__ import annotations

import array
import errno
import fcntl
import marshal
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolcrib.sandbox.host.failures import unavailable
from toolcrib.sandbox.kernel.cgroup import CgroupSlot
from toolcrib.sandbox.kernel.signals import FILTERED, sender

HERE = str(Path(__file__).parents[1])
# Loads the named module only: the packages around it would bring the whole server. A module's bytecode is
# cached, while a script would be compiled each time.
START = """
import sys
for name, places in ("toolcrib", []), ("toolcrib.sandbox", [sys.argv[1]]):
    sys.modules[name] = module = type(sys)(name)
    module.__path__ = places
__import__(sys.argv[2], fromlist=["main"]).main(*sys.argv[3:])
"""
FLAGS = ("-I", "-S", "-X", "utf8")
TEMPORARY = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors of starting a process that say nothing about its program."""
FUNCTIONS = "functions"
"""The name of the launcher for registered functions."""
EXIT_WAIT_S = 0.1
"""Seconds until a process that has closed all its descriptors is gone."""
Stamps = list[tuple[int, int] | None]
"""Device and inode of each mount's source; None if there is nothing."""
READY = re.compile(r"(bound|ready)( (\d{1,20}:\d{1,20}|-))*(\0[a-z_ ]+)*")
OUTCOME = re.compile(r"exit \d{1,5}|fail [a-z0-9_ -]+\0\d{1,5}\0[^\0]*\0[^\0]*", re.DOTALL)


class SandboxHandle:
    """One sandbox: first ordered, then confined and waiting, then running."""

    def __init__(
        self,
        launcher: LauncherHandle,
        control: socket.socket,
        slot: CgroupSlot | None,
        job: Mapping[str, Any],
    ) -> None:
        self.launcher = launcher
        self.control = control
        self.slot = slot
        """Its control group."""
        self.has_keeper = job["level"] != "full"
        """True if it has no namespaces, and so a keeper instead of a pid 1."""
        self.key: Hashable = None
        self.spare = False
        """True if it was made before it was needed."""
        self.pidfd = -1
        """The pidfd of its pid 1 or keeper, once it has come."""
        self.fds: dict[str, int] = {}
        """Further descriptors that came: `listener` (on its loopback, for the proxy) and `watch`."""
        self.due = {"pid"}
        """Descriptors that must still come."""
        if job["level"] == "full":
            self.due |= {"listener"} if job["network"] == "proxy" else set()
            self.due |= {"watch"} if job["watch"] else set()
        self.bound: Stamps | None = None
        """The files that it has mounted, once it is ready."""
        self._named: Stamps = []
        """Those that were named until now."""
        self.missing: tuple[str, ...] = ()
        """The mechanisms that the machine did not allow it, once it is ready."""
        self.called = False
        """True once the call was sent."""
        self.executed = False
        """True once the command runs."""
        self.outcome = ""
        """Its last message: `exit STATUS` or `fail …`."""
        self.why = ""
        """The reason, if it was ended before the command started."""
        self.unexpected = ""
        """The first message that does not belong to the protocol; the sandbox was ended for it."""
        self.gone = False
        """True once no more messages can come."""
        self.closed = False

    def receive(self) -> None:
        """Take in every message that is waiting."""
        while not self.gone:
            try:
                data, fds = receive(self.control)
            except BlockingIOError:
                return
            text = data.decode("utf-8", "surrogateescape")
            if text in self.due and not fds:
                # The kernel kept the descriptor, as this process may open no more. Without it the command
                # could not be ended, so it is not started.
                self.why = os.strerror(errno.EMFILE)
                self.end()
                self.gone = True
            elif not data:
                self.gone = True
            elif not self._accept(text, fds):
                self.unexpected = repr(text[:80])
                self.end()
                self.gone = True
            for fd in fds:
                os.close(fd)

    def _accept(self, text: str, fds: list[int]) -> bool:
        """Take in one message and its descriptors; return False if it does not belong to the protocol here.

        Code of the tool cannot reach the socket. This is for the case that it does all the same.
        """
        if fds:
            if text not in self.due or len(fds) > 1:
                return False
            self.due.remove(text)
            if text == "pid":
                self.pidfd = fds.pop()
            else:
                self.fds[text] = fds.pop()
        elif self.bound is None and READY.fullmatch(text):
            words, *missing = text.split("\0")
            kind, *stamps = words.split()
            self._named += map(stamp, stamps)
            if kind == "ready":
                self.bound, self.missing = self._named, tuple(missing)
        elif text == "exec" and self.called and not self.executed:
            self.executed = True
        elif OUTCOME.fullmatch(text):
            self.outcome = self.outcome or text
        else:
            return False
        return True

    def send(self, name: str, data: bytes, fds: Mapping[str, int]) -> None:
        """Send bytes and descriptors under their names. With `call` the command starts."""
        self.called = self.called or name == "call"
        memory = in_memory(name, data)
        try:
            socket.send_fds(self.control, [" ".join((name, *fds)).encode()], [memory, *fds.values()])
        finally:
            os.close(memory)

    def end(self) -> None:
        """End the whole tree."""
        # A keeper that is killed ends nothing (see `keeper`), and a stopped one receives nothing.
        self.signal(*((signal.SIGUSR1, signal.SIGCONT) if self.has_keeper else (signal.SIGKILL,)))

    def signal(self, *numbers: int) -> None:
        """Send signals to pid 1 or the keeper, which passes SIGTERM on to the command."""
        if self.pidfd < 0 or self.launcher.forgotten:
            return
        try:
            for number in numbers:
                sender()(self.pidfd, number)
        except ProcessLookupError:
            pass

    def close(self) -> None:
        """End the sandbox, and close everything that belongs to it."""
        if self.closed:
            return
        self.closed = True
        # The pidfd may still be on its way; the socket is closed if a closed event loop was collected.
        if self.pidfd < 0 and self.control.fileno() >= 0 and not self.launcher.forgotten:
            self.receive()
        self.end()
        self.control.close()
        for fd in (self.pidfd, *self.fds.values()):
            if fd >= 0:
                os.close(fd)
        self.pidfd = -1
        self.launcher.living -= 1
        if self.slot is not None and not self.launcher.forgotten:
            self.launcher.release(self.slot)

    def __del__(self) -> None:
        """End a sandbox that nothing refers to any more, such as one of a closed event loop."""
        self.close()


class LauncherHandle:
    """One launcher process. Orders can be sent before it runs: they wait in the socket.

    `name` is the interpreter that it runs on; empty for commands, `FUNCTIONS` for registered functions.
    `release` is called with the control group of each sandbox that was closed.
    """

    def __init__(self, name: str, release: Callable[[CgroupSlot], None]) -> None:
        self.kind = FUNCTIONS if name == FUNCTIONS else "python" if name else "commands"
        self.interpreter = name if self.kind == "python" else sys.executable
        self.release = release
        self.used = time.monotonic()
        self.living = 0
        """Sandboxes that it made and that are not closed."""
        self.forgotten = False
        """True in a fork of the server: it and its sandboxes belong to the parent."""
        self.process: subprocess.Popen[bytes] | None = None
        # Each message stays whole and in order, and the kernel reports when the other end is gone (unix(7)).
        self.socket, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self._noise = b""
        self._error: OSError | subprocess.SubprocessError | None = None
        """The reason if there is no process."""

    def start(self) -> None:
        """Start the process, from a thread that stays: the kernel ends the process with the thread.

        On failure its end of the socket is closed, as by a launcher that has ended.
        """
        if self.socket.fileno() < 0:  # Closed meanwhile.
            return
        options, path, env = FLAGS, [], library_path()
        if self.kind == FUNCTIONS:  # Like the server's own interpreter.
            options = ("-S", "-P", *subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]  # noqa: SLF001
            path = [entry for entry in sys.path if entry.startswith("/")]
            env |= {n: text for n, text in os.environ.items() if n.startswith(("LANG", "LC_", "PYTHON"))}
            for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE"):
                env.pop(name, None)
        try:
            self.process = subprocess.Popen(
                [self.interpreter, *options, *bare_main("child.launcher"), self.kind, *path],
                stdin=self._other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._other.fileno(),
                env=env,
                cwd="/",
                # Ctrl-C at the terminal goes to the server's process group, which decides what becomes of its
                # calls.
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._error = error
            self._noise = str(error).encode()
        finally:
            self._other.close()

    def make(self, job: Mapping[str, Any], slot: CgroupSlot | None) -> SandboxHandle:
        """Order a sandbox in a control group.

        Raises:
            BlockingIOError: too many orders are waiting.
            OSError: the launcher has ended, or there are too many open files.
        """
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        memory = -1
        try:
            memory = in_memory("job", marshal.dumps(dict(job), 2))
            socket.send_fds(
                self.socket, [b"make"], [memory, theirs.fileno(), *(slot.join_fds if slot else ())]
            )
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
            if memory >= 0:
                os.close(memory)
        mine.setblocking(False)
        self.used = time.monotonic()
        self.living += 1
        return SandboxHandle(self, mine, slot, job)

    def alive(self) -> bool:
        """Return True if it takes orders, now or as soon as it runs."""
        if self.socket.fileno() < 0:
            return False
        poll = select.poll()
        # Errors and the end of the other side are reported even if nothing is asked for (poll(2)).
        poll.register(self.socket, 0)
        return not poll.poll(0)

    def last_words(self) -> str:
        """Return what a dead launcher wrote."""
        while True:
            try:
                data, _ = receive(self.socket)
            except OSError:
                break
            if not data:
                break
            self._noise = (self._noise + data)[-2000:]
        return self._noise.decode(errors="replace").strip()

    def unable(self) -> bool:
        """Return True if a dead launcher ended by itself or has no program that could be started.

        One that was killed, or that the machine had no memory or descriptors for, may start the next time.
        """
        noise = self.last_words()
        if self.process is None:
            return self._error is not None and getattr(self._error, "errno", None) not in TEMPORARY
        try:
            code = self.process.wait(EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            return False
        return code > 0 or (code == 0 and bool(noise))

    def close(self) -> None:
        """End the process and with it all its sandboxes."""
        self.socket.close()
        self._other.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def forget(self) -> None:
        """Close, in a fork of the server, what belongs to the parent, and end nothing."""
        self.forgotten = True
        self.socket.close()
        self._other.close()
        if self.process is not None:
            # Popen would warn of a process that still runs, and it is the parent's to wait for.
            self.process.returncode = 0


def bare_main(module: str) -> tuple[str, ...]:
    """Return options of an interpreter that run `main` of a module of the sandbox with the words after
    them."""
    return "-c", START, HERE, f"toolcrib.sandbox.{module}"


def library_path() -> dict[str, str]:
    """Return the environment of a launcher: nothing, as its memory may be read, or one variable.

    An interpreter that was built with a shared library may not start without the folder of that library.
    """
    folders = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/")]
    needed = [path for path in folders if any(Path(path).glob("libpython3*.so*"))]
    return {"LD_LIBRARY_PATH": ":".join(needed)} if needed else {}


def stamp(word: str) -> tuple[int, int] | None:
    """Return device and inode as a sandbox reports them."""
    device, _, inode = word.partition(":")
    return (int(device), int(inode)) if inode else None


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Return one message and its descriptors; an empty message at the end."""
    # A reset comes first if the other end left something unread; what it sent before comes after.
    for _ in range(2):
        with suppress(ConnectionResetError):
            data, rights, _, _ = sock.recvmsg(65_536, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
            return data, [fd for _, _, raw in rights for fd in array.array("i", raw[: len(raw) // 4 * 4])]
    return b"", []


def in_memory(name: str, data: bytes) -> int:
    """Return a read-only descriptor of bytes in memory.

    Raises:
        SandboxUnavailable: a filter denies memfd_create(2).
    """
    try:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        if error.errno in FILTERED:
            raise unavailable("memfd_create", os.strerror(error.errno)) from None
        raise
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    # Without seals a process that has the descriptor could change what another one still reads.
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
