"""What the doctor is told."""

from __future__ import annotations

from toolcrib.sandbox import level, probe

USED = {
    "user namespace", "mount namespace", "pid namespace", "net namespace", "ipc namespace", "uts namespace",
    "cgroup namespace", "no_new_privs", "mount_setattr", "openat2", "all together",
}  # fmt: skip
LATER = {"landlock", "seccomp", "cgroup"}


def test_every_mechanism_is_reported_and_what_it_costs_to_miss_it() -> None:
    found = {mechanism.name: mechanism for mechanism in probe()}
    assert set(found) == USED | LATER
    assert all(mechanism.detail for mechanism in found.values())
    assert all(mechanism.cost for mechanism in found.values() if mechanism.required and not mechanism.ok)


def test_what_is_not_used_yet_is_never_claimed() -> None:
    later = [mechanism for mechanism in probe() if mechanism.name in LATER]
    assert not any(mechanism.required for mechanism in later)
    assert all("not used yet" in mechanism.detail for mechanism in later if mechanism.ok)
    report = level()
    assert report["level"] in ("namespaces", "none")
    if report["level"] == "namespaces":
        assert set(report["missing"]) == LATER


def test_probing_is_done_once() -> None:
    assert probe() is probe()
