"""What the doctor is told."""

from __future__ import annotations

from toolcrib.sandbox import level, probe

USED = {
    "user namespace", "mount namespace", "pid namespace", "net namespace", "ipc namespace", "uts namespace",
    "cgroup namespace", "no_new_privs", "mount_setattr", "openat2", "memfd_create", "prlimit64", "landlock",
    "seccomp", "all together",
}  # fmt: skip


def test_every_mechanism_is_reported_and_what_it_costs_to_miss_it() -> None:
    found = {mechanism.name: mechanism for mechanism in probe()}
    assert set(found) == USED | {"cgroup", "level landlock", "network by proxy", "pidfd_send_signal"}
    assert all(mechanism.detail for mechanism in found.values())
    assert all(mechanism.cost for mechanism in found.values() if mechanism.required and not mechanism.ok)


def test_the_level_follows_from_what_works() -> None:
    found = {mechanism.name: mechanism for mechanism in probe()}
    report = level()
    if any(mechanism.required and not mechanism.ok for mechanism in found.values()):
        assert report["level"] in ("landlock", "none")
        return
    held = found["cgroup"].ok
    assert report["level"] == ("full+cgroup" if held else "full")
    assert ("cgroup" in report.get("missing", ())) is not held
    assert (report["limits"]["memory"] == "not enforced") is not held


def test_probing_is_done_once() -> None:
    assert probe() is probe()
