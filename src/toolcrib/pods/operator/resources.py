"""The custom resources, from which their definitions for Kubernetes are made."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

GROUP, VERSION = "sympozium.ai", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
_FIXED = {
    "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "a run cannot be changed; make another one"}
    ]
}
Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
_Label = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class Model(Struct, rename="camel", omit_defaults=True):
    """The model of an agent."""

    provider: str = ""
    """`openai`, `anthropic`, `google`, or `scripted`."""
    model: str = ""
    base_url: str = ""
    """The server of the model, if it is not the provider's own."""
    script: list[dict[str, Any]] = []
    """The answers of the provider `scripted`, which needs no key."""
    auth_secret_ref: str = ""
    """The Secret whose entries become environment variables, such as OPENAI_API_KEY."""


class Source(Struct, rename="camel", omit_defaults=True):
    """The chat that a run came from."""

    channel: str
    chat_id: str = ""


class AgentRunSpec(Struct, rename="camel", omit_defaults=True):
    """One task of an agent."""

    instance_ref: _Name
    """The SympoziumInstance, in the same namespace."""
    task: Annotated[str, Meta(min_length=1)]
    agent_id: str = "primary"
    session_key: str = ""
    """Names the conversation."""
    system_prompt: str = ""
    """In place of the instance's."""
    model: Model | None = None
    """In place of the instance's."""
    tools_enabled: bool = True
    timeout_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 3_600
    source: Source | None = None
    cleanup: Literal["keep", "delete"] = "keep"
    """`delete` removes the pod at the end; it always goes with the run."""


class AgentRunStatus(Struct, rename="camel", omit_defaults=True):
    """The state of a run."""

    phase: Phase = "Pending"
    message: str = ""
    """The reason for the phase, if there is one."""
    pod_name: str = ""
    result: str = ""
    """The answer of the agent."""
    started_at: str = ""
    completed_at: str = ""


class Sidecar(Struct, rename="camel", omit_defaults=True):
    """A container with the programs of a skill, in which `execute_command` runs them."""

    image: str
    """An image with Toolcrib and these programs."""
    env: dict[str, str] = {}
    """Variables that commands get."""
    network: str = ""
    """The hosts that commands may reach, as `toolcrib sidecar --network` takes them."""
    secret_ref: str = ""
    """A Secret whose entries become environment variables of this container alone."""


class Skill(Struct, rename="camel", omit_defaults=True):
    """One skill."""

    name: _Label
    config_map: str = ""
    """The ConfigMap with its files, at /skills/NAME; empty for one of the same name."""
    sidecar: Sidecar | None = None
    enabled: bool = True


class Resources(Struct, rename="camel", omit_defaults=True):
    """The share of a machine that each container gets."""

    cpu: str = "1"
    memory: str = "1Gi"
    disk: str = "2Gi"
    """The size of the workspace."""


class InstanceSpec(Struct, rename="camel", omit_defaults=True):
    """An agent with its skills, for any number of runs."""

    system_prompt: str = ""
    model: Model | None = None
    skills: list[Skill] = []
    image: str = ""
    """The image of agent and bridge, if it is not the operator's default."""
    service_account_name: str = ""
    """Empty: the pod cannot reach the API of Kubernetes."""
    resources: Resources | None = None
    egress_ports: list[Annotated[int, Meta(ge=1, le=65_535)]] = msgspec.field(default_factory=lambda: [443])
    """The ports that a pod may connect to, beside those of DNS and NATS."""


class InstanceStatus(Struct, rename="camel", omit_defaults=True):
    """The state of an instance."""

    phase: Literal["Ready", "Failed"] = "Ready"
    message: str = ""


def environment(name: str, spec: AgentRunSpec, instance: InstanceSpec) -> dict[str, str]:
    """Return the variables by which the runner knows its task; those that are empty are left out."""
    model = spec.model or instance.model or Model()
    found = {
        "TASK": spec.task,
        "SYSTEM_PROMPT": spec.system_prompt or instance.system_prompt,
        "TOOLS_ENABLED": "true" if spec.tools_enabled else "false",
        "AGENT_ID": spec.agent_id,
        "SESSION_KEY": spec.session_key,
        "MODEL_PROVIDER": model.provider,
        "MODEL_NAME": model.model,
        "MODEL_BASE_URL": model.base_url,
        "MODEL_SCRIPT": json.dumps(model.script) if model.script else "",
        **context(name, spec),
    }
    return {name: value for name, value in found.items() if value}


def context(name: str, spec: AgentRunSpec) -> dict[str, str]:
    """Return the variables that say whose run this is, and where its task came from."""
    source = spec.source or Source("")
    found = {
        "INSTANCE_NAME": spec.instance_ref,
        "AGENT_RUN_ID": name,
        "SOURCE_CHANNEL": source.channel,
        "SOURCE_CHAT_ID": source.chat_id,
    }
    return {name: value for name, value in found.items() if value}


def definitions() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions."""
    columns = [("Phase", ".status.phase"), ("Instance", ".spec.instanceRef"), ("Age", "")]
    return [
        _definition("AgentRun", "agentruns", AgentRunSpec, AgentRunStatus, columns),
        _definition(
            "SympoziumInstance",
            "sympoziuminstances",
            InstanceSpec,
            InstanceStatus,
            [*columns[:1], columns[2]],
        ),
    ]


def _definition(
    kind: str, plural: str, spec: type, status: type, columns: list[tuple[str, str]]
) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {**_schema(spec), **(_FIXED if kind == "AgentRun" else {})},
            # The framework of the operator keeps its own notes there.
            "status": {**_schema(status), "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    shown = [
        {"name": name, "type": "string", "jsonPath": path}
        if path
        else {"name": name, "type": "date", "jsonPath": ".metadata.creationTimestamp"}
        for name, path in columns
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": shown,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


def _schema(kind: type) -> dict[str, Any]:
    """Return a type as a structural schema of Kubernetes: without references, titles and null."""
    schema = msgspec.json.schema(kind)
    parts = schema.get("$defs", {})

    def inlined(node: Any) -> Any:
        if isinstance(node, list):
            return [inlined(one) for one in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return inlined(parts[node["$ref"].rpartition("/")[2]])
        if "anyOf" in node:
            (real,) = (one for one in node["anyOf"] if one != {"type": "null"})
            # The default is null, which Kubernetes would refuse.
            return inlined(real)
        found = {key: inlined(value) for key, value in node.items() if key not in ("$defs", "title")}
        if "enum" in found:
            found["type"] = "string"
        if not found.get("required", True):
            del found["required"]
        if found == {"type": "object"}:
            found["x-kubernetes-preserve-unknown-fields"] = True
        return found

    made: dict[str, Any] = inlined(schema)
    return made
