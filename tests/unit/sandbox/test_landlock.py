"""Which rights each version of Landlock is told of."""

from __future__ import annotations

import ctypes
import errno
import itertools
import re
from pathlib import Path

import pytest

from tests.conftest import need
from toolcrib.sandbox.kernel import landlock

HEADER = Path("/usr/include/linux/landlock.h")
BOTH = landlock.BIND_TCP | landlock.CONNECT_TCP
# Of the report for each version, when everything is asked for.
MISSING = {
    1: {"truncate", "bind", "connect", "ioctl_dev", "abstract_unix", "signal"},
    2: {"truncate", "bind", "connect", "ioctl_dev", "abstract_unix", "signal"},
    3: {"bind", "connect", "ioctl_dev", "abstract_unix", "signal"},
    4: {"ioctl_dev", "abstract_unix", "signal"},
    5: {"abstract_unix", "signal"},
    6: set(),
    7: set(),
    8: set(),
}
# linux/landlock.h: the rights over files that each version knows.
KNOWN_FILES = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF, 6: 0xFFFF, 7: 0xFFFF, 8: 0xFFFF}


@pytest.mark.parametrize("version", MISSING)
def test_what_is_missing_is_named(version: int) -> None:
    attr, missing = landlock.rights_handled(version, BOTH, scope=True)
    assert set(missing) == MISSING[version]
    assert attr.files == KNOWN_FILES[version]
    assert attr.net == (BOTH if version >= 4 else 0)
    assert attr.scoped == (3 if version >= 6 else 0)


def test_only_what_was_asked_for_is_held_or_missing() -> None:
    attr, missing = landlock.rights_handled(3, 0, scope=False)
    assert (attr.net, attr.scoped, missing) == (0, 0, ["ioctl_dev"])
    attr, missing = landlock.rights_handled(7, landlock.CONNECT_TCP, scope=False)
    assert (attr.net, attr.scoped, missing) == (landlock.CONNECT_TCP, 0, [])


def test_no_grant_lets_devices_be_made() -> None:
    forbidden = landlock.MAKE_CHAR | landlock.MAKE_BLOCK
    assert not landlock.WRITING & forbidden
    assert not landlock.WRITING & landlock.EXECUTE
    assert landlock.WRITING | forbidden | landlock.EXECUTE | landlock.IOCTL_DEV == KNOWN_FILES[7]


def test_structures_are_the_kernels() -> None:
    assert ctypes.sizeof(landlock.RulesetAttr) == 24
    assert ctypes.sizeof(landlock.PathBeneathAttr) == 12
    assert ctypes.sizeof(landlock.NetPortAttr) == 16


def test_rights_are_those_of_the_kernel_header() -> None:
    need("kernel headers", HEADER.exists())
    found = dict(re.findall(r"#define LANDLOCK_ACCESS_FS_(\w+)\s+\(1ULL << (\d+)\)", HEADER.read_text()))
    assert found
    for name, bit in found.items():
        assert getattr(landlock, name, 1 << int(bit)) == 1 << int(bit), name


def test_without_landlock_nothing_is_pretended() -> None:
    with pytest.raises(OSError, match="landlock") as caught:
        landlock.Ruleset(read=["/"], version=0)
    assert caught.value.errno == errno.ENOSYS


def test_features_are_in_order_and_named_once() -> None:
    names = [name for name, *_ in landlock.FEATURES]
    assert len(set(names)) == len(names)
    assert all(a[1] <= b[1] for a, b in itertools.pairwise(landlock.FEATURES))
