"""Run one command confined, and configure how much is kept ready for the next.

What runs it is imported at the first run: tools that need no process come here as well, and it takes a while.
"""

from __future__ import annotations

import os
import sys

from toolcrib.errors import InvalidInput, SandboxUnavailable, UsageError, Violation
from toolcrib.sandbox.job import Completed, Confinement, Warmth
from toolcrib.spec import Level


async def run(job: Confinement) -> Completed:
    """Run one command confined and wait for the end of its whole process tree.

    Cancelling the task kills the tree at once and waits until it is gone.

    Raises:
        SandboxUnavailable: the kernel lacks a mechanism; nothing was run.
        PermissionDenied: a grant is not what it says (a symbolic link, a reserved place) or `cwd` is
            not granted; nothing was run.
        ToolUnavailable: the program, `cwd` or a granted path does not exist or cannot be executed.
        InvalidInput: an argument or variable cannot be passed to a process (NUL byte, too long).
        UsageError: a path is not absolute and normal, or a limit is out of range.
    """
    from toolcrib.sandbox.host.runner import execute

    try:
        return await execute(job, await checked_level(job))
    except SandboxUnavailable as error:
        raise explained(job, error) from None


async def checked_level(job: Confinement) -> Level:
    """Return the level that a job runs at, once what no process can be given is refused."""
    level: Level = "full"
    if job.minimum != "full":
        from toolcrib.sandbox.levels.choice import chosen

        level = await chosen(job)
    check(job, level)
    return level


def explained(job: Confinement, error: SandboxUnavailable) -> SandboxUnavailable:
    """Add the job's advice to the error's hint. Have the machine probed again if the level was refused."""
    from toolcrib.sandbox.levels.probe import forget

    if job.minimum != "full" and "level" not in error.details:
        forget()
    if job.advice:
        error.hint = f"{error.hint} {job.advice}" if error.hint else job.advice
    return error


def configure(warmth: Warmth) -> None:
    """Set how much is kept ready in this process; all that is ready or running now is ended."""
    from toolcrib.sandbox.host.pool import shared

    pool = shared()
    pool.close()
    pool.warmth = warmth


def check(job: Confinement, level: Level) -> None:
    """Refuse what no process can be given, and what this machine cannot enforce."""
    if not job.argv or not job.argv[0]:
        raise UsageError("there is no command to run")
    if (job.network == "proxy") != (job.outlet is not None):
        raise UsageError("an outlet is needed for the network `proxy`, and only for that")
    for name in ("timeout_ms", "cpu_s", "open_files", "tmp_size", "memory_bytes", "processes"):
        value = getattr(job, name)
        if value is not None and value <= 0:
            raise UsageError(f"{name} must be above 0")
    for name in ("output_limit", "result_limit", "file_size"):
        if getattr(job, name) < 0:
            raise UsageError(f"{name} must not be negative")
    check_texts(job)
    if sys.platform != "linux" or not sys.executable:
        from toolcrib.sandbox.host.failures import unavailable

        raise unavailable("launcher", "a Python interpreter on Linux is needed")
    if job.watch is not None and level != "full":
        from toolcrib.sandbox.host.failures import unavailable

        raise unavailable("watch", "commands can be watched at level full only")
    if job.memory_bytes or job.processes:
        from toolcrib.sandbox.host.enforcement import check_limits

        check_limits(job.memory_bytes, job.processes, level)


def check_texts(job: Confinement) -> None:
    """Refuse arguments and variables that no process can be given."""
    for name in job.env:
        if not name or "=" in name:
            raise UsageError(f"not a name of a variable: {name!r}")
    for path, text in (
        *((f"$.argv[{index}]", text) for index, text in enumerate(job.argv)),
        *((f"$.env.{name}", f"{name}={value}") for name, value in job.env.items()),
    ):
        reason = "contains a NUL byte" if "\0" in text else ""
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            reason = "contains a lone surrogate"
        if reason:
            raise InvalidInput(f"{path} {reason}", violations=(Violation(path, reason),))
