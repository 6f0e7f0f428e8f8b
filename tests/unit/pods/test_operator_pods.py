"""The pods and definitions that the operator writes, compared with files, and the status of runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolcrib.pods.operator.base import crd_yaml
from toolcrib.pods.operator.pod import Platform, manifests, pod_name
from toolcrib.pods.operator.resources import AgentRunSpec, InstanceSpec, definitions
from toolcrib.pods.operator.standing import DELETED, standing_of

GOLDEN = Path(__file__).parents[2] / "golden" / "pods"
BASE = Path(__file__).parents[3] / "deploy" / "base"
PLATFORM = Platform("toolcrib:1", nats_secret="nats-login")


def run_of(name: str, **spec: Any) -> tuple[dict[str, Any], AgentRunSpec]:
    body = {"instanceRef": "shop", "task": "Pay $(BILL) with $5.", **spec}
    meta = {"name": name, "namespace": "agents", "uid": "0001"}
    return {"metadata": meta, "spec": body}, msgspec.convert(body, AgentRunSpec)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "whole": (
        {
            "agentId": "primary",
            "sessionKey": "s-1",
            "model": {"provider": "openai", "model": "gpt-4o-mini", "authSecretRef": "openai-key"},
            "source": {"channel": "telegram", "chatId": "42"},
            "timeoutSeconds": 600,
        },
        {
            "systemPrompt": "You help the shop.",
            "serviceAccountName": "shop-agent",
            "resources": {"cpu": "500m", "memory": "512Mi"},
            "egressPorts": [443, 6443],
            "skills": [
                {"name": "code-review"},
                {"name": "off", "enabled": False},
                {
                    "name": "k8s-ops",
                    "configMap": "k8s-skill",
                    "sidecar": {
                        "image": "kubectl:1",
                        "env": {"KUBECONFIG": "/tmp/config"},
                        "network": "kubernetes.default.svc:443",
                        "secretRef": "k8s",
                    },
                },
            ],
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_pod_of_a_run_is_the_one_in_its_file(case: str) -> None:
    spec, instance = CASES[case]
    body, run = run_of("test-tool", **spec)
    made = manifests(body, run, msgspec.convert(instance, InstanceSpec), PLATFORM)
    text = json.dumps(made, indent=1) + "\n"
    file = GOLDEN / f"{case}.json"
    if os.environ.get("TOOLCRIB_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert file.read_text() == text


def test_the_definitions_are_those_in_the_base() -> None:
    assert (BASE / "crds.yaml").read_text() == crd_yaml()


def test_only_the_bridge_gets_the_login_of_nats_and_only_the_agent_the_key_of_the_model() -> None:
    spec, instance = CASES["whole"]
    body, run = run_of("test-tool", **spec)
    _, pod = manifests(body, run, msgspec.convert(instance, InstanceSpec), PLATFORM)
    every = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    secrets = {one["name"]: [f["secretRef"]["name"] for f in one.get("envFrom", [])] for one in every}
    assert secrets == {"bridge": ["nats-login"], "skill-k8s-ops": ["k8s"], "agent": ["openai-key"]}
    mounts = {one["name"]: {m["name"] for m in one["volumeMounts"]} for one in every}
    # What the agent can write must not be what the bridge trusts.
    assert mounts["bridge"] & mounts["agent"] == {"ipc"}
    for one in every:
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}, one["name"]


def test_a_text_reaches_the_container_as_it_is() -> None:
    body, run = run_of("test-tool")
    _, pod = manifests(body, run, InstanceSpec(), PLATFORM)
    (agent,) = pod["spec"]["containers"]
    assert {"name": "TASK", "value": "Pay $$(BILL) with $$5."} in agent["env"]


@pytest.mark.parametrize("name", ["a", "a" * 57, "a" * 58, "a" * 253, "run." + "b" * 60])
def test_names_of_pods_are_short_and_differ(name: str) -> None:
    body, _ = run_of(name)
    other, _ = run_of(name[:-1] + "c")
    assert len(pod_name(body)) <= 63
    assert pod_name(body) != pod_name(other)
    assert pod_name(body) == pod_name(body)


def test_definitions_are_structural() -> None:
    def walk(node: Any) -> None:
        if isinstance(node, list):
            for one in node:
                walk(one)
        elif isinstance(node, dict):
            assert not {"$ref", "$defs", "anyOf", "title"} & node.keys(), node
            assert node.get("type") is None or isinstance(node["type"], str | dict)
            for one in node.values():
                walk(one)

    run, instance = definitions()
    walk(run["spec"]["versions"][0]["schema"])
    walk(instance["spec"]["versions"][0]["schema"])
    spec = run["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["instanceRef", "task"]
    assert spec["properties"]["model"]["properties"]["authSecretRef"]["type"] == "string"


@pytest.mark.parametrize(
    ("status", "log", "expected"),
    [
        ({"phase": "Pending"}, "", ("Pending", "", None)),
        ({"phase": "Running"}, "", ("Running", "", None)),
        (
            {"phase": "Succeeded"},
            'x result: {"result":"a"}\nx result: {"result":"b"}\n',
            ("Succeeded", "", "b"),
        ),
        ({"phase": "Succeeded"}, 'result: {"result":"","error":"no"}\nmore', ("Failed", "no", "")),
        ({"phase": "Succeeded"}, "result: {half", ("Succeeded", "", "")),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node is full."},
            "",
            ("Failed", "The node is full.", ""),
        ),
    ],
)
def test_the_status_of_a_run_follows_its_pod(
    status: dict[str, Any], log: str, expected: tuple[Any, ...]
) -> None:
    found = standing_of({"status": status}, log)
    assert (found["phase"], found["message"], found.get("result")) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('{"result":"a","error":""}', ("Succeeded", "", "a")),
        ('{"result":"","error":"no"}', ("Failed", "no", "")),
        ("killed", ("Failed", DELETED, None)),
    ],
)
def test_a_short_result_outlasts_its_pod(message: str, expected: tuple[Any, ...]) -> None:
    agent = {"name": "agent", "state": {"terminated": {"exitCode": 0, "message": message}}}
    found = standing_of({"status": {"phase": "Running", "containerStatuses": [agent]}}, "", gone=True)
    assert (found["phase"], found["message"], found.get("result")) == expected
