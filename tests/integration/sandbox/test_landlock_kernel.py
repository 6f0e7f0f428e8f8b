"""Landlock in the kernel: what was not granted is refused, what was granted works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import need
from tests.integration.sandbox.alone import Alone, alone
from toolcrib.sandbox.kernel import landlock

ABI = landlock.abi()


@pytest.fixture(params=["own", "nobody"])
def person(request: pytest.FixtureRequest) -> Iterator[Alone]:
    need("Landlock", ABI >= 1)
    with alone(request.param) as found:
        lay_out = """
for name in ("read", "write", "out", "read/deep", "read/inner"):
    os.mkdir(name)
for name in ("read/f", "read/deep/f", "write/f", "out/f", "one", "two", "tool"):
    with open(name, "w") as f:
        f.write("#!/bin/sh\\necho ran\\n")
os.chmod("tool", 0o755)
os.chmod("read/f", 0o755)
print(0)
"""
        found.answer(lay_out)
        yield found


SYSTEM = """
base = [p for p in ("/usr", "/bin", "/lib", "/lib64", "/etc", sys.base_prefix) if os.path.exists(p)]
import socket, subprocess, fcntl, resource
landlock = load("landlock")
no_new_privs()
def opened(path, flags=os.O_RDONLY):
    return code(lambda: os.close(os.open(path, flags, 0o600)))
"""
RESTRICT = """
landlock.Ruleset(
    execute=[*base, "tool"], read=["read", "one"], write=["write", "read/inner", "two"],
    devices=["/dev/null"], **given).enforce()
