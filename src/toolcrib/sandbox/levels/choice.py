"""Choose the level that a job runs at: the best that this machine has and that can enforce the job's rules.

It is never below the job's minimum. At minimum `full` there is no choice: what does not work fails the call.
What a machine has below that is found by `probe` and remembered; a machine that turns out weaker than
remembered refuses.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox.files.grants import MountPlan, plan
from toolcrib.sandbox.files.paths import within
from toolcrib.sandbox.host.failures import ANY_NAMESPACE
from toolcrib.sandbox.job import Confinement
from toolcrib.sandbox.levels.probe import LOWER_LEVEL, in_force, probe
from toolcrib.spec import Level


async def chosen(job: Confinement) -> Level:
    """Return the level for this job.

    Raises:
        SandboxUnavailable: this machine has no level that the job's minimum allows, or none that can enforce
            the job's rules; it names the mechanism.
    """
    if job.minimum == "full":
        return "full"
    known = in_force.cache_info().currsize > 0
    available = in_force() if known else await asyncio.to_thread(in_force)
    if available == "full":
        return "full"
    refused = None
    if available == "landlock":
        job = replace(job, pinned=())  # There are no mounts at this level.
        refused = refused_at_landlock(job, plan(job))
        if refused is None:
            return "landlock"
    if job.minimum == "none":
        return "none"
    raise refused or not_supported()


def not_supported() -> SandboxUnavailable:
    """Return the error for a machine without level `landlock`."""
    # What was remembered may be wrong: the level can work when it is tried now.
    missing = (one.detail for one in probe() if one.name == LOWER_LEVEL and not one.ok)
    detail = next(missing, "it did not work before; try again")
    return SandboxUnavailable(
        f"the sandbox cannot be set up here: {LOWER_LEVEL}: {detail}",
        hint=ANY_NAMESPACE,
        details={"mechanism": LOWER_LEVEL, "missing": [LOWER_LEVEL]},
    )


def refused_at_landlock(job: Confinement, mounts: MountPlan) -> SandboxUnavailable | None:
    """Return why a job cannot run at level `landlock`, which cannot deny anything inside what it granted."""
    if job.network not in ("none", "host"):
        return refusal(
            "net namespace",
            "it cannot be limited to certain hosts",
            "Without a network of its own a tool reaches every host; `network: host` allows that.",
        )
    writable = [mount.target for mount in mounts.mounts if mount.mode.startswith("rw")]
    for mount in mounts.mounts:
        if not os.path.lexists(mount.target):
            continue
        if mount.mode == "hide":
            reason = "is inside a grant and must stay unreadable"
        elif mount.mode.startswith("ro") and within(os.path.dirname(mount.target), *writable):
            reason = "is inside a writable grant and must stay read-only"
        elif mount.mode == "link":
            reason = "is a symbolic link inside a writable grant and must not be changed"
        else:
            continue
        hint = "Grant the folders beside it instead."
        return refusal("mount namespace", f"{mount.target} {reason}", hint, path=mount.target)
    return None


def refusal(mechanism: str, reason: str, hint: str, **details: str) -> SandboxUnavailable:
    """Return the error for what level `landlock` cannot enforce."""
    return SandboxUnavailable(
        f"level landlock cannot confine this tool, so nothing was run: {mechanism}: {reason}",
        hint=hint,
        details={"mechanism": mechanism, "reason": reason, "level": "landlock", **details},
    )
