"""The server's hold on a launcher, and on a sandbox that one has made."""

from __future__ import annotations

import array
import errno
import fcntl
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolcrib.sandbox.kernel.cgroup import Slot

__all__ = ["Launcher", "Sandbox", "Stamps", "in_memory"]

HERE = str(Path(__file__).parents[1])
# Only the modules named are loaded, not the packages they lie in, which would bring the whole server. The
# bytecode of a module is cached, that of a script would be compiled each time.
START = """
import sys
for name, places in ("toolcrib", []), ("toolcrib.sandbox", [sys.argv[1]]):
    sys.modules[name] = module = type(sys)(name)
    module.__path__ = places
from toolcrib.sandbox.child.launcher import main
main(sys.argv[2], sys.argv[3:])
"""
FLAGS = ("-I", "-S", "-X", "utf8")
FOR_A_MOMENT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What keeps a process from being started now, and says nothing about its program."""
FUNCTIONS = "functions"
"""The name of the launcher for functions of the server's own."""
SOON = 0.1
"""Seconds in which a process that has closed all it had open is gone."""
MOST_MESSAGES = 64
"""Of a sandbox; what else comes is not from us."""
WITH_DESCRIPTOR = (b"pid", b"listener", b"watch")

Stamps = list[tuple[int, int] | None]
"""Device and inode of what each mount of a plan binds; None where there is nothing."""


