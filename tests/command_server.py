"""A server that runs `toolcrib` and Python: it imports the package once and forks a process for each command.

It listens on the Unix socket that its first argument names, and ends with its standard input. A request is
JSON (`words`, `cwd`, `env`, `session`, `terminal`) with the descriptors of the standard streams. The answers
are the number of the process and, at its end, its exit status. A process whose client goes away is ended. A
command takes 0.1 s so, and 0.5 s when started anew. Further arguments name modules that are imported once.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import termios
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ENDED: list[int] = []
"""The exit status of this process, once it has one."""


def leave() -> None:
    """End at once after all else that Python does at an exit, instead of freeing memory that is shared."""
    if ENDED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ENDED[0])


atexit.register(leave)  # What is registered first runs last, so it stands before the imports.

import toolcrib  # noqa: E402
from toolcrib.manifest.native.schema import fits  # noqa: E402

LONGEST = 1 << 20
HUGE = 1 << 21
COLLAPSE = 25
"""`MADV_COLLAPSE`."""
HEAVY = (
    "toolcrib.integrations.",
    "toolcrib.pods.operator.cluster",
    "toolcrib.pods.operator.handlers",
    "toolcrib.runs.serve_postgres",
    "toolcrib.testing.plugin",
)
"""Modules that import large packages, which no command needs."""


def program(modules: list[str]) -> Callable[[], Any]:
    """Import the package, wherever its modules are, and more; give the program's entry point."""
    for module in pkgutil.walk_packages(toolcrib.__path__, "toolcrib."):
        if not module.name.startswith(HEAVY) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in modules:
        importlib.import_module(name)
    found: Callable[[], Any] = entry_points(group="console_scripts")["toolcrib"].load()
    return found


def compile_records() -> None:
    """Compile the methods of all records, which each process would do again at first use."""
    for module in [one for name, one in sys.modules.items() if name.startswith("toolcrib")]:
        for found in vars(module).values():
            if isinstance(found, type) and hasattr(found.__dict__.get("__init__"), "record"):
                inspect.signature(found)


def warm_up() -> None:
    """Make what each process would make at its first use: forms of files, and what Python keeps of types."""
    fits({})
    isinstance([], Mapping)  # The first answer for a type is slow: each kind of mapping is asked.


def join_pages() -> None:
    """Have the kernel join small pages to huge ones: a fork copies one entry for 512 of them (3 ms less).

    A kernel that cannot leaves them as they are.
    """
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, *_, inode = line.split()[:5]
        start, end = (int(address, 16) for address in place.split("-"))
        first, last = -(-start // HUGE) * HUGE, end // HUGE * HUGE
        if rights == "rw-p" and inode == "0" and first < last:
            libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), COLLAPSE)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process what a shell would have started."""
    if request["session"]:
        os.setsid()
    if request["terminal"]:
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for target, (name, descriptor) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        os.dup2(descriptor, target)
        os.close(descriptor)
        # As Python opens them: by what they are now, not by what they were when the server began.
        line = 1 if name == "stderr" or os.isatty(target) else -1
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = open(target, "r" if name == "stdin" else "w", line, "utf-8", errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])


def run(words: list[str], entry: Callable[[], Any]) -> None:
    """Run the words of a command line: `toolcrib …`, or Python with `-c CODE`, `-m MODULE` or a file.

    Before these Python takes `-W error`.
    """
    program, *rest = words
    if Path(program).name == "toolcrib":
        sys.argv = words
        # It ends as the installed program does: by this exit, with all that Python does at one.
        sys.exit(entry())
    if rest[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        rest = rest[2:]
    if rest[0] == "-m":
        sys.argv = rest[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
        return
    if rest[0] == "-c":
        code, sys.argv, folder, name = rest[1], ["-c", *rest[2:]], "", "<string>"
    else:
        name, sys.argv = rest[0], rest
        code, folder = Path(name).read_text("utf-8"), str(Path(name).parent)
    sys.path.insert(0, folder)
    module = sys.modules["__main__"] = type(sys)("__main__")
    if rest[0] != "-c":
        module.__file__ = name
    exec(compile(code, name, "exec", dont_inherit=True), module.__dict__)


class Forks:
    """The processes that run, and the clients that wait for each."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.running: dict[int, tuple[int, socket.socket]] = {}
        """Pidfd of each process to its number and its client."""
        self.poll = select.poll()
        for descriptor in (0, listener.fileno()):
            self.poll.register(descriptor, select.POLLIN)

    def serve(self, entry: Callable[[], Any]) -> None:
        """Fork a process for each request, until standard input ends."""
        while True:
            # One at a time: what it closes may have another event.
            descriptor, _ = self.poll.poll()[0]
            if descriptor == 0:
                for child, _ in self.running.values():
                    os.kill(child, signal.SIGTERM)
                return
            if descriptor == self.listener.fileno():
                self.fork(entry)
            elif descriptor in self.running:
                self.reap(descriptor)
            else:
                self.end(descriptor)

    def fork(self, entry: Callable[[], Any]) -> None:
        """Start the process of the next client."""
        client, _ = self.listener.accept()
        text, streams, _, _ = socket.recv_fds(client, LONGEST, 3)
        while text and not text.endswith(b"\n"):
            text += client.recv(LONGEST)
        if not text:  # It only asked if the server is there.
            client.close()
            return
        child = os.fork()
        if child == 0:
            for descriptor, (_, other) in self.running.items():
                os.close(descriptor)
                other.close()
            client.close()
            self.listener.close()
            request = json.loads(text)
            become(request, streams)
            try:
                run(request["words"], entry)
                sys.exit()
            except SystemExit as ended:
                ENDED.append((ended.code or 0) & 0xFF if isinstance(ended.code, int | None) else 1)
                raise
            except Exception:
                ENDED.append(1)
                raise
        for descriptor in streams:
            os.close(descriptor)
        client.send(b"%d\n" % child)
        pidfd = os.pidfd_open(child)
        self.running[pidfd] = child, client
        self.poll.register(pidfd, select.POLLIN)
        self.poll.register(client, select.POLLIN)

    def reap(self, pidfd: int) -> None:
        """Send a process's exit status to its client."""
        child, client = self.running.pop(pidfd)
        _, status = os.waitpid(child, 0)
        self.poll.unregister(pidfd)
        with suppress(KeyError):
            self.poll.unregister(client)
        os.close(pidfd)
        with suppress(OSError):
            client.send(b"%d\n" % os.waitstatus_to_exitcode(status))
        client.close()

    def end(self, descriptor: int) -> None:
        """End the process of a client that has gone."""
        for child, client in self.running.values():
            if client.fileno() == descriptor:
                os.kill(child, signal.SIGTERM)
                self.poll.unregister(client)


def main() -> None:
    """Serve until standard input ends."""
    _, address, *modules = sys.argv
    entry = program(modules)
    compile_records()
    warm_up()
    gc.collect()  # Else each process looks through all of it.
    join_pages()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        Forks(listener).serve(entry)


if __name__ == "__main__":
    main()