"""

FILES = """
answers = {
    "read outside": opened("out/f"),
    "list outside": opened("out"),
    "read /proc": opened("/proc/self/environ"),
    "write read-only": opened("read/f", os.O_WRONLY),
    "make in read-only": opened("read/new", os.O_CREAT | os.O_WRONLY),
    "remove in read-only": code(os.unlink, "read/deep/f"),
    "truncate read-only": code(os.truncate, "read/f", 0),
    "folder in read-only": code(os.mkdir, "read/new"),
    "rename out": code(os.rename, "write/f", "out/g"),
    "rename in": code(os.rename, "out/f", "write/g"),
    "link in": code(os.link, "out/f", "write/g"),
    "write file granted for reading": opened("one", os.O_WRONLY),
    "device": code(os.mknod, "write/null", 0o020666, os.makedev(1, 3)),
    "other device": opened("/dev/full"),
    "run": code(os.posix_spawn, "read/f", ["f"], {}),
    "run what was written": code(os.posix_spawn, "write/f", ["f"], {}),
    "through a link": opened("write/link"),
}
fine = {
    "read": opened("read/deep/f"),
    "list": opened("read"),
    "file": opened("one"),
    "write": opened("write/f", os.O_WRONLY | os.O_TRUNC),
    "write file": opened("two", os.O_RDWR | os.O_TRUNC),
    "make": opened("write/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY),
    "folder": code(os.mkdir, "write/d"),
    "rename": code(os.rename, "write/new", "write/newer"),
    "across": code(os.rename, "write/newer", "write/d/newer"),
    "between grants": code(os.rename, "write/d/newer", "read/inner/newer"),
    "fifo": code(os.mkfifo, "write/p"),
    "remove": code(os.unlink, "read/inner/newer"),
    "null": opened("/dev/null", os.O_RDWR | os.O_TRUNC),
    "terminal": str(os.isatty(os.open("/dev/null", os.O_RDWR))),
    "run": subprocess.run(["./tool"], capture_output=True, text=True).stdout,
    "shell": subprocess.run(["sh", "-c", "ls write | wc -l"], capture_output=True, text=True).stdout.strip(),
}
print(json.dumps([answers, fine]))
"""


def test_files(person: Alone) -> None:
    link = 'os.symlink("../out/f", "write/link")\n'
    refused, fine = person.answer(SYSTEM + link + RESTRICT + FILES, {})
    need("Landlock 3", ABI >= 3)
    # Making a device is no right of an ordinary user to begin with.
    assert refused.pop("device") in {"EACCES", "EPERM"}
    # Between folders of unequal rights the kernel answers as if they were on two disks.
    for name in ("rename out", "rename in", "link in"):
        assert refused.pop(name) in {"EACCES", "EXDEV"}, name
    assert set(refused.values()) == {"EACCES"}, refused
    assert fine.pop("run") == "ran\n"
    assert fine.pop("shell") == "4"
    assert fine.pop("terminal") == "False"
    assert set(fine.values()) == {"ok"}, fine


def test_descriptors_do_as_well_as_paths(person: Alone) -> None:
    script = (
        SYSTEM
        + """
fd = os.open("read", os.O_PATH)
landlock.Ruleset(read=[fd], execute=base).enforce()
print(json.dumps([opened("read/f"), opened("out/f"), code(os.fstat, fd)]))
"""
    )
    assert person.answer(script) == ["ok", "EACCES", "ok"]


NETWORK = """
def listener():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server
granted, other = listener(), listener()
port, forbidden = granted.getsockname()[1], other.getsockname()[1]
landlock.Ruleset(read=["/"], connect_ports=[port], bind_ports=[]).enforce()
def connect(number):
    with socket.socket() as client:
        return code(client.connect, ("127.0.0.1", number))
def bind():
    with socket.socket() as server:
        return code(server.bind, ("127.0.0.1", 0))
print(json.dumps([connect(port), connect(forbidden), bind()]))
"""


def test_ports(person: Alone) -> None:
    need("Landlock 4", ABI >= 4)
    assert person.answer(SYSTEM + NETWORK) == ["ok", "EACCES", "EACCES"]


SCOPE = """
outside = os.fork()
if outside == 0:
    os.execv("/bin/sleep", ["sleep", "20"])
name = "\\0scope-%d" % os.getpid()
ready, told = os.pipe()
if os.fork() == 0:
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()
    os.write(told, b"1")
    os.read(0, 1)
    import time
    time.sleep(20)
    os._exit(0)
os.read(ready, 1)
waiting = os.getpid()
if (child := os.fork()) == 0:
    landlock.Ruleset(read=["/"], execute=["/"], scope=given).enforce()
    with socket.socket(socket.AF_UNIX) as client:
        answers = [code(client.connect, name), code(os.kill, outside, 0)]
    print(json.dumps([answers, code(os.kill, os.getpid(), 0)]), flush=True)
    os._exit(0)
os.waitpid(child, 0)
os.killpg(0, 9)
"""


@pytest.mark.parametrize("scope", [True, False])
def test_scope(person: Alone, scope: bool) -> None:
    need("Landlock 6", ABI >= 6)
    done = person.run(SYSTEM + SCOPE, scope)
    assert done.stdout, done.stderr
    answers, oneself = json.loads(done.stdout)
    assert answers == (["EPERM", "EPERM"] if scope else ["ok", "ok"])
    assert oneself == "ok"


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7])
def test_older_kernels_hold_less(person: Alone, version: int) -> None:
    need(f"Landlock {version}", version <= ABI)
    script = SYSTEM + RESTRICT + "print(json.dumps([opened('out/f'), opened('read/f'), tried()]))"
    tried = """
def tried():
    return [opened("read/f", os.O_WRONLY), code(os.truncate, "read/f", 0), opened("write/f", os.O_RDWR)]
"""
    more: dict[str, Any] = {"version": version, "connect_ports": [], "bind_ports": []}
    outside, inside, (write, truncate, granted) = person.answer(tried + script, more)
    assert (outside, inside, write, granted) == ("EACCES", "ok", "EACCES", "ok")
    assert truncate == ("EACCES" if version >= 3 else "ok")


def test_what_is_not_there_is_an_error_and_holds_nothing(person: Alone) -> None:
    script = (
        SYSTEM
        + """
try:
    landlock.Ruleset(read=["missing"]).enforce()
    answer = None
except FileNotFoundError as error:
    answer = error.filename
print(json.dumps([answer, opened("out/f"), len(os.listdir("/proc/self/fd"))]))
"""
    )
    answer, outside, _ = person.answer(script)
    assert (answer, outside) == ("missing", "ok")


def test_layers_only_take_away(person: Alone) -> None:
    script = (
        SYSTEM
        + """
before = len(os.listdir("/proc/self/fd"))
landlock.Ruleset(read=["/"], execute=["/"]).enforce()
landlock.Ruleset(read=["read", "/proc"]).enforce()
landlock.Ruleset(read=["/"]).enforce()
after = len(os.listdir("/proc/self/fd"))
print(json.dumps([opened("read/f"), opened("out/f"), after - before]))
"""
    )
    assert person.answer(script) == ["ok", "EACCES", 0]


def test_it_needs_no_new_privs() -> None:
    need("Landlock", ABI >= 1)
    with alone("nobody") as person:
        assert (
            person.answer("print(json.dumps(code(load('landlock').Ruleset(read=['/']).enforce)))") == "EPERM"
        )
