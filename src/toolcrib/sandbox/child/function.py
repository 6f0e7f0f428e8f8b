"""The process of a registered function: its process tree is ended like a command's, and it is not confined.

It is the user's own code, so it has the user's rights, files and network. Its module is imported ahead of the
call: what that needs (environment, `sys.path`, working folder, module) comes directly from the server with
the message `prepare`, the call itself with the next one. The launcher sees neither.
"""

from __future__ import annotations

import marshal
import os
import sys

from toolcrib.sandbox.child import warm
from toolcrib.sandbox.child.command import report_ready, take_descriptors
from toolcrib.sandbox.child.privileges import reset_process
from toolcrib.sandbox.kernel.libc import PR_SET_DUMPABLE, prctl, read_all
from toolcrib.sandbox.kernel.messages import RunScript, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PRELOADED = (
    "pickle", "multiprocessing.spawn", "toolcrib", "orjson", "toolcrib.schema.decode",
    "toolcrib.toolset", "toolcrib.executors.function.executor",
)  # fmt: skip
"""Modules that the answer of a function needs, and most likely its own module."""


def run_function(job: dict[str, Any], control: int) -> None:
    """Get ready, import the module, wait for the call, and run it as the program of this process."""
    prctl("dumpable", PR_SET_DUMPABLE, 1)  # Otherwise an ordinary user could not read its own /proc/self.
    reset_process("/")
    warm.set_signals()
    report_ready(control)
    package = sys.modules.get("toolcrib")
    keep_package = getattr(package, "__file__", None) is not None
    script = warm.prepare(job["warm"], keep_package=keep_package)
    given = take_descriptors(control)
    for target, name in ((1, "stdout"), (2, "stderr")):
        if name in given:
            os.dup2(given[name], target)
            if given[name] != target:
                os.close(given[name])
    script.prepare(marshal.loads(read_all(given["prepared"])))  # noqa: S302 - the server wrote it
    given = take_descriptors(control)
    report(control, "exec")
    os.close(control)
    script.given = given["call"], given["result"]  # type: ignore[attr-defined]
    raise RunScript(script.main)
