"""The filter in the kernel: what it refuses, and what goes on working."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import need
from tests.integration.sandbox.alone import Alone, alone
from toolcrib.sandbox.kernel import seccomp, syscalls

ARCH = os.uname().machine
X32_BIT = 0x40000000
CLOSED: dict[str, bool] = {"inet": False}
INSTALL = "no_new_privs(); load('seccomp').install(bytes.fromhex(given['program']))\n"


@pytest.fixture(params=["own", "nobody"])
def person(request: pytest.FixtureRequest) -> Iterator[Alone]:
    need("a system call table for its architecture", ARCH in syscalls.ARCHITECTURES)
    with alone(request.param) as found:
        yield found


def given(variant: dict[str, bool] | None = None, **more: object) -> dict[str, Any]:
    return {"program": seccomp.program(ARCH, **(variant or CLOSED)).hex(), **more}


def test_every_call_that_is_always_refused(person: Alone) -> None:
    numbers = syscalls.numbers(ARCH)
    expected = {
        name: errno.errorcode[code]
        for code, names in seccomp.ALWAYS
        for name in names.split()
        if name in numbers
    }
    # With arguments that do nothing if a call should come through after all.
    script = INSTALL + "print(json.dumps([syscall(n, *[1] * 6) for n in given['calls']]))"
    answers = person.answer(script, given(calls=[numbers[name] for name in expected]))
    assert dict(zip(expected, answers, strict=True)) == expected


def test_unknown_and_x32_calls_are_not_there(person: Alone) -> None:
    script = INSTALL + "print(json.dumps([syscall(n, 0) for n in given['calls']]))"
    calls = [syscalls.LAST + 1, syscalls.LAST + 40, X32_BIT | 39]
    assert person.answer(script, given(calls=calls)) == ["ENOSYS"] * 3


NAMESPACES = """
flags = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000,
         "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}
answers = {name: syscall(given["unshare"], flag) for name, flag in flags.items()}
for name, flag in flags.items():
    if name != "time":  # clone(2) has no such flag: its bit is part of the signal's number
        answers["clone " + name] = syscall(given["clone"], flag | 17, 0, 0, 0, 0)
answers["files"] = syscall(given["unshare"], 0x400)
print(json.dumps(answers))
"""


def test_no_namespaces(person: Alone) -> None:
    numbers = syscalls.numbers(ARCH)
    more = given(unshare=numbers["unshare"], clone=numbers["clone"])
    answers = person.answer(INSTALL + NAMESPACES, more)
    assert answers.pop("files") == "ok"
    assert len(answers) == 15
    assert set(answers.values()) == {"EPERM"}


FILES = """
import stat
def setid(path):
    return os.path.exists(path) and bool(os.stat(path).st_mode & 0o6000)
def made(path, flags, mode):
    return code(lambda: os.close(os.open(path, flags, mode)))
