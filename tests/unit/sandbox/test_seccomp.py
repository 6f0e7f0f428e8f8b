"""The filter's verdicts, by an interpreter of BPF, for both architectures."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.sandbox.kernel import bpf, seccomp, syscalls

ALLOW, KILL = "allow", "kill"
X32_BIT = 0x40000000  # set in the number of a call from the x32 interface of x86_64
ARCHITECTURES = syscalls.ARCHITECTURES
VARIANTS: tuple[dict[str, bool], ...] = tuple(
    {"inet": inet, "host": host, "private": private}
    for inet, host in ((False, False), (True, False), (False, True))
    for private in (True, False)
)
CLOSED = {"inet": False}
AT_FDCWD = -100
NEWUSER, NEWNS, THREAD_FLAGS = 0x10000000, 0x20000, 0x3D0F00
O_CREAT, O_EXCL, O_TMPFILE, O_RDONLY = 0o100, 0o200, 0o20200000, 0
TCGETS, TIOCSTI, TIOCLINUX, FIONBIO = 0x5401, 0x5412, 0x541C, 0x5421
MPTCP, SCTP, IGNORED_HALF = 262, 132, 0xDEADBEEF << 32


def decode(program: bytes) -> list[tuple[int, int, int, int]]:
    assert len(program) % 8 == 0
    return list(struct.iter_unpack("=HBBI", program))


def interpret(program: bytes, number: int, arch: int, *args: int) -> int:
    """Run a classic BPF program over one call and give what it returns."""
    data = struct.pack(
        "<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *(a & (2**64 - 1) for a in [*args, *[0] * 6][:6])
    )
    accumulator, position = 0, 0
    code = decode(program)
    while True:
        opcode, true, false, value = code[position]
        position += 1
        match opcode:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x05:
                position += value
            case 0x15:
                position += true if accumulator == value else false
            case 0x35:
                position += true if accumulator >= value else false
            case 0x45:
                position += true if accumulator & value else false
            case 0x06:
                return value
            case _:
                pytest.fail(f"unknown instruction {opcode:#x}")


def verdict(variant: Mapping[str, Any], arch: str, number: int, *args: int) -> str | int:
    """`allow`, `kill` or the errno."""
    program = seccomp.program(arch, **variant)
    return meaning(interpret(program, number, syscalls.AUDIT_ARCH[arch], *args))


def meaning(value: int) -> str | int:
    action, number = value & 0xFFFF0000, value & 0xFFFF
    if action == 0x00050000:
        return number
    return {0x7FFF0000: ALLOW, 0x80000000: KILL}[value]


def named(variant: Mapping[str, Any], name: str, *args: int) -> Iterator[str | int]:
    """The verdict on each architecture that has the call."""
    for arch in ARCHITECTURES:
        number = syscalls.numbers(arch).get(name)
        if number is not None:
            yield verdict(variant, arch, number, *args)


def test_every_rule_names_a_known_call_and_every_number_is_used() -> None:
    fixed = [name for _, names in seccomp.ALWAYS for name in names.split()]
    shared = " ".join((*(names for _, names in seccomp.SHARED), seccomp.MODES)).split()
    narrower = [name for name in shared if name not in seccomp.checked()]
    used = [*fixed, *seccomp.checked(), *seccomp.shared(), *narrower, "socket"]
    assert len(set(used)) == len(used)
    assert set(used) == set(syscalls.NUMBERS)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_each_number_has_the_verdict_of_the_tables(arch: str, variant: dict[str, bool]) -> None:
    numbers = syscalls.numbers(arch)
    modes = (errno.EPERM, seccomp.MODES)
    tables = seccomp.ALWAYS if variant["private"] else (*seccomp.ALWAYS, *seccomp.SHARED, modes)
    expected = {numbers[name]: code for code, names in tables for name in names.split() if name in numbers}
    arguments_decide = {"socket", *seccomp.checked()}
    if not variant["private"]:
        arguments_decide = (arguments_decide | {*seccomp.shared()}) - {*seccomp.MODES.split()}
    skip = {numbers[name] for name in arguments_decide if name in numbers}
    program = seccomp.program(arch, **variant)
    for number in range(syscalls.LAST + 1):
        if number not in skip:
            answer = meaning(interpret(program, number, syscalls.AUDIT_ARCH[arch], *[1] * 6))
            assert answer == expected.get(number, ALLOW), number


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_another_architecture_is_killed(arch: str) -> None:
    program = seccomp.program(arch, inet=False)
    i386, arm = 0x40000003, 0x40000028
    for other in (i386, arm, *(value for key, value in syscalls.AUDIT_ARCH.items() if key != arch)):
        assert meaning(interpret(program, 0, other)) == KILL


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_unknown_and_x32_calls_are_not_there(arch: str) -> None:
    for number in (syscalls.LAST + 1, 1000, X32_BIT, X32_BIT | 39, -1):
        assert verdict(CLOSED, arch, number) == errno.ENOSYS, number


CASES: list[tuple[str, tuple[int, ...], str | int]] = [
    ("clone", (THREAD_FLAGS,), ALLOW),
    ("clone", (17,), ALLOW),
    ("clone", (17 | NEWUSER,), errno.EPERM),
    ("clone", (17 | NEWNS | IGNORED_HALF,), errno.EPERM),
    ("unshare", (0x400,), ALLOW),
    ("unshare", (0x80,), errno.EPERM),
    ("unshare", (NEWUSER,), errno.EPERM),
    ("chmod", (1, 0o755), ALLOW),
    ("chmod", (1, 0o1777), ALLOW),
    ("chmod", (1, 0o4755), errno.EPERM),
    ("chmod", (1, 0o2755), errno.EPERM),
    ("fchmod", (1, 0o644), ALLOW),
    ("fchmod", (1, 0o6000), errno.EPERM),
    ("fchmodat", (AT_FDCWD, 1, 0o644), ALLOW),
    ("fchmodat", (AT_FDCWD, 1, 0o4000 | IGNORED_HALF), errno.EPERM),
    ("creat", (1, 0o666), ALLOW),
    ("creat", (1, 0o4777), errno.EPERM),
    ("open", (1, O_CREAT, 0o666), ALLOW),
    ("open", (1, O_CREAT, 0o4777), errno.EPERM),
    ("open", (1, O_RDONLY, 0o4777), ALLOW),  # nothing is made, so what stands there means nothing
    ("openat", (AT_FDCWD, 1, O_CREAT | O_EXCL, 0o600), ALLOW),
    ("openat", (AT_FDCWD, 1, O_CREAT | O_EXCL, 0o2600), errno.EPERM),
    ("openat", (AT_FDCWD, 1, O_TMPFILE, 0o4700), errno.EPERM),
    ("openat", (AT_FDCWD, 1, 0o200000, 0o4700), ALLOW),
    ("mknod", (1, 0o010644, 0), ALLOW),
    ("mknod", (1, 0o100644, 0), ALLOW),
    ("mknod", (1, 0o140644, 0), ALLOW),
    ("mknod", (1, 0o644, 0), ALLOW),
    ("mknod", (1, 0o020666, 0x103), errno.EPERM),
    ("mknod", (1, 0o060666, 0x103), errno.EPERM),
    ("mknod", (1, 0o104755, 0), errno.EPERM),
    ("mknodat", (AT_FDCWD, 1, 0o010644, 0), ALLOW),
    ("mknodat", (AT_FDCWD, 1, 0o020666, 0), errno.EPERM),
    ("mknodat", (AT_FDCWD, 1, 0o060666, 0), errno.EPERM),
    ("fcntl", (0, fcntl.F_GETFL), ALLOW),
    ("fcntl", (0, fcntl.F_SETLK), ALLOW),
    ("fcntl", (0, fcntl.F_SETLEASE, fcntl.F_WRLCK), errno.EACCES),
    ("fcntl", (0, fcntl.F_NOTIFY), errno.EACCES),
    ("ioctl", (0, TCGETS), ALLOW),
    ("ioctl", (0, FIONBIO), ALLOW),
    ("ioctl", (0, TIOCSTI), errno.EPERM),
    ("ioctl", (0, TIOCSTI | IGNORED_HALF), errno.EPERM),
    ("mmap", (0, 1 << 21, 3, 0x40022), errno.ENOMEM),  # MAP_HUGETLB
    ("mmap", (0, 1 << 21, 3, 0x22), ALLOW),
    ("shmget", (0, 1 << 21, 0o5600), errno.ENOMEM),  # SHM_HUGETLB
    ("ioctl", (0, TIOCLINUX), errno.EPERM),
    ("personality", (0xFFFFFFFF,), ALLOW),
    ("personality", (0x0040000,), ALLOW),
    ("personality", (0x0400000,), errno.EPERM),
    ("socketpair", (socket.AF_UNIX, socket.SOCK_STREAM, 0), ALLOW),
    ("socketpair", (socket.AF_INET, socket.SOCK_STREAM, 0), errno.EAFNOSUPPORT),
    ("prlimit64", (1, 7, 1), ALLOW),
    ("shmget", (1, 1, 1), ALLOW),
]  # fmt: skip


def test_arguments_decide() -> None:
    for name, args, expected in CASES:
        assert set(named(CLOSED, name, *args)) == {expected}, (name, args)


SHARED_CASES: list[tuple[str, tuple[int, ...], str | int]] = [
    ("shmget", (1, 1, 1), errno.EPERM),
    ("mq_open", (1, 1), errno.EPERM),
    ("prlimit64", (0, 7, 1), ALLOW),
    ("prlimit64", (1, 7, 1), errno.EPERM),
    ("sched_setaffinity", (0, 8, 1), ALLOW),
    ("sched_setaffinity", (1, 8, 1), errno.EPERM),
    ("setpriority", (0, 0, 5), ALLOW),
    ("setpriority", (0, 1, 5), errno.EPERM),
    ("setpriority", (2, 0, 5), errno.EPERM),
    ("ioprio_set", (1, 0, 0), ALLOW),
    ("ioprio_set", (3, 0, 0), errno.EPERM),
    ("socketpair", (socket.AF_UNIX, socket.SOCK_STREAM, 0), ALLOW),
    ("socket", (socket.AF_UNIX, socket.SOCK_STREAM, 0), errno.EACCES),
]


def test_without_namespaces_only_oneself() -> None:
    for name, args, expected in SHARED_CASES:
        assert set(named({"inet": False, "private": False}, name, *args)) == {expected}, (name, args)


CLOEXEC = 0o2000000
STREAM, DGRAM, RAW, SEQPACKET, PACKET = 1, 2, 3, 5, 10
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
OTHERS = {"ax25": 3, "key": 15, "packet": 17, "rds": 21, "can": 29, "tipc": 30, "bluetooth": 31, "alg": 38,
          "vsock": 40, "qipcrtr": 42, "smc": 43, "xdp": 44}  # fmt: skip
# family, type, protocol; what is said when closed, with inet, with host
SOCKETS: list[tuple[tuple[int, int, int], str | int, str | int, str | int]] = [
    ((UNIX, STREAM | CLOEXEC, 0), errno.EACCES, errno.EACCES, ALLOW),
    ((UNIX, DGRAM, 0), errno.EACCES, errno.EACCES, ALLOW),
    ((UNIX, RAW, 0), errno.EACCES, errno.EACCES, errno.EPERM),
    ((INET, STREAM | CLOEXEC, 0), errno.EACCES, ALLOW, ALLOW),
    ((INET6, STREAM, 6), errno.EACCES, ALLOW, ALLOW),
    ((INET, DGRAM, 17), errno.EACCES, ALLOW, ALLOW),
    ((INET, DGRAM, 1), errno.EACCES, errno.EPROTONOSUPPORT, ALLOW),
    ((INET6, DGRAM, 58), errno.EACCES, errno.EPROTONOSUPPORT, ALLOW),
    ((INET, RAW, 1), errno.EACCES, errno.EPERM, errno.EPERM),
    ((INET, RAW | CLOEXEC, 255), errno.EACCES, errno.EPERM, errno.EPERM),
    ((INET, PACKET, 0x300), errno.EACCES, errno.EPERM, errno.EPERM),
    ((INET, STREAM, MPTCP), errno.EACCES, errno.EPROTONOSUPPORT, errno.EPROTONOSUPPORT),
    ((INET6, STREAM, MPTCP), errno.EACCES, errno.EPROTONOSUPPORT, errno.EPROTONOSUPPORT),
    ((INET, STREAM, SCTP), errno.EACCES, errno.EPROTONOSUPPORT, errno.EPROTONOSUPPORT),
    ((NETLINK, RAW, 0), errno.EAFNOSUPPORT, errno.EAFNOSUPPORT, ALLOW),
    ((NETLINK, RAW, 12), errno.EAFNOSUPPORT, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT),
]


def test_sockets() -> None:
    variants: tuple[dict[str, bool], ...] = (CLOSED, {"inet": True}, {"inet": False, "host": True})
    for args, *expected in SOCKETS:
        for variant, answer in zip(variants, expected, strict=True):
            assert set(named(variant, "socket", *args)) == {answer}, (variant, args)


def test_pairs_without_the_machines_network_cannot_send_to_a_path() -> None:
    for variant in (CLOSED, {"inet": True}):
        assert set(named(variant, "socketpair", UNIX, STREAM | CLOEXEC, 0)) == {ALLOW}
        assert set(named(variant, "socketpair", UNIX, SEQPACKET | CLOEXEC, 0)) == {ALLOW}
        for kind in (DGRAM, RAW, PACKET):
            assert set(named(variant, "socketpair", UNIX, kind | CLOEXEC, 0)) == {errno.EACCES}
    assert set(named({"inet": False, "host": True}, "socketpair", UNIX, DGRAM, 0)) == {ALLOW}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_other_families_are_not_there(variant: dict[str, bool]) -> None:
    for name, family in OTHERS.items():
        for kind in (STREAM, DGRAM, RAW):
            assert set(named(variant, "socket", family, kind, 0)) == {errno.EAFNOSUPPORT}, name


def test_no_family_is_overlooked() -> None:
    for variant, allowed in ((CLOSED, set[int]()), ({"inet": True}, {INET, INET6})):
        program = seccomp.program("x86_64", **variant)
        for family in range(64):
            answer = meaning(interpret(program, 41, syscalls.AUDIT_ARCH["x86_64"], family, STREAM, 0))
            assert (answer == ALLOW) == (family in allowed), family


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_kernel_can_work_out_what_is_always_allowed(arch: str, variant: dict[str, bool]) -> None:
    """It follows only these instructions, and loads of the number and the architecture."""
    program = seccomp.program(arch, **variant)
    for opcode, *_ in decode(program):
        assert opcode in {0x20, 0x54, 0x05, 0x15, 0x35, 0x45, 0x06}
    assert len(program) // 8 < 400


def test_an_architecture_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        seccomp.program("riscv64", inet=False)


# The program.


@given(st.dictionaries(st.integers(0, 600), st.sampled_from([1, 38, 95])))
def test_each_number_gets_its_answer(refused: dict[int, int]) -> None:
    code = {number: [bpf.refuse(errno)] for number, errno in refused.items()}
    program = bpf.encode([bpf.load(0), *bpf.binary_search(bpf.ranges_of(code, 600, bpf.refuse(38)))])
    for number in (*refused, *range(0, 620, 7), 600, 601):
        expected = refused.get(number, ALLOW) if number <= 600 else 38
        assert meaning(interpret(program, number, 0)) == expected


def test_code_of_any_length_is_jumped_over() -> None:
    for padding in (0, 1, 253, 254, 255, 256, 257, 2000):
        long = [(bpf.AND, 0, 0, 0xFFFFFFFF)] * padding
        ranges = [(0, [*long, bpf.refuse(5)]), (6, [*long, bpf.refuse(6)]), (7, [bpf.ALLOW])]
        program = bpf.encode([bpf.load(0), *bpf.binary_search(ranges)])
        assert [meaning(interpret(program, number, 0)) for number in (5, 6, 7)] == [5, 6, ALLOW]


def test_the_structure_is_the_kernels() -> None:
    assert ctypes.sizeof(seccomp.FilterProgram) == 2 * ctypes.sizeof(ctypes.c_void_p)
    assert seccomp.FilterProgram.instructions.offset == ctypes.sizeof(ctypes.c_void_p)
