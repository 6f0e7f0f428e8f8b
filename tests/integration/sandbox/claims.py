"""What the sandbox promises, each promise tried by a hostile command against the real kernel.

A claim is a function that raises AssertionError. pytest runs each; run as a script, the file runs them
all as whoever started it and prints a JSON object of what failed. Attempts to reach what is outside
are in tests/escape.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:2]

from tests.integration.sandbox.account_claims import ACCOUNTS
from tests.integration.sandbox.ground import (
    CANARY,
    Ground,
    eventually,
    processes_knowing,
    processes_with,
    python,
    said,
    shell,
)
from tests.integration.sandbox.limit_claims import LIMITS
from tests.integration.sandbox.watch_claims import WATCHING
from toolcrib.errors import PermissionDenied, ToolcribError, ToolUnavailable
from toolcrib.sandbox import Completed, Confinement, run
from toolcrib.sandbox.host.pool import shared

Claim = Callable[[Ground], None]
CLAIMS: list[Claim] = [*WATCHING, *ACCOUNTS, *LIMITS]


def claim(function: Claim) -> Claim:
    CLAIMS.append(function)
    return function


def refused(kind: type[ToolcribError], text: str, job: Confinement) -> None:
    """The job is not run, for the reason named."""
    try:
        done = run_now(job)
    except kind as error:
        message = error.message
    else:
        message = f"was run: {said(done)}"
    assert text in message, message


def run_now(job: Confinement) -> Completed:
    return asyncio.run(run(job))


# Files


@claim
def nothing_but_the_system_is_there(ground: Ground) -> None:
    done = shell(ground, "ls -A /; ls -A /tmp /dev/shm | grep -v :")
    assert set(done.stdout.decode().split()) <= {
        "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr",
    }, said(done)  # fmt: skip


@claim
def a_write_grant_can(ground: Ground) -> None:
    done = shell(ground, "echo new > src/new && mv src/new src/newer", write=(str(ground.project),))
    assert done.exit_code == 0, said(done)
    made = ground.project / "src/newer"
    assert made.read_text() == "new\n"
    assert made.stat().st_uid == os.geteuid()


@claim
def grants_nest_both_ways(ground: Ground) -> None:
    project, src, deep = (str(ground.project / part) for part in (".", "src", "src/deep"))
    inside = shell(ground, "echo x > src/ok && ! echo x > nok", read=(project,), write=(src,))
    assert inside.exit_code == 0, said(inside)
    other = shell(
        ground,
        "echo x > src/ok && ! echo x > src/deep/nok && cat src/deep/er/file",
        write=(src,),
        read=(project, deep),
    )
    assert other.exit_code == 0, said(other)
    assert not (ground.project / "src/deep/nok").exists()


@claim
def single_files_can_be_granted(ground: Ground) -> None:
    one, two = str(ground.project / "src/file"), str(ground.project / "src/deep/er/file")
    done = shell(ground, f"cat {one} && echo x >> {two} && ! echo x >> {one}", read=(one,), write=(two,))
    assert done.exit_code == 0, said(done)
    listing = shell(ground, f"ls -A {ground.project}", read=(one,))
    assert listing.stdout == b"src\n"


@claim
def protected_places_stay(ground: Ground) -> None:
    project = ground.project
    rules = {
        "write": (str(project), str(project / ".toolcrib/tools")),
        "protect": tuple(
            str(project / p) for p in (".git/hooks", ".git/config", ".toolcrib", ".glee", "src/deep/er")
        ),
        "scratch": (str(project / ".toolcrib/scratch"),),
    }
    (project / ".toolcrib/tools").mkdir()
    for attack in (
        "echo evil > .git/hooks/pre-commit",
        "echo evil > .git/config",
        "touch .git/hooks/new",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/old",
        "mv .git .git-old",
        "mv src/deep src/other",
        "mv src other",
        "rm -rf .toolcrib",
        "mv .toolcrib t",
        "touch .toolcrib/tools/new",
        "ln .git/config copy && echo evil > copy",
        "rm .git/config",
        "mv src/file .git/config",
    ):
        done = shell(ground, attack, **rules)
        assert done.exit_code != 0, f"{attack}: {said(done)}"
    assert CANARY in (project / ".git/hooks/pre-commit").read_text()
    assert CANARY in (project / ".git/config").read_text()
    assert CANARY in (project / "src/deep/er/file").read_text()
    done = shell(ground, "echo x > .toolcrib/scratch/x && echo x > .git/HEAD && echo x > src/deep/y", **rules)
    assert done.exit_code == 0, said(done)
    assert done.enforcement["unprotected"] == [str(project / ".glee")]


@claim
def a_link_to_what_is_protected_stays_what_it_is(ground: Ground) -> None:
    project = ground.project
    (project / "impl").mkdir()
    (project / "impl/run").write_text("honest\n")
    (project / "impl/free").symlink_to("run")
    (project / "way").symlink_to("impl")
    (project / "bin").mkdir()
    (project / "bin/t").symlink_to("../way/run")
    rules = {"write": (str(project),), "protect": (str(project / "bin/t"),)}
    for attack in (
        "rm bin/t", "mv bin/t x", "echo evil > x; mv x bin/t", "ln -sfn ../x bin/t", "mv bin b", "rm way",
        "mkdir e; mv -T e way", "ln -sfn e way", "mv way w", "echo evil > bin/t", "mv impl i",
    ):  # fmt: skip
        assert shell(ground, attack, **rules).exit_code != 0, attack
        assert (project / "bin/t").read_text() == "honest\n", attack
        assert (project / "way").is_symlink(), attack
    assert shell(ground, "cat bin/t && rm impl/free && touch bin/new impl/new", **rules).exit_code == 0


@claim
def a_grant_must_be_what_it_says(ground: Ground) -> None:
    def job(*read: str, **more: tuple[str, ...]) -> Confinement:
        return Confinement(argv=("true",), cwd="/", read=read, **more)  # type: ignore[arg-type]  # tuples only

    project = ground.project
    missing, link = str(project / "nothing"), str(project / "link-out")
    refused(ToolUnavailable, missing, job(missing))
    refused(ToolUnavailable, missing, job(write=(missing,)))
    refused(PermissionDenied, link, job(link))
    refused(PermissionDenied, "symbolic link", job(f"{link}/canary"))
    refused(PermissionDenied, "root folder", job("/"))
    for path in ("/proc", "/proc/1", "/sys", "/dev", "/dev/null"):
        refused(PermissionDenied, path, job(path))
    refused(PermissionDenied, "never readable", job(str(project / ".env"), hide=(str(project / ".env"),)))


@claim
def a_shown_link_leads_to_what_is_granted_and_to_nothing_else(ground: Ground) -> None:
    project = str(ground.project)
    links = ((f"{project}-link", project), (f"{project}-out", str(ground.outside)))
    done = shell(ground, f"cat {project}-link/src/file; ls {project}-out/", read=(project,), links=links)
    assert done.stdout == f"{CANARY} file\n".encode(), said(done)
    assert done.exit_code != 0


@claim
def the_working_folder_must_be_granted(ground: Ground) -> None:
    cwd = str(ground.project)
    refused(PermissionDenied, "not granted", Confinement(argv=("true",), cwd=cwd))
    refused(PermissionDenied, "not granted", Confinement(argv=("true",), cwd="/tmp/sub"))
    gone = f"{cwd}/gone"
    refused(ToolUnavailable, gone, Confinement(argv=("true",), cwd=gone, read=(cwd,)))
    done = run_now(Confinement(argv=("/bin/sh", "-c", "pwd; ls -A; touch x"), cwd=cwd, empty=(cwd,)))
    assert done.stdout.decode() == f"{cwd}\n"
    assert done.exit_code != 0


@claim
def no_mount_honours_setuid_or_devices(ground: Ground) -> None:
    done = shell(ground, "cat /proc/self/mountinfo", write=(str(ground.project),))
    for line in done.stdout.decode().splitlines():
        place, options = line.split()[4:6]
        assert "nosuid" in options.split(","), line
        assert "nodev" in options.split(",") or place.startswith("/dev/"), line
        writable = place in ("/tmp", "/dev/shm") or place.startswith(str(ground.project))
        assert writable or "ro" in options.split(","), line


# Processes and privileges


@claim
def every_namespace_is_its_own(ground: Ground) -> None:
    done = shell(ground, "cd /proc/self/ns && readlink mnt pid net ipc uts cgroup; hostname")
    mine = {
        str(Path(f"/proc/self/ns/{name}").readlink())
        for name in ("mnt", "pid", "net", "ipc", "uts", "cgroup")
    }
    assert len(done.stdout.split()) == 7
    assert not mine & set(done.stdout.decode().split())


@claim
def no_capability_is_left(ground: Ground) -> None:
    done = shell(ground, "grep -E '^(Cap|NoNewPrivs|Seccomp:|SigIgn|SigBlk|Groups)' /proc/self/status")
    status = dict(line.split(":\t", 1) for line in done.stdout.decode().splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "SigIgn", "SigBlk"):
        assert int(status[name], 16) == 0, (name, status)
    assert status["NoNewPrivs"] == "1"


@claim
def every_layer_is_in_force(ground: Ground) -> None:
    limit = "/proc/sys/user/max_user_namespaces"
    done = shell(ground, f"grep -E '^Seccomp' /proc/self/status; cat /proc/self/cgroup {limit}")
    assert "Seccomp:\t2" in said(done), said(done)
    assert "toolcrib" not in said(done), said(done)
    missing = done.enforcement.get("missing", ())
    assert done.stdout.endswith(b"\n0\n") or "max_user_namespaces" in missing, said(done)
    outside, project = ground.outside, ground.project
    # Landlock says no (EACCES) where the mounts alone would say that it is read-only or let it be.
    done = python(
        f"""
