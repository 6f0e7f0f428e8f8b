"""Where groups are looked for, in which order limits are written, whose groups are whose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcrib.sandbox.kernel import cgroup, hierarchy
from toolcrib.sandbox.kernel.hierarchy import Parent

V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V1_MEMBER = "9:name=systemd:/x\n8:pids:/a\n4:memory:/b/c\n0::/d\n"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
MIXED = """\
30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 31 0:32 / /sys/fs/cgroup/pids,freezer rw - cgroup cgroup rw,pids,freezer
"""


@pytest.mark.parametrize(
    ("mountinfo", "member", "expected"),
    [
        (
            V1,
            V1_MEMBER,
            [
                Parent(1, "/sys/fs/cgroup/memory/b/c", ("memory",)),
                Parent(1, "/sys/fs/cgroup/pids/a", ("pids",)),
            ],
        ),
        (V2, "0::/user.slice/s\n", [Parent(2, "/sys/fs/cgroup/user.slice/s", ("memory", "pids"))]),
        (V2, "0::/\n", [Parent(2, "/sys/fs/cgroup", ("memory", "pids"))]),
        (
            MIXED,
            "3:pids,freezer:/p\n0::/m\n",
            [
                Parent(1, "/sys/fs/cgroup/pids,freezer/p", ("pids",)),
                Parent(2, "/sys/fs/cgroup/unified/m", ("memory",)),
            ],
        ),
        ("", "0::/\n", []),
    ],
    ids=["v1", "v2", "v2 root", "one of each", "none"],
)
def test_places(mountinfo: str, member: str, expected: list[Parent]) -> None:
    assert list(hierarchy.candidates(mountinfo, member)) == expected


@pytest.mark.parametrize(
    ("root", "path", "folder"),
    [
        ("/", "/a/b", "/sys/cg/a/b"),
        ("/docker/1", "/docker/1", "/sys/cg"),
        ("/docker/1", "/docker/1/a", "/sys/cg/a"),
        ("/docker/1", "/docker/12", None),
        ("/docker/1", "/", None),
    ],
)
def test_a_container_may_see_only_its_own_part(root: str, path: str, folder: str | None) -> None:
    assert hierarchy.folder_of(hierarchy.Mounted(1, "/sys/cg", root, frozenset()), path) == folder


def test_mount_points_with_blanks() -> None:
    line = "30 23 0:26 / /mnt/c\\040g rw - cgroup2 none rw\n"
    assert [mounted.point for mounted in hierarchy.hierarchies(line)] == ["/mnt/c g"]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("limit", "before", "files"),
    [
        (MIB, None, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
        (MIB, 2 * MIB, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
        (2 * MIB, MIB, ["memory.memsw.limit_in_bytes", "memory.limit_in_bytes"]),
        (None, MIB, ["memory.memsw.limit_in_bytes", "memory.limit_in_bytes"]),
    ],
)
def test_memory_alone_is_never_above_memory_with_swap(
    limit: int | None, before: int | None, files: list[str]
) -> None:
    writes = cgroup.memory_limit(1, limit, before, swap=True)
    assert [file for file, _ in writes] == files
    assert {text for _, text in writes} == {"-1" if limit is None else str(limit)}


def test_memory_limit_without_swap_and_on_v2() -> None:
    assert cgroup.memory_limit(1, MIB, None, swap=False) == [("memory.limit_in_bytes", str(MIB))]
    assert cgroup.memory_limit(2, MIB, None, swap=False) == [("memory.max", str(MIB))]
    assert cgroup.memory_limit(2, None, MIB, swap=True) == [("memory.max", "max")]


def test_counters() -> None:
    text = "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"
    assert cgroup.counter(text, "oom_kill") == 2
    assert cgroup.counter(text, "absent") == 0


def test_our_own_name_says_that_we_live() -> None:
    name = hierarchy.name_of_ours()
    assert hierarchy.OURS.fullmatch(name)
    for variant in (name, f"{name}.1", f"{name}-home"):
        assert hierarchy.OURS.fullmatch(variant)
        assert hierarchy.alive(variant)


def test_who_is_dead_and_who_only_may_be() -> None:
    namespace, pid, start = hierarchy.identity()
    assert not hierarchy.alive(f"toolcrib-{namespace}-{pid}-{start + 1}")  # the number was given again
    assert not hierarchy.alive(f"toolcrib-{namespace}-4194999-{start}")
    assert hierarchy.alive(f"toolcrib-{namespace + 1}-{pid}-{start + 1}")  # another namespace's numbers
    for foreign in ("docker", "toolcrib", "toolcrib-1-2", f"toolcrib-{namespace}-4194999-{start}-x"):
        assert hierarchy.alive(foreign)


def test_only_dead_servers_groups_are_swept(tmp_path: Path) -> None:
    namespace, pid, start = hierarchy.identity()
    dead = f"toolcrib-{namespace}-4194999-1"
    for name in (
        dead,
        f"{dead}.2",
        f"{dead}-home",
        f"toolcrib-{namespace}-{pid}-{start}",
        "toolcrib",
        "docker",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    for folder in tmp_path.iterdir():
        (folder / "cgroup.procs").unlink()
    # Without the kernel's files a group looks gone; what is not ours is not even looked at.
    hierarchy.sweep(str(tmp_path))
    left = {folder.name for folder in tmp_path.iterdir()}
    assert left >= {f"toolcrib-{namespace}-{pid}-{start}", "toolcrib", "docker"}


def test_processes_of_ours() -> None:
    assert hierarchy.is_ours(os.getpid())
    assert not hierarchy.is_ours(os.getppid())
    assert not hierarchy.is_ours(0)


def test_files_are_never_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hierarchy.write("1", str(tmp_path), "memory.max")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_used_is_a_reason(tmp_path: Path) -> None:
    pool, reason = cgroup.open_pool(str(tmp_path))
    assert pool is None
    assert reason.startswith(f"no writable cgroup: {tmp_path}: No such file")
