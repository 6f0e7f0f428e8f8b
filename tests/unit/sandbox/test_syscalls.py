"""The numbers against the kernel's own headers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import need
from toolcrib.sandbox.kernel import syscalls

HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
DEFINITION = re.compile(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", re.MULTILINE)
# Only 32-bit machines and their like have these at the generic number.
SINCE_424 = 424


@pytest.mark.parametrize("arch", syscalls.ARCHITECTURES)
def test_numbers_are_those_of_the_kernel_headers(arch: str) -> None:
    header = next((path for path in map(Path, HEADERS[arch]) if path.exists()), None)
    need("kernel headers", header is not None)
    assert header is not None
    known = {name: int(number) for name, number in DEFINITION.findall(header.read_text())}
    newest = max(number for name, number in known.items() if name != "syscalls")
    for name, number in syscalls.numbers(arch).items():
        if name in known:
            assert number == known[name], name
        else:
            assert number > newest, f"{name} is not in {header}, and not newer either"
    absent = syscalls.NUMBERS.keys() - syscalls.numbers(arch)
    assert not absent & known.keys(), "has a number on this architecture"


@pytest.mark.parametrize("arch", syscalls.ARCHITECTURES)
def test_each_number_stands_once_and_is_known(arch: str) -> None:
    numbers = list(syscalls.numbers(arch).values())
    assert len(set(numbers)) == len(numbers)
    assert 0 <= min(numbers) <= max(numbers) <= syscalls.LAST


def test_newer_calls_have_one_number_everywhere() -> None:
    for name, (x86_64, aarch64) in syscalls.NUMBERS.items():
        if x86_64 is not None and x86_64 >= SINCE_424:
            assert x86_64 == aarch64, name


def test_names_are_in_order() -> None:
    assert list(syscalls.NUMBERS) == sorted(syscalls.NUMBERS)


def test_an_architecture_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"riscv64.*x86_64, aarch64"):
        syscalls.numbers("riscv64")