open("file", "w").close()
os.mkdir("folder")
answers = {
    "chmod": code(os.chmod, "file", 0o4755),
    "chmod sgid": code(os.chmod, "file", 0o2755),
    "chmod at": code(os.chmod, "file", 0o4755, dir_fd=os.open(".", os.O_RDONLY)),
    "fchmod": code(os.fchmod, os.open("file", os.O_RDONLY), 0o6755),
    "folder sgid": code(os.chmod, "folder", 0o2777),
    "open": made("a", os.O_CREAT | os.O_WRONLY, 0o4755),
    "tmpfile": made(".", os.O_TMPFILE | os.O_WRONLY, 0o4755),
    "mknod file": code(os.mknod, "b", stat.S_IFREG | 0o4755),
    "mknod char": code(os.mknod, "c", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    "mknod whiteout": code(os.mknod, "w", stat.S_IFCHR | 0o666, 0),
    "mknod block": code(os.mknod, "d", stat.S_IFBLK | 0o666, os.makedev(7, 0)),
    "xattr": code(os.setxattr, "file", "user.x", b"1"),
    "xattr gone": code(os.removexattr, "file", "user.x"),
}
fine = {
    "chmod": code(os.chmod, "file", 0o1755),
    "fchmod": code(os.fchmod, os.open("file", os.O_RDONLY), 0o700),
    "open": made("e", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666),
    "tmpfile": made(".", os.O_TMPFILE | os.O_WRONLY, 0o600),
    "mknod file": code(os.mknod, "f", stat.S_IFREG | 0o644),
    "fifo": code(os.mkfifo, "g"),
    "socket": code(os.mknod, "h", stat.S_IFSOCK | 0o644),
    "utime": code(os.utime, "file"),
}
print(json.dumps([answers, fine, [name for name in os.listdir(".") if setid(name)]]))
"""


def test_files(person: Alone) -> None:
    refused, fine, left = person.answer(INSTALL + FILES, given())
    assert refused.pop("xattr") == refused.pop("xattr gone") == errno.errorcode[errno.ENOTSUP]
    assert set(refused.values()) == {"EPERM"}, refused
    assert set(fine.values()) == {"ok"}, fine
    assert left == []


SOCKETS = """
import socket
def made(*args):
    return code(lambda: socket.socket(*args).close())
print(json.dumps([made(*args) for args in given["sockets"]]))
"""
UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK = 1, 2, 10, 16, 17, 38, 40
STREAM, DGRAM, RAW = 1, 2, 3
KINDS: dict[str, tuple[int, int, int]] = {
    "unix": (UNIX, STREAM, 0),
    "tcp": (INET, STREAM, 0),
    "tcp6": (INET6, STREAM, 0),
    "udp": (INET, DGRAM, 0),
    "mptcp": (INET, STREAM, 262),
    "raw": (INET, RAW, 1),
    "ping": (INET, DGRAM, 1),
    "route": (NETLINK, RAW, 0),
    "audit": (NETLINK, RAW, 9),
    "packet": (PACKET, RAW, 0),
    "alg": (ALG, 5, 0),
    "vsock": (VSOCK, STREAM, 0),
}


def has_ipv6() -> bool:
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("variant", "allowed"),
    [
        (CLOSED, set()),
        ({"inet": True}, {"tcp", "tcp6", "udp"}),
        ({"inet": False, "host": True}, {"unix", "tcp", "tcp6", "udp", "route"}),
        ({"inet": False, "private": False}, set()),
    ],
    ids=["closed", "inet", "host", "shared"],
)
def test_sockets(person: Alone, variant: dict[str, bool], allowed: set[str]) -> None:
    need("IPv6", has_ipv6())
    more = given(variant, sockets=list(KINDS.values()))
    answers = dict(zip(KINDS, person.answer(INSTALL + SOCKETS, more), strict=True))
    answers.pop("ping")  # the machine decides which groups may (net.ipv4.ping_group_range)
    assert {name for name, answer in answers.items() if answer == "ok"} == allowed, answers


OTHERS = """
master, slave = os.openpty()
import fcntl, resource
answers = {
    "type": code(fcntl.ioctl, slave, 0x5412, b"x"),
    "linux": code(fcntl.ioctl, slave, 0x541C, b"x"),
    "discipline": code(fcntl.ioctl, slave, 0x5423, b"\\0\\0\\0\\0"),
    "personality": syscall(given["personality"], 0x0400000),
}
print(json.dumps([answers, os.isatty(slave), syscall(given["personality"], 0xffffffff)]))
"""


def test_terminals_and_personalities(person: Alone) -> None:
    more = given(personality=syscalls.numbers(ARCH)["personality"])
    answers, terminal, asked = person.answer(INSTALL + OTHERS, more)
    assert set(answers.values()) == {"EPERM"}, answers
    assert terminal
    assert asked == "ok"


STORAGE = """
import fcntl
folder = os.open(".", os.O_RDONLY)
answers = {name: code(fcntl.ioctl, folder, number, bytes(1024)) for name, number in given["requests"].items()}
print(json.dumps([answers, code(os.memfd_create, "huge", os.MFD_HUGETLB), code(os.memfd_create, "plain")]))
"""


def test_no_snapshots_no_keys_of_a_file_system_and_no_huge_pages(person: Alone) -> None:
    # By which a tool could read what is hidden in its folder or remove what is protected, lock its user's
    # files, and exceed its memory.
    requests = {"snapshot": 0x50009401, "snapshot 2": 0x50009417, "add key": 0xC0506617}
    requests |= {"destroy": 0x5000940F, "destroy 2": 0x5000943F, "read-only": 0x4008941A}
    requests |= {"remove key": 0xC0406618, "remove all": 0xC0406619}
    answers, huge, plain = person.answer(INSTALL + STORAGE, given(requests=requests))
    assert answers == dict.fromkeys(requests, "EPERM")
    assert (huge, plain) == ("ENOMEM", "ok")


SHARED = """
import resource
child = os.fork()
if child == 0:
    os.execv("/bin/sleep", ["sleep", "20"])
answers = {
    "limits": code(resource.prlimit, child, resource.RLIMIT_CORE, (0, 0)),
    "affinity": code(os.sched_setaffinity, child, os.sched_getaffinity(0)),
    "priority": code(os.setpriority, os.PRIO_PROCESS, child, 5),
    "priority of all": code(os.setpriority, os.PRIO_USER, 0, 5),
    "shm": syscall(given["shmget"], 0, 4096, 0o1600),
}
fine = {
    "limits": code(resource.prlimit, 0, resource.RLIMIT_CORE, (0, 0)),
    "affinity": code(os.sched_setaffinity, 0, os.sched_getaffinity(0)),
    "priority": code(os.setpriority, os.PRIO_PROCESS, 0, 19),
}
attributes = [code(os.listxattr, "."), code(os.getxattr, ".", "user.note")]
fine["open file"] = code(os.listxattr, os.open(".", os.O_RDONLY))
os.kill(child, 9)
print(json.dumps([answers, fine, attributes]))
"""


def test_without_namespaces_nothing_happens_to_others(person: Alone) -> None:
    more = given({"inet": False, "private": False}, shmget=syscalls.numbers(ARCH)["shmget"])
    refused, fine, attributes = person.answer(INSTALL + SHARED, more)
    assert attributes == [errno.errorcode[errno.ENOTSUP]] * 2
    assert set(refused.values()) == {"EPERM"}, refused
    assert set(fine.values()) == {"ok"}, fine


def test_filters_stack(person: Alone) -> None:
    script = INSTALL + "load('seccomp').install(bytes.fromhex(given['second']))\n" + SOCKETS
    second = seccomp.program(ARCH, inet=False).hex()
    more = given({"inet": True}, second=second, sockets=[KINDS["tcp"], KINDS["unix"]])
    assert person.answer(script, more) == ["EACCES", "EACCES"]


def test_it_needs_no_new_privs() -> None:
    need("a system call table for its architecture", ARCH in syscalls.ARCHITECTURES)
    with alone("nobody") as person:
        script = "print(json.dumps(code(load('seccomp').install, bytes.fromhex(given['program']))))"
        assert person.answer(script, given()) == "EACCES"


def test_nonsense_is_refused(person: Alone) -> None:
    script = "no_new_privs(); print(json.dumps(code(load('seccomp').install, b'\\xff' * 8)))"
    assert person.answer(script) == "EINVAL"


OLD_CALL = """
int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r <= 0; }
"""


def test_a_call_of_32_bits_ends_the_process(person: Alone) -> None:
    need("x86_64 and gcc", ARCH == "x86_64" and shutil.which("gcc") is not None)
    (person.folder / "old.c").write_text(OLD_CALL)
    program = person.folder / "old"
    subprocess.run(["gcc", "-o", program, person.folder / "old.c"], check=True)
    if subprocess.run([program], check=False).returncode != 0:
        pytest.skip("this kernel has no 32-bit calls")
    script = INSTALL + "os.execv(given['path'], ['old'])"
    assert person.run(script, given(path=str(program))).returncode == -signal.SIGSYS


# Controls: what must go on working.

SHELL = """
set -eu
mkdir a && echo one >a/f && cp -a a b && mv b c && ln -s f a/l && ln a/f a/h && chmod 600 a/f && chmod +x a/h
mkfifo p && (echo two >p &) && read line <p && [ "$line" = two ]
install -m 755 a/f d && touch -d 2020-01-01 d && tar cf t a c && mkdir e && tar xf t -C e && diff -r a e/a
printf '3\\n1\\n2\\n' | sort | head -n 1 | grep -qx 1
find . -type f -exec cat {} + >/dev/null; rm -r a c e; mktemp -d m.XXXXXX >/dev/null; timeout 5 true
(sh -c 'kill -TERM $$' || [ $? = 143 ]) 2>/dev/null
echo fine
"""
COMPILER = """
set -eu
printf '#include <stdio.h>\\n#include <pthread.h>\\nvoid *f(void *p) { return p; }\\n
int main(void) { pthread_t t;
if (pthread_create(&t, 0, f, 0) || pthread_join(t, 0)) return 1; puts("fine"); return 0; }\\n' >m.c
gcc -O1 -pipe -pthread -o m m.c && ./m
"""
GIT = """
set -eu
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q r && cd r && echo x >f && git add f && git commit -qm m && git clone -q . ../s && git gc -q
git -C ../s log --format=%s | grep -qx m && echo fine
"""
PYTHON = """
import asyncio, concurrent.futures, multiprocessing, sqlite3, subprocess, tempfile, venv
async def main():
    process = await asyncio.create_subprocess_exec("echo", "a", stdout=subprocess.PIPE)
    assert (await process.communicate())[0] == b"a\\n"
    server = await asyncio.start_unix_server(lambda r, w: (w.write(b"b"), w.close()), "socket")
    reader, writer = await asyncio.open_unix_connection("socket")
    assert await reader.read() == b"b"
    writer.close()
    server.close()
    assert await asyncio.to_thread(lambda: 5) == 5
