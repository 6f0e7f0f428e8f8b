"""Put Landlock on this process and become a command: `landlock_only.py GRANTS CWD ARGV...`.

Every right of the kernel's version is handled, network and scopes with it. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import sys

CREATE, ADD, RESTRICT = 444, 445, 446
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Bits of file rights by interface version."""
READ = 0b1101
"""Execute, read a file, list a folder."""
FILE_ONLY = 0xC007
"""Execute, write, read, truncate, ioctl: what a single file can be granted."""

libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *args: object) -> int:
    """Make a system call or fail."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = int(libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def restrict(grants: dict[str, list[str]]) -> None:
    """Hand in all rights but the granted ones."""
    version = call(CREATE, None, 0, 1)
    handled = (1 << RIGHTS.get(version, 16)) - 1
    rules = struct.pack("QQQ", handled, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    rules = rules[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = call(CREATE, rules, len(rules), 0)
    for kind, rights in (("read", READ), ("write", handled)):
        for path in grants[kind]:
            fd = os.open(path, os.O_PATH)
            folder = stat.S_ISDIR(os.fstat(fd).st_mode)
            allowed = rights & handled if folder else rights & handled & FILE_ONLY
            call(ADD, ruleset, 1, struct.pack("=Qi", allowed, fd), 0)
            os.close(fd)
    libc.prctl(38, *(ctypes.c_ulong(v) for v in (1, 0, 0, 0)))
    call(RESTRICT, ruleset, 0)


if __name__ == "__main__":
    _, text, cwd, *argv = sys.argv
    wanted = json.loads(text)
    restrict(wanted)
    os.chdir(cwd)
    os.execvpe(argv[0], argv, os.environ)
