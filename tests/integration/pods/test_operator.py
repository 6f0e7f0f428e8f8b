"""The operator as a process of kopf, against an emulator of Kubernetes over HTTP."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kmock
import kopf
import pytest

from tests.integration.pods.test_delivery import until
from tests.kubernetes import Emulator
from tests.patience import patient
from toolcrib.pods.operator import handlers
from toolcrib.pods.operator.cluster import Cluster
from toolcrib.pods.operator.pod import RUN_LABEL, Platform

RUNS, INSTANCES = "sympozium.ai/v1alpha1/agentruns", "sympozium.ai/v1alpha1/sympoziuminstances"
PODS, POLICIES = "v1/pods", "networking.k8s.io/v1/networkpolicies"
VERBS = {"get", "list", "watch", "create", "patch", "delete"}
KINDS = {
    RUNS: "AgentRun",
    INSTANCES: "SympoziumInstance",
    PODS: "Pod",
    POLICIES: "NetworkPolicy",
    "v1/namespaces": "Namespace",
    "v1/events": "Event",
    "apiextensions.k8s.io/v1/customresourcedefinitions": "CustomResourceDefinition",
}
GUIDE = {
    "instanceRef": "my-instance",
    "agentId": "primary",
    "sessionKey": "test-tool-1",
    "task": "Use the my_new_tool tool with requiredParam='hello' and tell me the result.",
    "model": {"provider": "openai", "model": "gpt-4o-mini", "authSecretRef": "my-instance-openai-key"},
}
"""The run of Sympozium's guide."""


