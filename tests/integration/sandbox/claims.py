"""What the sandbox promises, each promise tried by a hostile command against the real kernel.

A claim is a function that raises AssertionError. pytest runs each; run as a script, the file runs them
all as whoever started it and prints a JSON object of what failed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
def foreign_files_are_not_there(ground: Ground) -> None:
    paths = ["/etc/shadow", "/etc/ssl/private", "/root", "/home", "/var", "/run", "/sys/kernel"]
    for path in (*paths, str(ground.outside / "canary"), str(ground.project / "src/file")):
        done = shell(ground, f"cat {path} || ls {path}")
        assert done.exit_code != 0, path
        assert "No such file" in said(done), said(done)
        assert CANARY not in said(done)


@claim
def no_path_leads_out_of_a_grant(ground: Ground) -> None:
    project = str(ground.project)
    for path in (
        "../outside/canary",
        "src/../../outside/canary",
        "link-out/canary",
        "/proc/self/cwd/../outside/canary",
        f"/proc/self/root{ground.outside}/canary",
        f"/proc/1/root{ground.outside}/canary",
        f"/proc/1/cwd{ground.outside}/canary",
        f"/.old{ground.outside}/canary",
    ):
        done = shell(ground, f"cat {path}", write=(project,))
        assert done.exit_code != 0, path
        assert CANARY not in said(done), path
    done = shell(ground, f"ln -s {ground.outside} out; cat out/canary", write=(project,))
    assert CANARY not in said(done)


@claim
def the_system_is_read_only(ground: Ground) -> None:
    for target in ("/", "/usr/", "/etc/", "/dev/", "/proc/", "/bin/"):
        done = shell(ground, f"touch {target}new")
        assert done.exit_code != 0, target
    done = shell(ground, "chmod 777 /dev/null || chown 1 /dev/null || mknod /tmp/d c 1 11 || rm /bin/sh")
    assert done.exit_code != 0, said(done)
    assert (Path("/dev/null").stat().st_mode & 0o777) == 0o666


@claim
def tmp_is_private_and_writable(ground: Ground) -> None:
    done = shell(ground, f"touch /tmp/{CANARY} /dev/shm/{CANARY} && ls /tmp /dev/shm")
    assert done.exit_code == 0
    assert done.stdout.count(CANARY.encode()) == 2
    assert not Path(f"/tmp/{CANARY}").exists()
    assert not Path(f"/dev/shm/{CANARY}").exists()


@claim
def tmp_is_bounded(ground: Ground) -> None:
    done = shell(ground, "head -c 3000000 /dev/zero > /tmp/big", tmp_size=1_048_576)
    assert done.exit_code != 0
    assert b"No space left" in done.stderr


@claim
def a_read_grant_cannot_be_changed(ground: Ground) -> None:
    project = str(ground.project)
    for change in (
        "touch new", "echo x >> src/file", "rm src/file", "mv src/file x", "chmod 777 src/file", "mkdir d",
        "ln src/file x", "touch -d 2001-01-01 src/file", "chown $(id -u) src/file", "ln src/file /tmp/x",
    ):  # fmt: skip
        done = shell(ground, change, read=(project,))
        assert done.exit_code != 0, change
    done = shell(ground, "cat src/file", read=(project,))
    assert CANARY in said(done)


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
def hidden_places_cannot_be_read(ground: Ground) -> None:
    project = ground.project
    (project / "env-link").symlink_to(".env")
    rules = {
        "write": (str(project),),
        "hide": (str(project / ".env"), str(project / "secrets"), str(project / "not-there")),
    }
    for attack in (
        "cat .env", "cat env-link", "cat secrets/key", "ls secrets/key", "cp .env x; cat x",
        "mv .env x && cat x", "ln .env x; cat x", "mv secrets s && cat s/key", "chmod 777 .env; cat .env",
        "rm .env", "chmod 777 secrets; ls secrets/key", "touch secrets/new",
    ):  # fmt: skip
        done = shell(ground, attack, **rules)
        assert done.exit_code != 0, attack
        assert CANARY not in said(done), attack
    assert CANARY in (project / ".env").read_text()
    assert shell(ground, "ls -A secrets", **rules).stdout == b""


@claim
def a_link_to_a_secret_hides_the_secret(ground: Ground) -> None:
    link = ground.project / "linked-env"
    link.symlink_to("secrets/key")
    done = shell(ground, "cat linked-env secrets/key", read=(str(ground.project),), hide=(str(link),))
    assert CANARY not in said(done)


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


# Network


@claim
def no_socket_reaches_anything(ground: Ground) -> None:
    abstract = f"\0{CANARY}-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        with socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_UNIX) as named:
            unix.bind(abstract)
            unix.listen()
            name = str(ground.outside / "socket")
            named.bind(name)
            named.listen()
            code = f"""
import socket as s
def attempt(*kind, to, send=False):
    try:
        k = s.socket(*kind); k.settimeout(2)
        k.sendto(b"x", to) if send else k.connect(to)
        print("REACHED", kind, to)
    except OSError as e:
        print("refused", kind, e)
for host in ("127.0.0.1", "1.1.1.1", "169.254.169.254"):
    attempt(s.AF_INET, s.SOCK_STREAM, to=(host, {tcp.getsockname()[1]}))
    attempt(s.AF_INET, s.SOCK_DGRAM, to=(host, {udp.getsockname()[1]}), send=True)
    attempt(s.AF_INET, s.SOCK_DGRAM, to=(host, 53), send=True)
    attempt(s.AF_INET, s.SOCK_RAW, s.IPPROTO_ICMP, to=(host, 0), send=True)
