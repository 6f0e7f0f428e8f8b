"""The pod of a run, with its network policy, as Kubernetes takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.pods.operator.resources import (
    API_VERSION,
    GROUP,
    AgentRunSpec,
    InstanceSpec,
    Model,
    Resources,
    Skill,
    context,
    environment,
)
from toolcrib.spec.record import record

RUN_LABEL = f"{GROUP}/run"
_USER = 10001
_NATS_PORT, _DNS_PORT = 4222, 53
_DRAIN_S = 3_600
"""Seconds that the bridge of an ended pod waits for NATS, until its messages are lost with the pod."""


@record
class Platform:
    """The settings of the operator that every pod has."""

    image: str
    nats_url: str = "nats://nats:4222"
    nats_secret: str = ""
    """A Secret with NATS_TOKEN, or other variables for the bus; for the bridge alone."""


def pod_name(run: Mapping[str, Any]) -> str:
    """Return the name of the pod of a run: the same at each call, and at most 63 characters."""
    name = str(run["metadata"]["name"])
    if len(name) <= 57:
        return f"{name}-agent"
    return f"{name[:46].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:10]}-agent"


def manifests(
    run: Mapping[str, Any], spec: AgentRunSpec, instance: InstanceSpec, platform: Platform
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the network policy and the pod of a run. The run, a resource as Kubernetes has it, owns both."""
    meta = run["metadata"]
    label = pod_name(run).removesuffix("-agent")
    common = {
        "name": pod_name(run),
        "namespace": meta["namespace"],
        "labels": {RUN_LABEL: label, "app.kubernetes.io/managed-by": "toolcrib"},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "AgentRun",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return _policy(common, label, instance), {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": common,
        "spec": _pod_spec(meta["name"], spec, instance, platform),
    }


def _policy(metadata: Mapping[str, Any], label: str, instance: InstanceSpec) -> dict[str, Any]:
    ports = [{"protocol": "TCP", "port": port} for port in (*instance.egress_ports, _NATS_PORT, _DNS_PORT)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": {RUN_LABEL: label}},
            # Nobody connects to a pod of an agent.
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": [{"ports": [*ports, {"protocol": "UDP", "port": _DNS_PORT}]}],
        },
    }


def _pod_spec(name: str, spec: AgentRunSpec, instance: InstanceSpec, platform: Platform) -> dict[str, Any]:
    image = instance.image or platform.image
    skills = [one for one in instance.skills if one.enabled]
    resources = instance.resources or Resources()
    arguments = ["bridge", "--ipc", "/ipc", "--state", "/state/bridge.db"]
    variables = {**context(name, spec), "NATS_URL": platform.nats_url}
    bridge = _container("bridge", image, arguments, resources, variables, ("ipc", "bridge-state"))
    if platform.nats_secret:
        bridge["envFrom"] = [{"secretRef": {"name": platform.nats_secret}}]
    mounts = ("ipc", "workspace", "tmp", "state")
    variables = environment(name, spec, instance)
    agent = _container("agent", image, ["pod-run", "--recorded"], resources, variables, mounts)
    agent["volumeMounts"] += [
        {"name": f"skill-{one.name}"[:63], "mountPath": f"/skills/{one.name}", "readOnly": True}
        for one in skills
    ]
    if secret := (spec.model or instance.model or Model()).auth_secret_ref:
        agent["envFrom"] = [{"secretRef": {"name": secret}}]
    beside = [bridge, *(_sidecar(one, resources) for one in skills if one.sidecar)]
    sizes = {"ipc": "256Mi", "bridge-state": "256Mi", "state": resources.disk, "tmp": resources.disk}
    return {
        # The runner exits 0 once its result is recorded. Started again, it goes on with its run.
        "restartPolicy": "OnFailure",
        "activeDeadlineSeconds": spec.timeout_seconds,
        "terminationGracePeriodSeconds": _DRAIN_S,
        "serviceAccountName": instance.service_account_name or "default",
        "automountServiceAccountToken": bool(instance.service_account_name),
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # With `restartPolicy: Always` they run beside the agent, and end after it.
        "initContainers": [{**one, "restartPolicy": "Always"} for one in beside],
        "containers": [agent],
        "volumes": [
            *(
                {"name": one, "emptyDir": {"sizeLimit": size}}
                for one, size in {**sizes, "workspace": resources.disk}.items()
            ),
            *(
                {"name": f"skill-{one.name}"[:63], "configMap": {"name": one.config_map or one.name}}
                for one in skills
            ),
        ],
    }


def _sidecar(skill: Skill, resources: Resources) -> dict[str, Any]:
    assert skill.sidecar is not None
    arguments = ["sidecar", "--ipc", "/ipc", "--target", skill.name, "--own-workspace"]
    arguments += ["--sandbox-minimum", "landlock"]
    if skill.sidecar.network:
        arguments += ["--network", skill.sidecar.network]
    arguments += [part for name in skill.sidecar.env for part in ("--env", name)]
    name, mounts = f"skill-{skill.name}"[:63], ("ipc", "workspace", "tmp")
    made = _container(name, skill.sidecar.image, arguments, resources, skill.sidecar.env, mounts)
    if skill.sidecar.secret_ref:
        made["envFrom"] = [{"secretRef": {"name": skill.sidecar.secret_ref}}]
    return made


def _container(
    name: str,
    image: str,
    arguments: Sequence[str],
    resources: Resources,
    variables: Mapping[str, str],
    mounts: Sequence[str],
) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "args": list(arguments),
        # Kubernetes would replace `$(NAME)` in a text, and reads `$$` as `$`.
        "env": [{"name": key, "value": value.replace("$", "$$")} for key, value in variables.items()],
        "resources": {"limits": {"cpu": resources.cpu, "memory": resources.memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": one, "mountPath": "/state" if one == "bridge-state" else f"/{one}"} for one in mounts
        ],
    }
