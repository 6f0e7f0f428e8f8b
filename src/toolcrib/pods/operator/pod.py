"""The pod of a run, with its network policy, as Kubernetes takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from toolcrib.pods.operator.resources import (
    API_VERSION,
    GROUP,
    AgentRunSpec,
    InstanceSpec,
    Model,
    Resources,
    Skill,
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
    context = {
        "INSTANCE_NAME": spec.instance_ref,
        "AGENT_RUN_ID": name,
        "SOURCE_CHANNEL": spec.source.channel if spec.source else "",
        "SOURCE_CHAT_ID": spec.source.chat_id if spec.source else "",
    }
    bridge = {
        **_container("bridge", image, ["bridge", "--ipc", "/ipc", "--state", "/state/bridge.db"], resources),
        "env": _env({**context, "NATS_URL": platform.nats_url}),
        "volumeMounts": [_mount("ipc"), _mount("state"), _mount("tmp")],
        "restartPolicy": "Always",
    }
    if platform.nats_secret:
        bridge["envFrom"] = [{"secretRef": {"name": platform.nats_secret}}]
    sidecars = [_sidecar(one, resources) for one in skills if one.sidecar]
    return {
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
        "initContainers": [bridge, *sidecars],
        "containers": [_agent(spec, instance, image, context, skills, resources)],
        "volumes": [
            {"name": "ipc", "emptyDir": {"sizeLimit": "256Mi"}},
            {"name": "state", "emptyDir": {"sizeLimit": "256Mi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": resources.disk}},
            {"name": "workspace", "emptyDir": {"sizeLimit": resources.disk}},
            *(
                {"name": f"skill-{one.name}"[:63], "configMap": {"name": one.config_map or one.name}}
                for one in skills
            ),
        ],
    }


def _agent(
    spec: AgentRunSpec,
    instance: InstanceSpec,
    image: str,
    context: Mapping[str, str],
    skills: list[Skill],
    resources: Resources,
) -> dict[str, Any]:
    model = spec.model or instance.model or Model()
    made = {
        **_container("agent", image, ["pod-run"], resources),
        "env": _env(
            {
                **context,
                "TASK": spec.task,
                "SYSTEM_PROMPT": spec.system_prompt or instance.system_prompt,
                "TOOLS_ENABLED": "true" if spec.tools_enabled else "false",
                "AGENT_ID": spec.agent_id,
                "SESSION_KEY": spec.session_key,
                "MODEL_PROVIDER": model.provider,
                "MODEL_NAME": model.model,
                "MODEL_BASE_URL": model.base_url,
            }
        ),
        "volumeMounts": [
            _mount("ipc"),
            _mount("workspace"),
            _mount("tmp"),
            *(
                {"name": f"skill-{one.name}"[:63], "mountPath": f"/skills/{one.name}", "readOnly": True}
                for one in skills
            ),
        ],
    }
    if model.auth_secret_ref:
        made["envFrom"] = [{"secretRef": {"name": model.auth_secret_ref}}]
    return made


def _sidecar(skill: Skill, resources: Resources) -> dict[str, Any]:
    assert skill.sidecar is not None
    arguments = ["sidecar", "--ipc", "/ipc", "--target", skill.name]
    made = {
        **_container(f"skill-{skill.name}"[:63], skill.sidecar.image, arguments, resources),
        "env": _env(skill.sidecar.env),
        "volumeMounts": [_mount("ipc"), _mount("workspace"), _mount("tmp")],
        "restartPolicy": "Always",
    }
    if skill.sidecar.secret_ref:
        made["envFrom"] = [{"secretRef": {"name": skill.sidecar.secret_ref}}]
    return made


def _container(name: str, image: str, arguments: list[str], resources: Resources) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "args": arguments,
        "resources": {"limits": {"cpu": resources.cpu, "memory": resources.memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _env(values: Mapping[str, str]) -> list[dict[str, str]]:
    # Kubernetes would replace `$(NAME)` in a text, and reads `$$` as `$`.
    return [{"name": key, "value": value.replace("$", "$$")} for key, value in values.items() if value]


def _mount(name: str) -> dict[str, str]:
    return {"name": name, "mountPath": f"/{name}"}
