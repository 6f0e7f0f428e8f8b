"""What level `landlock` refuses, found before anything is started."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.grants import plan
from toolcrib.sandbox.files.paths import Paths
from toolcrib.sandbox.host.order import new_order
from toolcrib.sandbox.levels.choice import chosen, refused_at_landlock
from toolcrib.spec import LEVELS, Level


def job(**fields: Any) -> Confinement:
    return Confinement(argv=("true",), cwd="/", **fields)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path))
    for folder in ("src/deep", "data", ".toolcrib/tools/one"):
        (root / folder).mkdir(parents=True)
    (root / ".env").touch()
    (root / "data/link").symlink_to("../src")
    return root


@pytest.mark.parametrize("network", ["none", "host"])
def test_no_network_and_that_of_the_machine_can_be_held(network: str) -> None:
    asked = job(network=network)
    assert refused_at_landlock(asked, plan(asked)) is None


def test_hosts_cannot(project: Path) -> None:
    asked = job(network="proxy")
    refusal = refused_at_landlock(asked, plan(asked))
    assert refusal is not None
    assert refusal.details["mechanism"] == "net namespace"
    assert refusal.code == "sandbox_unavailable"


def test_grants_beside_what_is_protected_can_be_held(project: Path) -> None:
    asked = job(
        read=(str(project / "src"), str(project / ".toolcrib/tools/one")),
        write=(str(project / "data"), str(project / "src/deep")),
        protect=(str(project / ".toolcrib"),),
        hide=(str(project / ".env"),),
    )
    assert refused_at_landlock(asked, plan(asked)) is None


def test_what_is_not_there_is_no_reason(project: Path) -> None:
    asked = job(read=(str(project),), hide=(str(project / "none"),), protect=(str(project / "gone"),))
    assert refused_at_landlock(asked, plan(asked)) is None


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ({"read": ["."], "hide": [".env"]}, ".env"),
        ({"write": ["."], "protect": [".toolcrib"]}, ".toolcrib"),
        ({"write": ["."], "read": ["src"]}, "src"),
        ({"write": ["."], "read": ["src"], "scratch": ["src/deep"]}, "src"),
        ({"write": ["data"], "protect": ["data/link"]}, "data/link"),
        ({"write": ["data"], "hide": ["data/link"]}, "data/link"),
    ],
)
def test_what_lies_inside_and_must_be_less_is_named(
    project: Path, rules: dict[str, list[str]], path: str
) -> None:
    places = {kind: tuple(os.path.normpath(project / p) for p in paths) for kind, paths in rules.items()}
    asked = job(**places)
    refusal = refused_at_landlock(asked, plan(asked))
    assert refusal is not None
    assert refusal.details["mechanism"] == "mount namespace"
    assert refusal.details["path"] == str(project / path)


def test_full_is_not_asked_about() -> None:
    assert asyncio.run(chosen(job())) == "full"


@pytest.mark.parametrize("level", LEVELS)
def test_no_command_may_raise_its_priority_where_its_user_may(level: Level) -> None:
    limits = new_order(job(), level, Paths()).sandbox.job["limits"]
    assert {(resource.RLIMIT_NICE, 0), (resource.RLIMIT_RTPRIO, 0)} <= set(limits)