class World:
    """An emulated cluster, with an operator."""

    def __init__(self, server: Any, folder: Path) -> None:
        self.server = server
        self.config = folder / "kubeconfig"
        cluster = {"server": str(server.url).rstrip("/")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": "any"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "ns"}}],
        }
        self.config.write_text(json.dumps(config))
        self._log = folder / "operator.log"

    @asynccontextmanager
    async def operated(self) -> AsyncIterator[None]:
        program = [str(Path(sys.executable).with_name("kopf")), "run", "--standalone", "-A"]
        words = [*program, "-m", "toolcrib.pods.operator.handlers"]
        environment = {**os.environ, "KUBECONFIG": str(self.config), "TOOLCRIB_IMAGE": "toolcrib:1"}
        with self._log.open("ab") as log:
            process = await asyncio.to_thread(
                subprocess.Popen, words, env=environment, stdout=log, stderr=log
            )
        try:
            yield
        except BaseException:
            print(self._log.read_text()[-6000:])
            raise
        finally:
            process.kill()
            await asyncio.to_thread(process.wait, patient(30))

    def has(self, kind: str, name: str) -> bool:
        key = (kmock.resource(kind), "ns", name)
        return key in self.server.objects and not self.server.objects[key].deleted

    def raw(self, kind: str, name: str) -> Any:
        return self.server.objects[kind, "ns", name].raw

    async def put(self, kind: str, name: str, **content: Any) -> None:
        group, _, plural = kind.rpartition("/")
        body = {"apiVersion": group, "kind": KINDS[kind], **content}
        body["metadata"] = {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            **content.get("metadata", {}),
        }
        path = f"/{'apis' if '/' in group else 'api'}/{group}/namespaces/ns/{plural}"
        async with self.server.clients[0].post(path, json=body) as answer:
            assert answer.status < 300, await answer.text()

    async def pod_is(self, name: str, phase: str, **status: Any) -> None:
        body = {"status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z", **status}}
        async with self.server.clients[0].patch(
            f"/api/v1/namespaces/ns/pods/{name}/status", json=body
        ) as done:
            assert done.status < 300, await done.text()

    async def remove_pod(self, name: str) -> None:
        async with self.server.clients[0].delete(f"/api/v1/namespaces/ns/pods/{name}") as answer:
            assert answer.status < 300, await answer.text()

    async def kubectl(self, *words: str) -> str:
        environment = {**os.environ, "KUBECONFIG": str(self.config)}
        argv = ["kubectl", "--cache-dir", str(self.config.parent / "cache"), *words]
        done = await asyncio.to_thread(
            subprocess.run, argv, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def said(self, name: str, result: str, error: str = "") -> None:
        line = json.dumps({"result": result, "error": error})
        log = f"tool call: my_new_tool\n2026-01-01 result: {line}\n"
        self.server[f"get /api/v1/namespaces/ns/pods/{name}/log"] << log.encode()

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.raw(RUNS, name).get("status", {})
        return found

    async def reaches(self, name: str, phase: str) -> dict[str, Any]:
        await until(lambda: self.status(name).get("phase") == phase, f"{name} {phase}")
        return self.status(name)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Emulator() as server, kmock.Server(server):
        for name, kind in KINDS.items():
            info = kmock.ResourceInfo(
                namespaced=kind not in ("Namespace", "CustomResourceDefinition"),
                kind=kind,
                singular=kind.lower(),
            )
            info.verbs, info.subresources = set(VERBS), {"status"}
            server.resources[name] = info
        yield World(server, tmp_path)


async def test_the_run_of_the_guide_gets_a_pod_and_its_result(world: World) -> None:
    async with world.operated():
        await world.put(INSTANCES, "my-instance", spec={"skills": [{"name": "code-review"}]})
        await world.put(RUNS, "test-tool", spec=GUIDE)
        await until(lambda: world.status("test-tool").get("podName") == "test-tool-agent", "the pod's name")
        await until(lambda: world.has(PODS, "test-tool-agent"), "the pod")
        pod = world.raw(PODS, "test-tool-agent")
        assert world.has(POLICIES, "test-tool-agent")
        assert [one["name"] for one in pod["spec"]["containers"]] == ["agent"]
        assert pod["metadata"]["labels"][RUN_LABEL] == "test-tool"
        assert world.status("test-tool")["phase"] == "Pending"
        waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
        await world.pod_is(
            "test-tool-agent", "Pending", containerStatuses=[{"name": "agent", "state": waiting}]
        )
        await until(lambda: "ErrImagePull" in world.status("test-tool").get("message", ""), "the reason")
        await world.pod_is("test-tool-agent", "Running", containerStatuses=[{"name": "agent", "state": {}}])
        await world.reaches("test-tool", "Running")
        world.said("test-tool-agent", "It says hello.")
        ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:01:00Z"}}
        await world.pod_is(
            "test-tool-agent", "Succeeded", containerStatuses=[{"name": "agent", "state": ended}]
        )
        status = await world.reaches("test-tool", "Succeeded")
        assert status["result"] == "It says hello."
        assert (status["startedAt"], status["completedAt"]) == (
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:01:00Z",
        )
        assert world.raw(INSTANCES, "my-instance")["status"]["phase"] == "Ready"


async def test_kubectl_applies_the_run_of_the_guide_and_shows_its_result(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    monkeypatch.setenv("KUBECONFIG", str(world.config))
    memo = kopf.Memo(cluster=Cluster(kopf.OperatorSettings()), platform=Platform("toolcrib:1"))
    kopf_calls: Any = handlers  # with fewer arguments here
    await world.put(INSTANCES, "my-instance", spec={})
    run = {"apiVersion": "sympozium.ai/v1alpha1", "kind": "AgentRun", "metadata": {"name": "test-tool"}}
    (tmp_path / "run.yaml").write_text(json.dumps({**run, "spec": GUIDE}))
    try:
        for done in ("created", "unchanged"):
            applied = await world.kubectl("apply", "-f", str(tmp_path / "run.yaml"))
            assert applied == f"agentrun.sympozium.ai/test-tool {done}\n"
            await kopf_calls.reconcile(body=kopf.Body(world.raw(RUNS, "test-tool")), memo=memo)
        world.said("test-tool-agent", "It says hello.")
        await world.pod_is("test-tool-agent", "Succeeded")
        pod = world.raw(PODS, "test-tool-agent")
        await kopf_calls.pod_changed(
            event={"type": "MODIFIED", "object": pod}, body=kopf.Body(pod), memo=memo
        )
    finally:
        await memo.cluster.aclose()
    result = await world.kubectl("get", "agentrun", "test-tool", "-o", "jsonpath={.status.result}")
    assert result == "It says hello."
    log = await world.kubectl("logs", "test-tool-agent", "-c", "agent")
    assert log.splitlines()[0] == "tool call: my_new_tool"


async def test_a_run_waits_for_its_instance_and_an_operator_that_starts_again_changes_nothing(
    world: World,
) -> None:
    async with world.operated():
        await world.put(RUNS, "early", spec=GUIDE)
        await until(lambda: "no SympoziumInstance" in world.status("early").get("message", ""), "the reason")
        assert not world.has(PODS, "early-agent")
    await world.put(INSTANCES, "my-instance", spec={})
    async with world.operated():
        await until(lambda: world.has(PODS, "early-agent"), "the pod")
        await world.pod_is("early-agent", "Running")
        await world.put(RUNS, "late", spec=GUIDE)
        await until(lambda: world.has(PODS, "late-agent"), "the pod")
        await world.pod_is("late-agent", "Running")
        await world.reaches("early", "Running")
        await world.reaches("late", "Running")
    # While no operator is there one pod ends, and the other is deleted.
    await world.remove_pod("late-agent")
    world.said("early-agent", "", "the model refused")
    await world.pod_is("early-agent", "Succeeded")
    pod = world.raw(PODS, "early-agent")["metadata"]["uid"]
    async with world.operated():
        status = await world.reaches("early", "Failed")
        assert status["message"] == "the model refused"
        assert world.raw(PODS, "early-agent")["metadata"]["uid"] == pod
        assert "deleted" in (await world.reaches("late", "Failed"))["message"]
        assert not world.has(PODS, "late-agent")


async def test_a_pod_that_is_deleted_or_too_slow_or_of_somebody_else_ends_its_run(world: World) -> None:
    await world.put(INSTANCES, "my-instance", spec={})
    await world.put(PODS, "taken-agent", metadata={"labels": {}}, spec={"containers": []})
    async with world.operated():
        for name in ("gone", "slow", "taken"):
            await world.put(RUNS, name, spec={**GUIDE, "cleanup": "delete"})
        status = await world.reaches("taken", "Failed")
        assert "belongs to something else" in status["message"]
        await until(lambda: world.has(PODS, "gone-agent") and world.has(PODS, "slow-agent"), "the pods")
        await world.pod_is("gone-agent", "Running")
        await world.reaches("gone", "Running")
        await world.remove_pod("gone-agent")
        status = await world.reaches("gone", "Failed")
        assert "deleted" in status["message"]
        world.said("slow-agent", "")
        await world.pod_is("slow-agent", "Failed", reason="DeadlineExceeded")
        status = await world.reaches("slow", "Failed")
        assert "timeoutSeconds" in status["message"]
        await until(lambda: not world.has(PODS, "slow-agent"), "the end of the pod")
        assert world.has(PODS, "taken-agent")


async def test_a_run_gets_one_pod_however_old_the_body_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(world.config))
    cluster = Cluster(kopf.OperatorSettings())
    memo = kopf.Memo(cluster=cluster, platform=Platform("toolcrib:1"))
    kopf_calls: Any = handlers  # with fewer arguments here
    await world.put(INSTANCES, "my-instance", spec={})
    await world.put(RUNS, "once", spec=GUIDE)
    old = copy.deepcopy(world.raw(RUNS, "once"))

    async def again() -> dict[str, Any]:
        await kopf_calls.reconcile(body=kopf.Body(old), memo=memo)
        return world.status("once")

    async def seen(kind: str) -> None:
        pod = world.server.objects[PODS, "ns", "once-agent"].last.raw
        await kopf_calls.pod_changed(event={"type": kind, "object": pod}, body=kopf.Body(pod), memo=memo)

    try:
        assert (await again())["phase"] == "Pending"
        pod = world.server.objects[PODS, "ns", "once-agent"]
        uid = pod.raw["metadata"]["uid"]
        await again()
        assert pod.raw["metadata"]["uid"] == uid
        await world.pod_is("once-agent", "Running")
        await seen("MODIFIED")
        assert (await again())["phase"] == "Running"
        with pytest.raises(kopf.TemporaryError, match="409"):
            await cluster.set_status(old, {"phase": "Pending"})
        await world.remove_pod("once-agent")
        # The watch of runs begins anew.
        run = kopf.Body(world.raw(RUNS, "once"))
        await kopf_calls.run_seen(event={"type": None, "object": run}, body=run, memo=memo)
        status = world.status("once")
        assert (status["phase"], pod.deleted) == ("Failed", True)
        assert "deleted" in status["message"]
        await seen("DELETED")
        assert await again() == status
    finally:
        await cluster.aclose()
