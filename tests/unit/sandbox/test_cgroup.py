"""Where groups are looked for, in which order limits are written, whose groups are whose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcrib.sandbox.kernel import cgroup, hierarchy

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


def test_the_group_of_each_hierarchy_is_found() -> None:
    root = "/sys/fs/cgroup"
    cases = [
        (V1, V1_MEMBER, [(1, f"{root}/memory/b/c", ("memory",)), (1, f"{root}/pids/a", ("pids",))]),
        (V2, "0::/user.slice/s\n", [(2, f"{root}/user.slice/s", ("memory", "pids"))]),
        (V2, "0::/\n", [(2, root, ("memory", "pids"))]),
        (
            MIXED,
            "3:pids,freezer:/p\n0::/m\n",
            [(1, f"{root}/pids,freezer/p", ("pids",)), (2, f"{root}/unified/m", ("memory",))],
        ),
        ("", "0::/\n", []),
    ]
    for mountinfo, member, expected in cases:
        assert hierarchy.candidates(mountinfo, member) == expected


def test_a_container_may_see_only_its_own_part() -> None:
    cases = [
        ("/", "/a/b", "/sys/c g/a/b"),
        ("/docker/1", "/docker/1", "/sys/c g"),
        ("/docker/1", "/docker/1/a", "/sys/c g/a"),
        ("/docker/1", "/docker/12", None),
        ("/docker/1", "/", None),
    ]
    for root, path, folder in cases:
        mountinfo = f"30 23 0:26 {root} /sys/c\\040g rw - cgroup2 none rw\n"
        found = hierarchy.candidates(mountinfo, f"0::{path}\n")
        assert [group.folder for group in found] == ([] if folder is None else [folder])


def test_memory_alone_is_never_limited_above_memory_with_swap() -> None:
    alone, both = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
    assert cgroup.memory_writes(1, 99, swap=True) == [(both, "-1"), (alone, "99"), (both, "99")]
    assert cgroup.memory_writes(1, 99, swap=False) == [(alone, "99")]
    assert cgroup.memory_writes(2, 99, swap=False) == [("memory.max", "99")]


def test_counters() -> None:
    text = "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"
    assert cgroup.counter(text, "oom_kill") == 2
    assert cgroup.counter(text, "absent") == 0


def test_only_groups_of_dead_servers_are_removed(tmp_path: Path) -> None:
    parent = hierarchy.ParentGroup(1, str(tmp_path), hierarchy.CONTROLLERS)
    living, lock = hierarchy.make_own_group(parent)
    dead, dead_lock = hierarchy.make_own_group(parent)
    os.close(dead_lock)
    for name in ("toolcrib", "toolcrib-home", "docker"):
        (tmp_path / name).mkdir()
    for folder in tmp_path.iterdir():
        (folder / "cgroup.procs").touch()
    (Path(dead.folder) / "cgroup.procs").unlink()
    # Without the kernel's files a group looks gone to us.
    newest, newest_lock = hierarchy.make_own_group(parent)
    assert Path(living.folder).exists()
    assert Path(newest.folder).exists()
    assert (tmp_path / "docker/cgroup.procs").exists()
    for one in (lock, newest_lock):
        os.close(one)


def test_descendants() -> None:
    assert hierarchy.is_descendant(os.getpid())
    assert not hierarchy.is_descendant(os.getppid())
    assert not hierarchy.is_descendant(0)


def test_files_are_never_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hierarchy.write("1", str(tmp_path), "memory.max")
    assert not list(tmp_path.iterdir())
