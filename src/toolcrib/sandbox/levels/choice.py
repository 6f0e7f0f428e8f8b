"""Which level a job is run at: the best that this machine has and that holds it, never below its minimum.

At `full` there is nothing to choose: what does not work then fails the call. What machines have below that is
found by `probe` and remembered; a machine that turns out weaker than remembered refuses.
"""

from __future__ import annotations

import asyncio
import os

from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox.files.grants import Plan, inside, plan
from toolcrib.sandbox.job import Confinement
from toolcrib.sandbox.levels.probe import in_force, require
from toolcrib.spec import Level

__all__ = ["chosen", "unheld"]


async def chosen(job: Confinement) -> Level:
    """The level for this job.

    Raises:
        SandboxUnavailable: this machine holds no level that the job's minimum allows, or none that can hold
            what the job must be held to; it names the mechanism.
    """
    if job.minimum == "full":
        return "full"
    known = in_force.cache_info().currsize > 0
    available = in_force() if known else await asyncio.to_thread(in_force)
    if available == "full":
        return "full"
    refusal = None
    if available == "landlock":
        refusal = unheld(job, plan(job))
        if refusal is None:
            return "landlock"
    if job.minimum == "none":
        return "none"
    if refusal is None:
        require("landlock")
    raise refusal or SandboxUnavailable("the level landlock cannot be had here")


def unheld(job: Confinement, mounts: Plan) -> SandboxUnavailable | None:
    """What keeps a job from level `landlock`, which grants but cannot take away below what it granted."""
    network = job.network
    if network not in ("none", "host"):
        return beyond(
            "net namespace",
            "which hosts it may reach cannot be held",
            "without a network of its own a tool reaches all of them: `network: host` says so",
        )
    writable = [mount.target for mount in mounts.mounts if mount.mode.startswith("rw")]
    for mount in mounts.mounts:
        if not os.path.lexists(mount.target):
            continue
        if mount.mode == "hide":
            told = f"{mount.target} lies inside a grant and must stay unreadable"
        elif mount.mode.startswith("ro") and inside(os.path.dirname(mount.target), writable):
            told = f"{mount.target} lies inside a writable grant and must stay read-only"
        elif mount.mode == "link":
            told = f"{mount.target} is a symbolic link inside a writable grant and must stay what it is"
        else:
            continue
        return beyond("mount namespace", told, "grant the folders beside it instead", path=mount.target)
    return None


def beyond(mechanism: str, told: str, hint: str, **details: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"level landlock cannot hold this tool, so nothing was run: {mechanism}: {told}",
        hint=hint,
        details={"mechanism": mechanism, "reason": told, "level": "landlock", **details},
    )
