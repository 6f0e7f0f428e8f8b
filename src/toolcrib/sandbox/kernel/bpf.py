"""Classic BPF programs over one system call, as seccomp runs them (seccomp(2), linux/filter.h).

Our own, because libseccomp and its bindings are a compiled dependency, and what is needed here is small: load
a word, compare, answer. Jumps go forward only, a conditional one at most 255 instructions far.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Instruction = tuple[int, int, int, int]
    """Operation, how far to jump if true, how far if false, value."""

# linux/bpf_common.h
LOAD, AND, JUMP, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x45, 0x06
LONGEST_JUMP = 255
# linux/seccomp.h
RET_ALLOW, RET_ERRNO, RET_USER_NOTIF, RET_KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x7FC00000, 0x80000000
# struct seccomp_data, little-endian: the number, the architecture, low half of the first argument.
DATA_NUMBER, DATA_ARCH, DATA_ARGUMENT = 0, 4, 16


def load(offset: int) -> Instruction:
    """Load a 32-bit word of `struct seccomp_data`."""
    return LOAD, 0, 0, offset


def load_argument(index: int) -> Instruction:
    """Load the low half of an argument."""
    return load(DATA_ARGUMENT + 8 * index)


def answer(value: int) -> Instruction:
    """End the program with this answer."""
    return RETURN, 0, 0, value


ALLOW = answer(RET_ALLOW)


def refuse(number: int) -> Instruction:
    """End the program: the call fails with this errno."""
    return answer(RET_ERRNO | number)


def match(numbers: Iterable[int], value: Instruction) -> list[Instruction]:
    """End with this answer if the loaded word is one of the numbers."""
    return [instruction for number in numbers for instruction in ((EQUAL, 0, 1, number), value)]


def binary_search(ranges: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Run the code of the range that the loaded word is in.

    Arguments:
        ranges: the first number of each, ascending, and code that ends the program.
    """
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = binary_search(ranges[:middle]), binary_search(ranges[middle:])
    first = ranges[middle][0]
    if len(below) <= LONGEST_JUMP:
        return [(AT_LEAST, len(below), 0, first), *below, *above]
    return [(AT_LEAST, 0, 1, first), (JUMP, 0, 0, len(below)), *below, *above]


def ranges_of(
    code: Mapping[int, list[Instruction]], last: int, beyond: Instruction
) -> list[tuple[int, list[Instruction]]]:
    """Divide all numbers into ranges with one answer each; up to `last` what has no code is allowed."""
    found: list[tuple[int, list[Instruction]]] = []
    for number in range(last + 2):
        body = code.get(number, [ALLOW]) if number <= last else [beyond]
        if not found or found[-1][1] != body:
            found.append((number, body))
    return found


def encode(code: Iterable[Instruction]) -> bytes:
    """Write the program as the kernel reads it: an array of `struct sock_filter`."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
