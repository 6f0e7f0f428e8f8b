"""Functions that kopf calls, which keep runs and their pods in step.

`kopf run -m toolcrib.pods.operator.handlers` is the same as `toolcrib operator`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

import kopf
import msgspec

from toolcrib.pods.operator.cluster import Cluster, Taken
from toolcrib.pods.operator.pod import RUN_LABEL, Platform, manifests, pod_name
from toolcrib.pods.operator.resources import GROUP, VERSION, AgentRunSpec, InstanceSpec
from toolcrib.pods.operator.standing import ENDED, standing_of
from toolcrib.spec.moment import written

_AGAIN_S = 3.0
_TRIES = 6
_log = logging.getLogger("toolcrib.pods")


@kopf.on.startup()
async def begin(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Read the settings of the operator and connect to the cluster."""
    settings.persistence.finalizer = f"{GROUP}/toolcrib"
    memo.cluster = Cluster(settings)
    memo.platform = Platform(
        os.environ.get("TOOLCRIB_IMAGE") or "toolcrib:latest",
        os.environ.get("NATS_URL") or "nats://nats:4222",
        os.environ.get("NATS_SECRET", ""),
    )


@kopf.on.cleanup()
async def end(memo: kopf.Memo, **_: Any) -> None:
    """Close the connection."""
    await memo.cluster.aclose()


@kopf.on.resume(GROUP, VERSION, "agentruns")
@kopf.on.create(GROUP, VERSION, "agentruns")
async def reconcile(
    body: kopf.Body, status: kopf.Status, patch: kopf.Patch, memo: kopf.Memo, **_: Any
) -> None:
    """Make the pod of a run, unless it is there; a second time this changes nothing."""
    if status.get("phase") in ENDED:
        return
    cluster: Cluster = memo.cluster
    spec = msgspec.convert(dict(body["spec"]), AgentRunSpec)
    found = await cluster.find("SympoziumInstance", body["metadata"]["namespace"], spec.instance_ref)
    if found is None:
        patch.status["phase"] = "Pending"
        patch.status["message"] = f"there is no SympoziumInstance {spec.instance_ref}"
        raise kopf.TemporaryError(patch.status["message"], delay=_AGAIN_S)
    try:
        instance = msgspec.convert(found["spec"], InstanceSpec)
        # Before there is a pod, whose states are written from then on.
        if status.get("phase", "Pending") == "Pending":
            begun = {"phase": "Pending", "message": "", "podName": pod_name(body)}
            await cluster.patch_status(body["metadata"]["namespace"], body["metadata"]["name"], begun)
        # The policy first: the pod never runs without it.
        for one in manifests(body, spec, instance, memo.platform):
            await cluster.make(one)
    except (msgspec.ValidationError, Taken) as error:
        patch.status["phase"], patch.status["message"] = "Failed", str(error)
        patch.status["completedAt"] = written(time.time())
        return


@kopf.on.event("v1", "pods", labels={RUN_LABEL: kopf.PRESENT})
async def pod_changed(event: kopf.RawEvent, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Write the state of a pod into the status of its run."""
    owners: Any = body["metadata"].get("ownerReferences", ())
    owner = next((one for one in owners if one["kind"] == "AgentRun"), None)
    if owner is None:
        return
    gone = event["type"] == "DELETED"
    for attempt in range(_TRIES):  # kopf itself does not repeat this.
        try:
            await _record(memo.cluster, body, owner, gone=gone)
        except kopf.TemporaryError as error:
            _log.warning("the status of %s cannot be written now: %s", owner["name"], error)
            await asyncio.sleep(2**attempt / 2)
        else:
            break


async def _record(cluster: Cluster, pod: Mapping[str, Any], owner: Mapping[str, Any], *, gone: bool) -> None:
    namespace, name = pod["metadata"]["namespace"], owner["name"]
    run = await cluster.find("AgentRun", namespace, name)
    if run is None or run["metadata"]["uid"] != owner["uid"]:
        return
    before = run.get("status", {})
    if before.get("phase") not in ENDED:
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        log = await cluster.log(namespace, pod["metadata"]["name"]) if ended and not gone else ""
        now = standing_of(pod, log, gone=gone)
        if any(before.get(key) != value for key, value in now.items()):
            await cluster.patch_status(namespace, name, now)
        before = {**before, **now}
    if before.get("phase") in ENDED and run["spec"].get("cleanup") == "delete" and not gone:
        await cluster.remove_pod(namespace, pod["metadata"]["name"])


@kopf.on.resume(GROUP, VERSION, "sympoziuminstances")
@kopf.on.create(GROUP, VERSION, "sympoziuminstances")
@kopf.on.update(GROUP, VERSION, "sympoziuminstances", field="spec")
async def check_instance(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    """Say in the status of an instance if runs can use it."""
    try:
        skills = [one.name for one in msgspec.convert(dict(spec), InstanceSpec).skills]
        message = "" if len(set(skills)) == len(skills) else "two skills have the same name"
    except msgspec.ValidationError as error:
        message = str(error)
    patch.status["phase"], patch.status["message"] = "Failed" if message else "Ready", message
