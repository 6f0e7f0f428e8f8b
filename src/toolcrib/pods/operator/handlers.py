"""Functions that kopf calls, which keep runs and their pods in step.

`kopf run -m toolcrib.pods.operator.handlers` is the same as `toolcrib operator`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any

import kopf
import msgspec

from toolcrib.pods.operator.cluster import Cluster, Taken
from toolcrib.pods.operator.pod import RUN_LABEL, Platform, manifests, pod_name
from toolcrib.pods.operator.resources import GROUP, VERSION, AgentRunSpec, InstanceSpec
from toolcrib.pods.operator.standing import DELETED, ENDED, failed, standing_of

_AGAIN_S = 3.0
_WATCH_S = 300
"""Seconds of one watch."""
_TRIES = 6
_log = logging.getLogger("toolcrib.pods")


@kopf.on.startup()
async def begin(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Read the settings of the operator and connect to the cluster."""
    settings.persistence.finalizer = f"{GROUP}/toolcrib"
    settings.watching.server_timeout = _WATCH_S
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
async def reconcile(body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Make the pod of a run, once."""
    await _reconcile(body, memo)


async def _reconcile(body: Mapping[str, Any], memo: kopf.Memo) -> None:
    """Make the pod of a run, unless it was made: if it is not there any more then, it was deleted.

    The run is read from the cluster, because `body` can be older than what this function wrote.
    """
    cluster: Cluster = memo.cluster
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    # Before the run: a pod that the operator removes belongs to a run that has ended by then.
    pod = await cluster.find("Pod", namespace, pod_name(body))
    run = await cluster.find("AgentRun", namespace, name, body["metadata"]["uid"])
    if run is None or (status := run.get("status", {})).get("phase") in ENDED:
        return
    if "podName" in status:
        if pod is None:
            await cluster.set_status(run, failed(DELETED))
        return
    try:
        spec = msgspec.convert(run["spec"], AgentRunSpec)
        found = await cluster.find("SympoziumInstance", namespace, spec.instance_ref)
        if found is None:
            missing = f"there is no SympoziumInstance {spec.instance_ref}"
            await cluster.set_status(run, {"phase": "Pending", "message": missing})
            raise kopf.TemporaryError(missing, delay=_AGAIN_S)
        # The policy first: the pod never runs without it.
        for one in manifests(run, spec, msgspec.convert(found["spec"], InstanceSpec), memo.platform):
            await cluster.make(one)
    except (msgspec.ValidationError, Taken) as error:
        await cluster.set_status(run, failed(str(error)))
    else:
        await cluster.set_status(run, {"phase": "Pending", "message": "", "podName": pod_name(run)})


@kopf.on.event(GROUP, VERSION, "agentruns")
async def run_seen(event: kopf.RawEvent, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Look for the pod of a run. Each watch begins with all runs, and may have missed the end of a pod."""
    status = body.get("status", {})
    if event["type"] != "DELETED" and "podName" in status and status.get("phase") not in ENDED:
        await _reconcile(body, memo)


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
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    run = await cluster.find("AgentRun", namespace, owner["name"], owner["uid"])
    if run is None:
        return
    phase = run.get("status", {}).get("phase")
    if phase not in ENDED:
        ended = pod.get("status", {}).get("phase") in ENDED
        log = await cluster.log(namespace, name) if ended and not gone else ""
        now = {**standing_of(pod, log, gone=gone), "podName": name}
        await cluster.set_status(run, now)
        phase = now["phase"]
    if phase in ENDED and run["spec"].get("cleanup") == "delete" and not gone:
        await cluster.remove_pod(namespace, name)


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
