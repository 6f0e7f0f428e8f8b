"""The kustomize base: what it deploys fits together and fits the commands of this package."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from toolcrib.cli.group import COMMANDS, toolcrib
from toolcrib.schema import SchemaCheck

BASE = Path(__file__).parents[3] / "deploy" / "base"
TESTS = Path(__file__).parents[2]
KUBERNETES = json.loads((TESTS / "data" / "kubernetes.json").read_text())
"""Kubernetes' own schema of every kind that is used here."""


def resources() -> Iterator[dict[str, Any]]:
    """Return the resources of every file that the base names, with aliases resolved."""
    yaml = YAML(typ="safe", pure=True)
    for name in yaml.load(BASE / "kustomization.yaml")["resources"]:
        for one in yaml.load_all(BASE / name):
            yield from one["items"] if one["kind"] == "List" else [one]


def workloads() -> Iterator[tuple[str, dict[str, Any]]]:
    for one in resources():
        if one["kind"] in ("Deployment", "StatefulSet"):
            yield one["metadata"]["name"], one["spec"]["template"]


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, template in workloads():
        for one in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
            yield name, one


def misfits(one: dict[str, Any]) -> list[str]:
    name = KUBERNETES["kinds"][f"{one['apiVersion']}/{one['kind']}"]
    check = SchemaCheck({"$ref": f"#/$defs/{name}", "$defs": KUBERNETES["$defs"]})
    return [f"{found.path} {found.message}" for found in check.violations(one)]


def test_kubernetes_accepts_the_base_and_the_pods_of_runs() -> None:
    made = [one for file in (TESTS / "golden" / "pods").iterdir() for one in json.loads(file.read_text())]
    for one in (*resources(), *made):
        assert misfits(one) == [], (one["kind"], one["metadata"]["name"])
    *_, pod = made
    pod["spec"]["containers"][0]["restartPolicies"] = "Always"
    pod["spec"]["initContainers"][0]["resources"]["limits"]["cpu"] = True
    wrong = misfits(pod)
    assert len(wrong) == 2
    assert "restartPolicies" in "".join(wrong)


def test_the_overlay_of_the_docs_renders(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    page = (BASE.parents[1] / "docs" / "kubernetes.md").read_text()
    overlay = page.partition("```text\n# overlay/kustomization.yaml\n")[2].partition("```")[0]
    shutil.copytree(BASE, tmp_path / "deploy" / "base")
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "kustomization.yaml").write_text(overlay)
    (tmp_path / "overlay" / "grants-key").write_bytes(bytes(range(32)))
    argv = ["kubectl", "kustomize", str(tmp_path / "overlay")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = list(YAML(typ="safe").load_all(done.stdout))
    for one in made:
        assert misfits(one) == [], (one["kind"], one["metadata"]["name"])
    secrets = {one["metadata"]["name"] for one in made if one["kind"] == "Secret"}
    assert {"nats-login", "database", "grants-key", "project", "telegram"} <= secrets
    assert "image: registry.example.com/toolcrib:1" in done.stdout
    assert "image: toolcrib\n" not in done.stdout


def test_every_file_is_part_of_the_base() -> None:
    listed = YAML(typ="safe").load(BASE / "kustomization.yaml")["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(one.name for one in BASE.iterdir())


def test_containers_run_commands_that_exist_with_options_that_they_have() -> None:
    ours = [one for _, one in containers() if one["image"] == "toolcrib"]
    assert {one["args"][0] for one in ours} == {"operator", "trust", "serve", "worker", "bridge", "channel"}
    for one in ours:
        name, *words = one["args"]
        assert name in COMMANDS
        words = [word.replace("$(LOCK_SHA256)", "0" * 64) for word in words]
        with click.Context(toolcrib) as above:
            command = toolcrib.get_command(above, name)
            assert command is not None
            # Parsed without running it: an unknown option or a missing word raises.
            command.parse_args(click.Context(command, parent=above, resilient_parsing=False), list(words))


def test_no_container_has_more_rights_than_it_needs() -> None:
    for name, one in containers():
        assert one["securityContext"]["allowPrivilegeEscalation"] is False, name
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
    for name, template in workloads():
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True, name
        uses_api = template["spec"].get("automountServiceAccountToken", True)
        assert uses_api is (name == "toolcrib-operator"), name


def test_mounts_have_volumes_and_selectors_their_labels() -> None:
    for one in resources():
        if one["kind"] not in ("Deployment", "StatefulSet"):
            continue
        template = one["spec"]["template"]
        known = {volume["name"] for volume in template["spec"].get("volumes", ())}
        known |= {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())}
        for part in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
            assert {mount["name"] for mount in part.get("volumeMounts", ())} <= known
        assert one["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_the_operator_may_read_what_it_watches(verb: str) -> None:
    (role,) = (one for one in resources() if one["kind"] == "Role")
    granted = {name for rule in role["rules"] if verb in rule["verbs"] for name in rule["resources"]}
    assert {"agentruns", "sympoziuminstances", "pods"} <= granted
    assert "secrets" not in json.dumps(role)
