"""The last steps of a confined process: report that it is ready, wait for the call, become the command."""

from __future__ import annotations

import errno
import marshal
import os

from toolcrib.sandbox.kernel.libc import (
    CLOSE_RANGE_CLOEXEC,
    SYS_CLOSE_RANGE,
    SetupFailure,
    check,
    read_all,
    syscall,
)
from toolcrib.sandbox.kernel.messages import receive, report, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

STREAMS = ("stdin", "stdout", "stderr", "result")
MOST_BOUND = 1_500
"""Files named by one message, which has 64 KiB at most."""


def offer(
    job: dict[str, Any],
    control: int,
    found: list[tuple[int, int] | None],
    change_env: Callable[[dict[str, str]], dict[str, str]] = dict,
    missing: Iterable[str] = (),
) -> None:
    """Report that this process is ready, wait for the call and become its command.

    Arguments:
        found: device and inode of what was bound.
        change_env: applied to the environment of the call.
        missing: mechanisms that this machine did not allow.
    """
    report_ready(control, found, missing)
    if job["warm"] is None:
        call = accept_call(control, CLOSE_RANGE_CLOEXEC)
        execute(call["argv"], change_env(call["env"]))
    else:
        from toolcrib.sandbox.child import warm

        start = warm.run_script
        script = warm.prepare(job["warm"])
        # This closes the socket to the server, so that code of the tool cannot reach it.
        env = change_env(accept_call(control, 0)["env"])
        start(script, job["warm"]["executable"], env)


def report_ready(
    control: int, found: Iterable[tuple[int, int] | None] = (), missing: Iterable[str] = ()
) -> None:
    """Report what was bound, each as `DEVICE:INODE` or `-` for nothing, and which mechanisms are missing."""
    words = ["-" if stamp is None else f"{stamp[0]}:{stamp[1]}" for stamp in found]
    while len(words) > MOST_BOUND:
        send(control, " ".join(("bound", *words[:MOST_BOUND])).encode())
        del words[:MOST_BOUND]
    send(control, "\0".join((" ".join(("ready", *words)), *missing)).encode())


def accept_call(control: int, close_flags: int) -> dict[str, Any]:
    """Wait for what depends on the call, put the streams in place, and close all other descriptors.

    With CLOSE_RANGE_CLOEXEC they are closed by exec itself, so that an exec that fails can still be reported.
    """
    given = take_descriptors(control)
    call: dict[str, Any] = marshal.loads(read_all(given["call"]))  # noqa: S302 - the server wrote it
    report(control, "exec")
    for target, name in enumerate(STREAMS):
        if given.get(name) == target:
            os.set_inheritable(target, True)
        elif name in given:
            os.dup2(given[name], target)
    first_to_close = 4 if "result" in given else 3
    check("descriptors", syscall(SYS_CLOSE_RANGE, first_to_close, 0xFFFFFFFF, close_flags))
    return call


def take_descriptors(control: int) -> dict[str, int]:
    """Wait for one message and return its descriptors by name; end where this process is not wanted any
    more."""
    words, fds = receive(control)
    if not words:
        os._exit(0)
    return dict(zip(words.decode().split(), fds, strict=True))


def execute(argv: list[str], env: dict[str, str]) -> None:
    """Replace this process; a name without a slash is looked up on the command's own PATH.

    Raises:
        SetupFailure: no candidate could be run.
    """
    name = argv[0]
    if "/" in name:
        candidates = [name]
    else:
        folders = env.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
        candidates = [f"{folder or '.'}/{name}" for folder in folders]
    failure = SetupFailure("exec", errno.ENOENT, name)
    for candidate in candidates:
        try:
            os.execve(candidate, argv, env)  # noqa: S606 - the job says if there is a shell
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            # If the file exists, "not found" means the interpreter that its first line names.
            interpreter = missing and os.path.exists(candidate)
            if missing and not interpreter:
                continue
            failure = SetupFailure("exec", error.errno or 0, candidate, "interpreter" if interpreter else "")
            if error.errno != errno.EACCES:
                break
    raise failure