import ctypes, errno, os, socket
def attempt(name, action):
    try:
        action()
        print("DONE", name)
    except OSError as e:
        print("refused", name, errno.errorcode[e.errno])
attempt("write", lambda: open({str(project)!r} + "/src/file", "a"))
attempt("inet", lambda: socket.socket())
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("netlink", lambda: socket.socket(16, socket.SOCK_RAW))
attempt("setuid bit", lambda: os.chmod("/tmp", 0o4777))
attempt("device", lambda: os.mknod("/tmp/device", 0o20600, 0x103))
attempt("signal to pid 1", lambda: os.kill(1, 0))
libc = ctypes.CDLL(None, use_errno=True)
print([libc.syscall(ctypes.c_long(n), *[ctypes.c_long(0)] * 5) for n in (425, 435)], ctypes.get_errno())
""",
        read=(str(project),),
    )
    assert outside.exists()
    assert "DONE" not in said(done), said(done)
    assert said(done).count("refused") == 7, said(done)
    assert "[-1, -1] 38" in said(done), said(done)


@claim
def the_sandbox_goes_before_the_server_does_when_memory_runs_out(ground: Ground) -> None:
    done = python("print(open('/proc/self/oom_score_adj').read(), open('/proc/1/oom_score_adj').read())")
    assert done.stdout.split() == [b"1000", b"1000"], said(done)


@claim
def a_secret_is_in_the_command_alone(ground: Ground) -> None:
    secret = f"s3cret-{os.getpid()}"

    async def watch() -> dict[int, str]:
        job = Confinement(argv=("sleep", "30"), cwd="/", env={"KEY": secret})
        task = asyncio.ensure_future(run(job))
        try:
            assert await asyncio.to_thread(eventually, lambda: processes_knowing(secret))
            assert not processes_with(secret)
            return processes_knowing(secret)
        finally:
            task.cancel()
            await asyncio.wait([task])

    holders = asyncio.run(watch())
    assert holders
    assert all("launcher" not in command for command in holders.values()), holders


@claim
def nobody_looks_into_the_launcher(ground: Ground) -> None:
    assert shell(ground, "true").exit_code == 0
    # The kernel gives these files to root where the process cannot be looked into (proc(5)).
    assert Path(f"/proc/{shared().pids()['']}/mem").stat().st_uid == 0


@claim
def no_descriptor_is_inherited(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, (ground.outside / "canary").open() as canary:
        for fd in (listener.fileno(), canary.fileno()):
            os.set_inheritable(fd, True)
        done = python("import os; print(sorted(os.listdir('/proc/self/fd')))")
        assert eval(done.stdout) == ["0", "1", "2", "3"], said(done)  # 3 is the listing itself
        kept = python("import os; os.write(3, b'r'); print(os.listdir('/proc/self/fd'))", result_limit=10)
        assert kept.result == b"r"
        assert len(eval(kept.stdout)) == 5, said(kept)


@claim
def limits_hold(ground: Ground) -> None:
    done = shell(
        ground, "ulimit -c -f -n -t; ulimit -Hn; ulimit -n 4096", open_files=77, file_size=1_048_576, cpu_s=9
    )
    words = said(done).split()
    assert "77" in words, said(done)
    assert done.exit_code != 0
    big = shell(ground, "head -c 3000000 /dev/zero > /tmp/x", file_size=1_048_576)
    assert big.exit_code != 0
    small = shell(ground, "stat -f -c %c /tmp /dev/shm", tmp_size=1 << 20)
    assert small.stdout == b"1024\n1024\n", said(small)
    spin = shell(ground, "while :; do :; done", cpu_s=1)
    assert spin.signal in (9, 24), spin


@claim
def pid_1_is_not_bounded_by_what_the_command_is(ground: Ground) -> None:
    done = shell(
        ground, "grep -E 'cpu|file size|open files' /proc/1/limits", open_files=77, file_size=78, cpu_s=79
    )
    assert done.exit_code == 0, said(done)
    assert not {"77", "78", "79"} & set(said(done).split()), said(done)


def main(folder: str) -> dict[str, str]:
    failed = {}
    for number, function in enumerate(CLAIMS):
        ground = Ground.make(Path(folder) / str(number))
        try:
            function(ground)
        except (AssertionError, ToolcribError, OSError):
            failed[function.__name__] = traceback.format_exc()
    return failed


def ignore_signals_of_the_c_library() -> None:
    """Leave our children what a parent that does without the C library can leave them."""
    number = {"x86_64": 13, "aarch64": 134}[os.uname().machine]  # rt_sigaction
    for signal in (32, 33):
        assert ctypes.CDLL(None).syscall(number, signal, struct.pack("QQQQ", 1, 0, 0, 0), None, 8) == 0


if __name__ == "__main__":
    ignore_signals_of_the_c_library()
    with tempfile.TemporaryDirectory(dir=sys.argv[2]) as temporary:
        outcome = main(temporary)
    json.dump({"tried": len(CLAIMS), "uid": os.getuid(), "failed": outcome}, sys.stdout)
