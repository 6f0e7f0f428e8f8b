"""What this machine can hold, found out by doing it.

Each mechanism is tried by a short-lived process; version numbers prove nothing where a container, a sysctl
or a security module takes away what the kernel has. A level is tried as a whole, the way tools are run at it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox.host.failures import ANY_NAMESPACE, HINTS, why
from toolcrib.sandbox.levels import probe_cache as recall
from toolcrib.spec import Level

__all__ = ["Mechanism", "forget", "in_force", "level", "probe", "require"]

MACHINES = ("aarch64", "x86_64")
NO_SANDBOX = "command and Python tools are refused"
LOWER = "command and Python tools run at level landlock only, where the project allows it"
UNBOUNDED = "tools that state limits.memory_bytes or limits.processes are refused; others have no such bound"
LOWER_LEVEL = "level landlock"
"""The mechanism that stands for the level; needed only where `full` cannot be had."""
# One process per trial: `python -c TRIAL NAME`, the mechanism's answer is the exit status (an errno).
TRIAL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
name, root = sys.argv[1], os.geteuid() == 0
def done(result):
    sys.stdout.write(str(ctypes.get_errno() if result < 0 else 0))
    sys.stdout.flush()
    os._exit(0)
def rights():
    # The launcher of a user who is not root has its rights from a user namespace.
    if not root or libc.unshare(0x20000) < 0:
        if libc.unshare(0x10000000) < 0:
            done(-1)
flags = {"mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000,
         "cgroup": 0x2000000}
how = (ctypes.c_uint64 * 4)()
big = ctypes.c_long
if name == "user":
    done(libc.unshare(0x10000000))
elif name in flags:
    rights()
    done(libc.unshare(flags[name]))
elif name == "no_new_privs":
    done(libc.prctl(38, *(ctypes.c_ulong(v) for v in (1, 0, 0, 0))))
elif name == "openat2":
    how[0] = os.O_PATH
    done(libc.syscall(big(437), big(-100), b"/", how, big(24)))
elif name == "mount_setattr":
    rights()
    if libc.unshare(0x20000) < 0:
        done(-1)
    how[0] = 1
    done(libc.syscall(big(442), big(-100), b"/", big(0x8000), how, big(32)))
"""
# The same, with the modules that do it for tools; the answer is what was held, or -1.
HELD = """
import ctypes, os, sys
for name, places in ("toolcrib", []), ("toolcrib.sandbox", [sys.argv[2]]):
    sys.modules[name] = module = type(sys)(name)
    module.__path__ = places
ctypes.CDLL(None).prctl(38, *(ctypes.c_ulong(v) for v in (1, 0, 0, 0)))
import _socket
answer = -1
try:
    if sys.argv[1] == "landlock":
        from toolcrib.sandbox.kernel import landlock
        version = landlock.Ruleset(read=["/usr"]).enforce()["abi"]
        try:
            os.open("/etc/passwd", os.O_RDONLY)
        except PermissionError:
            answer = version
    else:
        from toolcrib.sandbox.kernel import seccomp
        seccomp.install(seccomp.program(os.uname().machine, inet=False))
        try:
            _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        except PermissionError:
            answer = 1
except (OSError, ValueError):
    answer = 0
print(answer)
"""
# Writes the status that the proxy answers with for each of two ports of the machine.
CALLS = """
import os, socket, sys
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
for target in sys.argv[1:]:
    with socket.create_connection((host, int(port)), 5) as sock:
        sock.sendall(f"GET http://127.0.0.1:{target}/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
        print(sock.recv(99).decode().split()[1])
"""

