"""The filter of pid 1."""

from __future__ import annotations

import errno

import pytest

from tests.unit.sandbox.test_seccomp import ALLOW, ARCHITECTURES, interpret, meaning
from toolcrib.sandbox.kernel import seccomp, syscalls


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_only_what_waiting_takes_is_allowed(arch: str) -> None:
    column = syscalls.ARCHITECTURES.index(arch)
    program = seccomp.init_program(arch)
    allowed = {numbers[column] for numbers in seccomp.INIT_ALLOWED.values()}
    for number in range(syscalls.LAST + 1):
        answer = meaning(interpret(program, number, syscalls.AUDIT_ARCH[arch]))
        expected = ALLOW if number in {*allowed, seccomp.MMAP[column]} else errno.EPERM
        assert answer == expected, number


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_memory_can_be_made_executable(arch: str) -> None:
    number = seccomp.MMAP[syscalls.ARCHITECTURES.index(arch)]
    for protection, answer in ((3, ALLOW), (4, errno.EPERM), (7, errno.EPERM)):
        found = interpret(seccomp.init_program(arch), number, syscalls.AUDIT_ARCH[arch], 0, 4096, protection)
        assert meaning(found) == answer


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_another_architecture_is_refused(arch: str) -> None:
    i386 = 0x40000003
    assert meaning(interpret(seccomp.init_program(arch), 114, i386)) == errno.EPERM


def test_an_unknown_machine_is_an_error() -> None:
    with pytest.raises(ValueError, match="no system call table"):
        seccomp.init_program("sparc")