class Sandbox:
    """One sandbox: first a promise of the launcher's, then confined and waiting, then running."""

    __slots__ = (
        "closed",
        "control",
        "found",
        "gone",
        "kept",
        "launcher",
        "listener",
        "messages",
        "pidfd",
        "release",
        "slot",
        "spare",
        "watch",
        "why",
    )

    def __init__(
        self,
        launcher: Launcher,
        control: socket.socket,
        slot: Slot | None,
        release: Callable[[Slot], None],
        *,
        kept: bool = False,
    ) -> None:
        self.launcher = launcher
        self.control = control
        self.slot = slot
        """The cgroup that it is in."""
        self.release = release
        self.kept = kept
        """Whether it has no namespaces, and so a keeper instead of a pid 1."""
        self.pidfd = -1
        """Of its pid 1 or keeper, as soon as that is there."""
        self.watch = -1
        """Where a watched command's calls are told; whoever takes it over sets -1 here."""
        self.listener: socket.socket | None = None
        """What listens on its loopback, where its network leads through a proxy, until somebody takes it."""
        self.found: Stamps | None = None
        """What it has bound, as soon as it is ready."""
        self.messages: list[str] = []
        self.closed = False
        self.gone = False
        self.why = ""
        """Why it was given up, where it was."""
        self.spare = False
        """Whether it was made ahead of need."""

    def receive(self) -> bool:
        """Take in one message; False where none waits, or none will come any more."""
        try:
            data, rights = receive(self.control)
        except BlockingIOError:
            return False
        for _, _, raw in rights:
            fds = array.array("i", raw[: len(raw) // 4 * 4])
            if self.pidfd < 0 and data == b"pid" and len(fds) == 1:
                self.pidfd = fds[0]
            elif self.listener is None and data == b"listener" and len(fds) == 1:
                self.listener = socket.socket(fileno=fds[0])
            elif self.watch < 0 and data == b"watch" and len(fds) == 1:
                self.watch = fds[0]
            else:
                for fd in fds:
                    os.close(fd)
        if data in WITH_DESCRIPTOR and not rights and "exec" not in self.messages:
            # This process may open no more, so the kernel has kept the descriptor: what cannot be held
            # is not to start.
            self.why = os.strerror(errno.EMFILE)
            self.signal(signal.SIGKILL)
            data = b""
        if not data:
            self.gone = True
            return False
        if data.startswith(b"ready ") and self.found is None:
            self.found = marshal.loads(data[6:])  # noqa: S302 - from our own code before any other ran there
        elif data not in WITH_DESCRIPTOR and len(self.messages) < MOST_MESSAGES:
            self.messages.append(data.decode("utf-8", "surrogateescape"))
        return True

    def go(self, call: Mapping[str, Any], fds: Mapping[str, int]) -> None:
        """Hand over what depends on the call; the command starts as soon as it is confined."""
        memory = in_memory("call", marshal.dumps(dict(call), 2))
        try:
            given = {"call": memory, **fds}
            socket.send_fds(self.control, [" ".join(given).encode()], list(given.values()))
        finally:
            os.close(memory)

    def _send(self, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            pass

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to pid 1; SIGKILL ends all of it, SIGTERM is passed on to the command."""
        if self.pidfd < 0 or self.launcher.forgotten:
            return
        if self.kept and number == signal.SIGKILL:
            # A keeper that is killed ends nothing (see `keeper`), and one that was stopped hears nothing.
            self._send(signal.SIGUSR1)
            self._send(signal.SIGCONT)
        else:
            self._send(number)

    def kill_keeper(self) -> None:
        """End a keeper that does not do its work; the launcher ends its tree."""
        if self.kept and self.pidfd >= 0 and not self.launcher.forgotten:
            self._send(signal.SIGKILL)

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.closed:
            return
        self.closed = True
        # The socket may have been closed before, when all of a closed event loop's calls were collected.
        while self.pidfd < 0 and self.control.fileno() >= 0 and not self.launcher.forgotten:
            if not self.receive():
                break
        self.signal(signal.SIGKILL)
        self.control.close()
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        if self.watch >= 0:
            os.close(self.watch)
            self.watch = -1
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        self.launcher.living -= 1
        if self.slot is not None and not self.launcher.forgotten:
            self.release(self.slot)

    def __del__(self) -> None:
        """What nobody holds any more has nobody to end it either."""
        self.close()


class Launcher:
    """One launcher process. It is used before it is up: its orders wait in the socket."""

    def __init__(self, interpreter: str, name: str) -> None:
        self.interpreter = interpreter
        self.kind = FUNCTIONS if name == FUNCTIONS else "python" if name else "commands"
        self.used = time.monotonic()
        self.living = 0
        """Sandboxes it has made that have not been closed."""
        self.forgotten = False
        """Whether it and its sandboxes belong to a process that this one is a fork of."""
        self.process: subprocess.Popen[bytes] | None = None
        self.socket, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self._noise = b""
        self._error: OSError | subprocess.SubprocessError | None = None
        """Why there is no process."""

    def start(self) -> None:
        """Spawn the process, from a thread that stays: the kernel ends it with the thread.

        Where that fails, the socket is closed, which is what a dead launcher looks like.
        """
        if self.socket.fileno() < 0:  # Not wanted any more.
            return
        path = [entry for entry in sys.path if entry.startswith("/")] if self.kind == FUNCTIONS else []
        try:
            self.process = subprocess.Popen(
                [self.interpreter, *flags(self.kind), "-c", START, HERE, self.kind, *path],
                stdin=self._other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._other.fileno(),
                env=environment(self.kind),
                cwd="/",
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._error = error
            self._noise = str(error).encode()
        finally:
            self._other.close()

    def make(self, job: Mapping[str, Any], slot: Slot | None, release: Callable[[Slot], None]) -> Sandbox:
        """Order a sandbox in a cgroup, which is released when the sandbox is closed.

        Raises:
            BlockingIOError: too many orders wait.
            OSError: the launcher is gone, or there are too many open files.
        """
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            memory = in_memory("job", marshal.dumps(dict(job), 2))
            try:
                fds = [memory, theirs.fileno(), *(() if slot is None else slot.join_fds)]
                socket.send_fds(self.socket, [b"make"], fds)
            finally:
                os.close(memory)
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        mine.setblocking(False)
        self.used = time.monotonic()
        self.living += 1
        return Sandbox(self, mine, slot, release, kept=job["level"] != "full")

    def alive(self) -> bool:
        """Whether it takes orders, now or as soon as it is up."""
        if self.socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self.socket, 0)
        return not poll.poll(0)

    def last_words(self) -> str:
        """What a dead launcher wrote."""
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
        """Whether a dead one ended by itself, or there is no program of that name that could be one.

        One that was killed, or that the machine had no room for, may well be started the next time.
        """
        noise = self.last_words()
        if self.process is None:
            return self._error is not None and getattr(self._error, "errno", None) not in FOR_A_MOMENT
        try:
            code = self.process.wait(SOON)
        except subprocess.TimeoutExpired:
            return False
        return code > 0 or (code == 0 and bool(noise))

    def close(self) -> None:
        """End it and with it all its sandboxes."""
        self.socket.close()
        self._other.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def forget(self) -> None:
        """In a forked child: let go of what belongs to the parent."""
        self.forgotten = True
        self.socket.close()
        self._other.close()
        if self.process is not None:
            self.process.returncode = 0


def flags(kind: str) -> list[str]:
    """The interpreter's options: functions of the server's own run as the server does."""
    if kind != FUNCTIONS:
        return list(FLAGS)
    ours: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    return ["-S", "-P", *ours]


def environment(kind: str) -> dict[str, str]:
    """The variables a launcher starts with. Who may read its memory may read them, so there is no secret."""
    # An interpreter built with a shared library may not start without this one.
    names = {"LD_LIBRARY_PATH"}
    if kind == FUNCTIONS:  # what the interpreter itself goes by
        own = (name for name in os.environ if name.startswith(("PYTHON", "LC_")))
        names |= {"LANG", *own} - {"PYTHONSTARTUP"}
    return {name: os.environ[name] for name in names if name in os.environ}


def receive(sock: socket.socket) -> tuple[bytes, list[tuple[int, int, bytes]]]:
    """One message and the descriptors with it; empty at the end."""
    for _ in range(2):
        try:
            data, rights, _, _ = sock.recvmsg(65_536, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            # Told first when the other end left something unread; what it sent before comes after.
            continue
        return data, rights
    return b"", []


def in_memory(name: str, data: bytes) -> int:
    """A read-only descriptor on bytes that are no file."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