# Each line says what was not held.
ESCAPES = """
(: <{canary}) 2>/dev/null && echo "a file outside of the grants can be read" >&2 && exit 1
(: >{canary}.new) 2>/dev/null && echo "a file outside of the grants can be made" >&2 && exit 1
kill -0 {pid} 2>/dev/null && echo "processes outside can be sent signals (before Linux 6.12)" >&2 && exit 1
: >"$TMPDIR/own"
"""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One thing the kernel can do, or cannot."""

    name: str
    ok: bool
    detail: str
    cost: str
    """What its absence costs the user; empty where it costs nothing today."""
    required: bool = True
    """Whether level `full` needs it."""


@cache
def probe() -> tuple[Mechanism, ...]:
    """Try every mechanism, once per process; takes about a quarter of a second."""
    if sys.platform != "linux" or os.uname().machine not in MACHINES:
        here = f"{sys.platform} on {os.uname().machine}"
        return (
            Mechanism("linux", False, f"this is {here}; needed is Linux on x86_64 or aarch64", NO_SANDBOX),
        )
    root = os.geteuid() == 0
    found = [tried("user namespace", "user", required=not root)]
    found += [tried(f"{name} namespace", name) for name in ("mount", "pid", "net", "ipc", "uts", "cgroup")]
    found += [tried(name, name) for name in ("no_new_privs", "mount_setattr")]
    openat2 = tried("openat2", "openat2")
    found += [openat2, whole(), landlock(), seccomp(), lower(), cgroup(), way_out()]
    if not next(one for one in found if one.name == LOWER_LEVEL).ok:
        found = [replace(one, cost=NO_SANDBOX) if one.cost == LOWER else one for one in found]
    remember(tuple(found))
    return tuple(found)


def remember(mechanisms: tuple[Mechanism, ...]) -> None:
    """Keep what was found for other processes of this user."""
    recall.keep([asdict(mechanism) for mechanism in mechanisms])


def recalled() -> tuple[Mechanism, ...] | None:
    """What was found before, by a process that stood as this one does; None where nothing was."""
    try:
        return tuple(Mechanism(**fields) for fields in recall.known())
    except TypeError:  # not in this form, or there is nothing
        return None


def level_of(mechanisms: Iterable[Mechanism]) -> Level:
    """The best level that these mechanisms make."""
    found = tuple(mechanisms)
    if all(mechanism.ok for mechanism in found if mechanism.required):
        return "full"
    return "landlock" if any(one.ok and one.name == LOWER_LEVEL for one in found) else "none"


@cache
def in_force() -> Level:
    """The best level of this machine, as it was found since it was started; tried now where it was not.

    May take half a second. Nothing is confined less for it: what was remembered as working and does not
    makes the call fail.
    """
    known = recalled()
    return level_of(probe() if known is None else known)


def forget() -> None:
    """Have it tried anew, here and in other processes: the machine is not as it was remembered."""
    recall.forget()
    in_force.cache_clear()
    probe.cache_clear()


def level() -> Mapping[str, Any]:
    """The enforcement that tools get here, in the form their results carry.

    What is below `full` is only run where a project allows it.
    """
    from toolcrib.sandbox.host.enforcement import report

    best = level_of(probe())
    missing = [mechanism.name for mechanism in probe() if mechanism.required and not mechanism.ok]
    return report(level=best) if best == "full" else {**report(level=best), "missing": missing}


_SANDBOX = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of `toolcrib.sandbox`, from which a trial imports."""


def require(at: Level = "full") -> None:
    """Raise SandboxUnavailable, naming each missing mechanism, unless tools can be confined here."""
    names = None if at == "full" else (LOWER_LEVEL,)
    needed = [one for one in probe() if (one.required if names is None else one.name in names)]
    missing = [mechanism for mechanism in needed if not mechanism.ok]
    if missing:
        raise SandboxUnavailable(
            "the sandbox cannot be set up here: " + "; ".join(f"{m.name}: {m.detail}" for m in missing),
            hint=HINTS.get(missing[0].name, ANY_NAMESPACE),
            details={"mechanism": missing[0].name, "missing": [m.name for m in missing]},
        )


def attempt(name: str, trial: str = TRIAL) -> int:
    """Run one trial; its number, or -1 where it could not even be started."""
    import subprocess

    try:
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                trial,
                name,
                os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            ],
            capture_output=True,
            env={},
            timeout=10,
            check=False,
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return -1


def tried(name: str, trial: str, required: bool = True) -> Mechanism:
    """A mechanism that works when its trial answers 0, and else says why not."""
    code = attempt(trial)
    detail = "works" if code == 0 else why(name, code) if code > 0 else "the trial could not be run"
    needed = NO_SANDBOX if name == "no_new_privs" else LOWER
    cost = "" if code == 0 else needed if required else "none: it runs as root"
    if name in HINTS and (code == errno.ENOSYS or (code and name == "user namespace")):
        detail += f" ({HINTS[name]})"
    return Mechanism(name, code == 0, detail, cost, required)


