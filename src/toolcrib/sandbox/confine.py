"""Run one command confined, and configure how much is kept ready for the next."""

from __future__ import annotations

from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox.job import Completed, Confinement, Warmth


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
    from toolcrib.sandbox.host.runner import execute  # imports asyncio
    from toolcrib.sandbox.levels.choice import chosen

    try:
        return await execute(job, "full" if job.minimum == "full" else await chosen(job))
    except SandboxUnavailable as error:
        raise explained(job, error) from None


def explained(job: Confinement, error: SandboxUnavailable) -> SandboxUnavailable:
    """Add the job's advice to the error's hint. Have the machine probed again if the level was refused."""
    from toolcrib.sandbox.levels.probe import forget

    if job.minimum != "full" and "level" not in error.details:
        forget()
    if job.advice:
        error.hint = f"{error.hint}; {job.advice}" if error.hint else job.advice
    return error


def configure(warmth: Warmth) -> None:
    """Set how much is kept ready in this process; all that is ready or running now is ended."""
    from toolcrib.sandbox.host.pool import shared

    pool = shared()
    pool.close()
    pool.warmth = warmth