attempt(s.AF_INET6, s.SOCK_STREAM, to=("::1", {tcp.getsockname()[1]}))
attempt(s.AF_PACKET, s.SOCK_RAW, to=("lo", 0), send=True)
attempt(s.AF_UNIX, s.SOCK_STREAM, to={abstract!r})
attempt(s.AF_UNIX, s.SOCK_STREAM, to={name!r})
print(open("/proc/net/dev").read())
"""
            done = python(code)
            assert done.exit_code == 0, said(done)
            assert "REACHED" not in said(done), said(done)
            assert said(done).count("\nrefused") == 15, said(done)
            interfaces = re.findall(r"^ *(\S+):", said(done), re.MULTILINE)
            assert set(interfaces) <= {"lo", "sit0", "tunl0", "ip6tnl0"}, interfaces
        try:
            udp.recv(1)
        except BlockingIOError:
            return
        raise AssertionError("a datagram came through")


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
    done = shell(ground, "grep -E '^Seccomp' /proc/self/status; cat /proc/self/cgroup")
    assert "Seccomp:\t2" in said(done), said(done)
    assert "toolcrib" not in said(done), said(done)
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
def no_privilege_can_be_gained(ground: Ground) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, result):
    print("GAINED" if result >= 0 else "refused", name, ctypes.get_errno())
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000):
    attempt(f"unshare {flag:x}", libc.unshare(flag))
attempt("mount", libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
attempt("remount", libc.mount(b"", b"/usr", None, 0x20 | 0x1000, None))
attempt("umount", libc.umount2(b"/proc/keys", 2))
attempt("umount", libc.umount2(b"/proc", 2))
attempt("chroot", libc.chroot(b"/tmp"))
attempt("ptrace", libc.ptrace(16, 1, None, None))
attempt("sethostname", libc.sethostname(b"x", 1))
attempt("setns", libc.setns(os.open("/proc/self/ns/net", 0), 0))
attempt("keep caps", libc.prctl(8, *(ctypes.c_ulong(v) for v in (1, 0, 0, 0))))
attempt("nice", libc.setpriority(0, 0, -5))
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/root", "/proc/1/cwd", "/proc/1/fd/10",
             "/proc/keys", "/proc/kcore", "/proc/kmsg"):
    try:
        os.readlink(path) if path.endswith(("root", "cwd", "10")) else open(path, "rb").read(1)
        print("GAINED", path)
    except OSError as e:
        print("refused", path, e.errno)
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger",
             "/proc/self/oom_score_adj", "/proc/irq/default_smp_affinity"):
    try:
        os.open(path, os.O_WRONLY)
        print("GAINED", path)
    except OSError as e:
        print("refused", path, e.errno)
"""
    done = python(code)
    assert done.exit_code == 0, said(done)
    assert "GAINED" not in said(done), said(done)


@claim
def the_sandbox_goes_before_the_server_does_when_memory_runs_out(ground: Ground) -> None:
    done = python("print(open('/proc/self/oom_score_adj').read(), open('/proc/1/oom_score_adj').read())")
    assert done.stdout.split() == [b"1000", b"1000"], said(done)


@claim
def other_processes_are_out_of_sight_and_reach(ground: Ground) -> None:
    secret = f"SECRET_{CANARY}"
    with subprocess.Popen(["sleep", "60"], env={"TOKEN": secret}) as victim:
        try:
            done = shell(ground, f"kill -9 {victim.pid}; ls /proc; cat /proc/*/environ /proc/*/cmdline")
            assert victim.poll() is None
            assert secret not in said(done)
            pids = [word for word in done.stdout.decode(errors="replace").split() if word.isdigit()]
            assert len(pids) <= 4, pids
        finally:
            victim.kill()


@claim
def the_servers_environment_is_not_passed_on(ground: Ground) -> None:
    os.environ["TOOLCRIB_TEST_SECRET"] = CANARY
    try:
        done = python("import os; print(dict(os.environ))", env={"A": "1"})
        scan = shell(ground, "cat /proc/*/environ")
    finally:
        del os.environ["TOOLCRIB_TEST_SECRET"]
    seen = {name for name in eval(done.stdout) if name != "LC_CTYPE"}
    assert seen == {"A"}, said(done)
    assert CANARY not in said(scan)


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
def the_servers_keys_are_out_of_reach(ground: Ground) -> None:
    add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
    call = f"""
import ctypes
syscall = ctypes.CDLL(None, use_errno=True).syscall
session, long = ctypes.c_long(-3), ctypes.c_long
def search():
    return syscall(long({keyctl}), long(10), session, b"user", b"{CANARY}", long(0))
"""
    scope: dict[str, Any] = {}
    exec(call, scope)
    key = scope["syscall"](
        scope["long"](add_key), b"user", CANARY.encode(), b"x", scope["long"](1), scope["session"]
    )
    if key < 0:  # No keyrings here: nothing to reach.
        return
    assert scope["search"]() == key
    done = python(call + "print(search())")
    assert done.stdout == b"-1\n", said(done)


@claim
def no_core_is_dumped(ground: Ground) -> None:
    done = python("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))")
    assert done.stdout == b"(1, 1)\n", said(done)


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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[2]) as temporary:
        outcome = main(temporary)
    json.dump({"tried": len(CLAIMS), "uid": os.getuid(), "failed": outcome}, sys.stdout)