asyncio.run(main())
assert subprocess.run(["cat"], input=b"c", capture_output=True, check=True).stdout == b"c"
assert subprocess.run("echo d | cat", shell=True, capture_output=True, check=True).stdout == b"d\\n"
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert sum(pool.map(abs, range(10))) == 45
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
with sqlite3.connect("db") as db:
    db.execute("create table t (x)")
with tempfile.TemporaryDirectory() as folder:
    venv.create(folder, with_pip=False)
    child = [folder + "/bin/python", "-c", "import sys; print(sys.prefix != sys.base_prefix)"]
    assert subprocess.run(child, capture_output=True, check=True).stdout == b"True\\n"
print("fine")
"""
NETWORK = """
import asyncio, socket
async def main():
    server = await asyncio.start_server(lambda r, w: (w.write(b"b"), w.close()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b"b"
    writer.close()
    server.close()
asyncio.run(main())
assert socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
print("fine")
"""


def works(person: Alone, argv: list[str], variant: dict[str, bool] | None = None) -> None:
    script = INSTALL + "os.execvp(given['argv'][0], given['argv'])"
    done = person.run(script, given(variant, argv=argv))
    assert (done.stdout, done.stderr) == ("fine\n", "")


def test_shell_and_coreutils_work(person: Alone) -> None:
    works(person, ["sh", "-c", SHELL])


def test_compilers_work(person: Alone) -> None:
    need("gcc", shutil.which("gcc") is not None)
    works(person, ["sh", "-c", COMPILER])


def test_git_works(person: Alone) -> None:
    need("git", shutil.which("git") is not None)
    works(person, ["sh", "-c", GIT])


def test_python_works(person: Alone) -> None:
    works(person, [person.python, "-I", "-c", PYTHON], {"inet": False, "host": True})


@pytest.mark.parametrize("variant", [{"inet": True}, {"inet": False, "host": True}], ids=str)
def test_the_network_works_where_it_is_allowed(person: Alone, variant: dict[str, bool]) -> None:
    works(person, [person.python, "-I", "-c", NETWORK], variant)


@pytest.mark.parametrize("variant", [CLOSED, {"inet": True}, {"inet": False, "private": False}], ids=str)
def test_python_works_without_named_sockets_too(person: Alone, variant: dict[str, bool]) -> None:
    code = (
        PYTHON[: PYTHON.index("    server =")] + PYTHON[PYTHON.index("    assert await asyncio.to_thread") :]
    )
    if not variant.get("private", True):  # making a virtual environment changes modes
        code = code[: code.index("with tempfile")] + 'print("fine")'
    works(person, [person.python, "-I", "-c", code], variant)


MODES = """
os.mkdir("mine")
fd = os.open("mine", os.O_RDONLY)
me = os.getuid(), os.getgid()
tries = {"chmod": (os.chmod, "mine", 0o700), "fchmod": (os.fchmod, fd, 0o700),
         "chown": (os.chown, "mine", *me), "fchown": (os.fchown, fd, *me), "lchown": (os.lchown, "mine", *me)}
found = {name: code(call, *args) for name, (call, *args) in tries.items()}
found["fchmodat"] = code(os.chmod, "mine", 0o700, dir_fd=os.open(".", os.O_RDONLY))
print(json.dumps(found))
"""


@pytest.mark.parametrize("private", [True, False])
def test_modes_and_owners_stay_where_no_mounts_keep_files_apart(person: Alone, private: bool) -> None:
    found = person.answer(INSTALL + MODES, given({"inet": False, "private": private}))
    assert set(found.values()) == {"ok" if private else "EPERM"}, found
