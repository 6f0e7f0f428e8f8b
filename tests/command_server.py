"""A server that runs `toolcrib` commands: it imports the package once and forks a process for each.

It listens on the Unix socket that its first argument names, and ends with its standard input. A request is
JSON (`words`, `cwd`, `env`) with the descriptors of the standard streams. The answer is the exit status.
A command whose client goes away is ended. A command takes 0.1 s so, and 0.5 s when started anew. Further
arguments of the server name modules that are imported once.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import toolcrib

LONGEST = 1 << 20
HEAVY = ("toolcrib.integrations.", "toolcrib.runs.serve_postgres", "toolcrib.testing.plugin")
"""Modules that import large packages, which commands do not need: each process would copy their memory."""


def program() -> Callable[[], Any]:
    """Import the package, wherever its modules are, and give the program's entry point."""
    for module in pkgutil.walk_packages(toolcrib.__path__, "toolcrib."):
        if not module.name.startswith(HEAVY) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in sys.argv[2:]:
        importlib.import_module(name)
    found: Callable[[], Any] = entry_points(group="console_scripts")["toolcrib"].load()
    return found


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process what a shell would have started."""
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
    sys.argv = ["toolcrib", *request["words"]]


def answer(client: socket.socket, entry: Callable[[], Any]) -> None:
    """Run the command of one client in a process of its own, and send the exit status."""
    text, streams, _, _ = socket.recv_fds(client, LONGEST, 3)
    while not text.endswith(b"\n"):
        if not (more := client.recv(LONGEST)):
            return  # It only asked if the server is there, or has gone.
        text += more
    child = os.fork()
    if child == 0:
        client.close()
        become(json.loads(text), streams)
        # It ends as the installed program does: by this exit, with all that Python does at one.
        sys.exit(entry())
    for descriptor in streams:
        os.close(descriptor)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([ended, client.fileno()], [], [])
    if ended not in ready:
        os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    client.send(str(os.waitstatus_to_exitcode(status)).encode())


def main() -> None:
    """Serve until standard input ends."""
    entry = program()
    gc.freeze()  # Else each process looks through all of it when it ends.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps those that answer.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        while listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]:
            client, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                answer(client, entry)
                os._exit(0)
            client.close()


if __name__ == "__main__":
    main()
