"""The process of a registered function: its tree is kept and ended like a command's, and it is not confined.

It is the user's own code, so it has his rights, files and network. It is imported ahead of the call: what is
needed for that (environment, `sys.path`, working folder, module) comes straight from the server with the
message `prepare`, the call itself with the next one; the launcher sees neither.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see `confined`
import marshal
import os

from toolcrib.sandbox.child import warm as zygote
from toolcrib.sandbox.child.confined import reset_signals
from toolcrib.sandbox.kernel.calls import PR_SET_DUMPABLE, prctl, receive, report, send, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["PRELOADED", "run_function"]

PRELOADED = (
    "pickle", "multiprocessing.spawn", "toolcrib", "orjson", "toolcrib.schema.jsonable",
    "toolcrib.core.toolset", "toolcrib.executors.function.executor",
)  # fmt: skip
"""What a function's answer takes, and its module in all likelihood."""


def run_function(job: dict[str, Any], control: int) -> None:
    """Become ready, import, wait for the word, call, end."""
    prctl("dumpable", PR_SET_DUMPABLE, 1)  # or an ordinary user could not look at himself in /proc
    reset_signals()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    zygote.set_signals()
    for target, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        place(os.open("/dev/null", mode), target)
    send(control, b"ready " + marshal.dumps([], 2))
    script = zygote.prepare(job["warm"], forget=not zygote.whole_package())
    given = take(control)
    for target, name in ((1, "stdout"), (2, "stderr")):
        if name in given:
            place(given[name], target)
    script.prepare(marshal.loads(whole(given["prepared"])))  # noqa: S302 - the server wrote it
    given = take(control)
    report(control, "exec")
    script.__dict__["given"] = given["call"], given["result"]
    zygote.finish(zygote.run_main(script))


def place(fd: int, target: int) -> None:
    """Put a descriptor where programs look for it."""
    if fd != target:
        os.dup2(fd, target)
        os.close(fd)
    else:
        os.set_inheritable(target, True)


def take(control: int) -> dict[str, int]:
    """The descriptors of one message, by name; the end where there is none any more."""
    words, fds = receive(control)
    if not words:
        os._exit(0)
    return dict(zip(words.decode().split(), fds, strict=True))