def whole() -> Mechanism:
    """Run a shell the way tools are run: the mechanisms must also work together."""
    trouble = trial_run(":", "full")
    return Mechanism("all together", not trouble, trouble or "works", LOWER if trouble else "")


def lower() -> Mechanism:
    """Run a shell at level `landlock`, and have it try to open a file, to signal us and to write to /tmp."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile() as canary:
            trouble = trial_run(ESCAPES.format(canary=canary.name, pid=os.getpid()), "landlock")
    except OSError as error:
        trouble = f"each call needs a folder for temporary files: {error.strerror or error}"
    cost = "there is nothing to fall back to where namespaces cannot be had" if trouble else ""
    return Mechanism(LOWER_LEVEL, not trouble, trouble or "works", cost, required=False)


def trial_run(script: str, level: Level) -> str:
    """What kept a shell script from running at a level to a good end; empty where nothing did."""
    from toolcrib.sandbox.host.runner import execute
    from toolcrib.sandbox.job import Confinement

    job = Confinement(argv=("/bin/sh", "-c", script), cwd="/tmp", timeout_ms=10_000)  # noqa: S108 - its own

    async def trial() -> str:
        done = await execute(job, level)
        told = done.stderr.decode(errors="replace").strip()
        return "" if done.exit_code == 0 else told or f"the trial ended with {done.exit_code}"

    return trouble_of(trial)


def way_out() -> Mechanism:
    """Have a confined program call two listeners of this machine through the proxy, one of them granted."""
    import asyncio
    import socket

    from toolcrib.egress import Proxy, program_policy
    from toolcrib.sandbox.host.runner import execute
    from toolcrib.sandbox.job import Confinement
    from toolcrib.spec import Network

    python = os.path.realpath(sys.executable)
    own = () if python.startswith("/usr/") else (os.path.realpath(sys.base_prefix),)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async def trial() -> str:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as granted:
            port = granted.sockets[0].getsockname()[1]
            policy = program_policy(Network("hosts", (f"127.0.0.1:{port}",)))

            def outlet(listener: socket.socket) -> Proxy:
                return Proxy(listener, policy, on_refusal=lambda _: None)

            argv = (python, "-I", "-S", "-c", CALLS, str(port), str(port % 65_535 + 1))
            job = Confinement(argv, "/", read=own, network="proxy", outlet=outlet, timeout_ms=10_000)
            done = await execute(job, "full")
        said = done.stdout.decode(errors="replace").split()
        return "" if said == ["204", "403"] else f"the trial wrote {said} and {done.stderr[-300:]!r}"

    trouble = trouble_of(trial)
    detail = trouble or "works, for HTTP, CONNECT and SOCKS5; other protocols need `network: host`"
    cost = "tools with a list of hosts or network: true fail" if trouble else ""
    return Mechanism("network by proxy", not trouble, detail, cost, required=False)


def trouble_of(trial: Callable[[], Coroutine[Any, Any, str]]) -> str:
    """What is wrong, by a trial in an event loop of its own: the caller may be inside one."""
    import asyncio
    import threading

    from toolcrib.errors import ToolcribError

    outcome: list[str] = []

    def body() -> None:
        try:
            outcome.append(asyncio.run(trial()))
        except ToolcribError as error:
            outcome.append(f"{error.message} ({error.hint})" if error.hint else error.message)
        except OSError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return outcome[0] if outcome else "the trial failed"


def landlock() -> Mechanism:
    """Hold a process to /usr and have it try another file."""
    version = attempt("landlock", HELD)
    lost = "not offered by the kernel" if version == 0 else "does not hold"
    detail = f"works, ABI {version}" if version > 0 else lost
    return Mechanism("landlock", version > 0, detail, "" if version > 0 else NO_SANDBOX)


def seccomp() -> Mechanism:
    """Filter a process's system calls and have it try one that is refused."""
    held = attempt("seccomp", HELD)
    lost = "not offered by the kernel, or refused here" if held == 0 else "does not hold"
    detail = "works" if held > 0 else lost
    return Mechanism("seccomp", held > 0, detail, "" if held > 0 else NO_SANDBOX)


def cgroup() -> Mechanism:
    """Put a process in a group and see that it is counted there."""
    from toolcrib.sandbox.host.enforcement import groups

    pool, detail = groups()
    cost = "" if pool is not None else UNBOUNDED
    return Mechanism("cgroup", pool is not None, detail, cost, required=False)
