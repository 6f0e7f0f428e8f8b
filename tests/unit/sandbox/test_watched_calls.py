"""Which calls are watched: their numbers, what the filter answers, what a call that opens wants."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.conftest import need
from tests.unit.sandbox.test_seccomp import interpret
from tests.unit.sandbox.test_syscalls import DEFINITION, HEADERS
from toolcrib.sandbox.kernel import seccomp, syscalls
from toolcrib.sandbox.tracing import watched_calls

ASK, GO_ON = 0x7FC00000, 0x7FFF0000


@pytest.mark.parametrize("arch", syscalls.ARCHITECTURES)
def test_numbers_are_those_of_the_kernel_headers(arch: str) -> None:
    header = next((path for path in map(Path, HEADERS[arch]) if path.exists()), None)
    need("kernel headers", header is not None)
    assert header is not None
    known = {name: int(number) for name, number in DEFINITION.findall(header.read_text())}
    for number, (name, _) in watched_calls.calls(arch).items():
        generic = {"newfstatat": "fstatat"} if arch == "aarch64" else {}
        assert known[generic.get(name, name)] == number, name


@pytest.mark.parametrize("arch", syscalls.ARCHITECTURES)
def test_the_filter_asks_for_watched_calls_only(arch: str) -> None:
    program, audit = watched_calls.program(arch), syscalls.AUDIT_ARCH[arch]
    calls = {name: number for number, (name, _) in watched_calls.calls(arch).items()}
    for number in range(syscalls.LAST + 2):
        if number == calls["socket"]:
            continue
        expected = ASK if number in calls.values() else GO_ON
        assert interpret(program, number, audit) == expected, number
    for family, expected in ((1, GO_ON), (2, ASK), (10, ASK), (16, GO_ON), (17, GO_ON)):
        assert interpret(program, calls["socket"], audit, family) == expected
    # Another architecture's calls are the other filter's business, which kills.
    assert interpret(program, calls["openat"], 0x40000003) == GO_ON


def test_what_the_watcher_is_to_refuse_nothing_else_lets_through() -> None:
    arch = "x86_64"
    asked = seccomp.program(arch, inet=False, watched_sockets=True)
    held = seccomp.program(arch, inet=False)
    audit, numbers = syscalls.AUDIT_ARCH[arch], syscalls.numbers(arch)
    for family in range(46):
        for kind in (1, 2, 3, 5):
            answers = [interpret(code, numbers["socket"], audit, family, kind, 0) for code in (asked, held)]
            if family in (2, 10):
                assert interpret(watched_calls.program(arch), numbers["socket"], audit, family) == ASK
            else:
                assert answers[0] == answers[1], family
    for name, number in numbers.items():
        if name != "socket":
            assert interpret(asked, number, audit, 1, 1) == interpret(held, number, audit, 1, 1), name


@pytest.mark.parametrize(
    ("flags", "access"),
    [
        (os.O_RDONLY, "read"),
        (os.O_RDONLY | os.O_CLOEXEC, "read"),
        (os.O_RDONLY | os.O_DIRECTORY, "list"),
        (os.O_PATH, "look"),
        (os.O_WRONLY, "write"),
        (os.O_RDWR, "write"),
        (os.O_RDONLY | os.O_TRUNC, "write"),
        (os.O_WRONLY | os.O_CREAT, "create"),
        (os.O_WRONLY | os.O_CREAT | os.O_EXCL, "make"),
        (os.O_RDWR | os.O_TMPFILE, "write"),
    ],
)
def test_the_flags_say_what_is_wanted(flags: int, access: str) -> None:
    assert watched_calls.opened("openat", (-100 & 0xFFFFFFFF, 1, flags, 0, 0, 0)) == access
    assert watched_calls.opened("open", (1, flags, 0, 0, 0, 0)) == access


def test_an_architecture_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("riscv64")):
        watched_calls.calls("riscv64")
