"""Find out what this machine can enforce, by trying.

Each mechanism is tried by a short-lived process. Version numbers prove nothing where a container, a sysctl or
a security module disables what the kernel has. A level is tried as a whole, in the way tools are run at it.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ToolcribError
from toolcrib.sandbox.host.failures import HINTS, why
from toolcrib.sandbox.levels import probe_cache
from toolcrib.spec import Level, Network
from toolcrib.spec.record import record

if TYPE_CHECKING:
    import asyncio

MACHINES = ("aarch64", "x86_64")
NO_SANDBOX = "command and Python tools are refused"
LOWER = "command and Python tools run at level landlock only, where the project allows it"
UNLIMITED_MEMORY = (
    "tools that state limits.memory_bytes are refused; the memory of other tools is not limited"
)
UNLIMITED = "tools that state limits.memory_bytes or limits.processes are refused; others have no such limit"
BY_NUMBER = "processes are ended by their number (kill), after a check that it is still theirs"
NO_PROXY = "tools with a list of hosts or network: true fail"
PROXY_WORKS = "works, for HTTP, CONNECT and SOCKS5; other protocols need `network: host`"
NO_LEVEL = "there is no lower level to run at where namespaces are not supported"
LOWER_LEVEL = "level landlock"
"""The mechanism that stands for the level; needed only where `full` is not supported."""
KERNEL = (
    "user namespace", "mount namespace", "pid namespace", "net namespace", "ipc namespace", "uts namespace",
    "cgroup namespace", "no_new_privs", "mount_setattr", "openat2",
)  # fmt: skip
CALLS = ("memfd_create", "prlimit64", "pidfd_send_signal")
"""System calls that a container's filter may deny."""
NEEDED_AT_LANDLOCK = ("no_new_privs", "landlock", "seccomp", "memfd_create", "prlimit64")
# Prints the status that the proxy answers with for each of two ports of the machine.
REQUESTS = """
import os, socket, sys
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
for target in sys.argv[1:]:
    with socket.create_connection((host, int(port)), 5) as sock:
        sock.sendall(f"GET http://127.0.0.1:{target}/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
        print(sock.recv(99).decode().split()[1])
"""
# Each line prints what is not enforced.
ESCAPES = """
(: <{canary}) 2>/dev/null && echo "a file outside the grants can be read" >&2 && exit 1
(: >{canary}.new) 2>/dev/null && echo "a file outside the grants can be created" >&2 && exit 1
kill -0 {pid} 2>/dev/null && echo "processes outside can be sent signals (before Linux 6.12)" >&2 && exit 1
: >"$TMPDIR/own"
"""


@record
class Mechanism:
    """One thing that the kernel can or cannot do."""

    name: str
    ok: bool
    detail: str
    cost: str
    """The cost of its absence to the user; empty where it costs nothing today."""
    required: bool = True
    """True if level `full` needs it."""


@cache
def probe() -> tuple[Mechanism, ...]:
    """Try every mechanism, once per process; takes about a quarter of a second."""
    from toolcrib.sandbox.host.enforcement import groups

    if sys.platform != "linux" or os.uname().machine not in MACHINES:
        detail = f"this is {sys.platform} on {os.uname().machine}; Linux on x86_64 or aarch64 is needed"
        return (Mechanism("linux", False, detail, NO_SANDBOX),)
    kernel = {name: kernel_mechanism(name, answer) for name, answer in kernel_trials().items()}
    pool, groups_found = groups()
    no_groups = "" if pool else f"{groups_found} ({HINTS['cgroup']})"
    unlimited = UNLIMITED if os.geteuid() == 0 else UNLIMITED_MEMORY
    found = [
        *(kernel[name] for name in (*KERNEL, *CALLS)),
        mechanism("all together", level_trial(":", "full"), LOWER),
        *(kernel[name] for name in ("landlock", "seccomp")),
        mechanism(LOWER_LEVEL, lower_trial(), NO_LEVEL, required=False),
        mechanism("cgroup", no_groups, unlimited, required=False, works=groups_found),
        mechanism("network by proxy", proxy_trial(), NO_PROXY, required=False, works=PROXY_WORKS),
    ]
    if not any(one.ok for one in found if one.name == LOWER_LEVEL):
        found = [replace(one, cost=NO_SANDBOX) if one.cost == LOWER else one for one in found]
    probe_cache.keep(level_of(found))
    return tuple(found)


def level_of(mechanisms: Iterable[Mechanism]) -> Level:
    """Return the best level that these mechanisms support."""
    found = tuple(mechanisms)
    if all(one.ok for one in found if one.required):
        return "full"
    return "landlock" if any(one.ok and one.name == LOWER_LEVEL for one in found) else "none"


@cache
def in_force() -> Level:
    """Return the best level of this machine, as found since it was started; it is tried now if it was not.

    That may take half a second. A wrong memory never confines less: a mechanism that does not work makes the
    call fail.
    """
    return probe_cache.known() or level_of(probe())


def forget() -> None:
    """Have the machine tried anew, here and by other processes: it is not as remembered."""
    probe_cache.forget()
    in_force.cache_clear()
    probe.cache_clear()


def level() -> Mapping[str, Any]:
    """Return the enforcement report of this machine, in the form of a result's report.

    Anything below `full` is used only where a project allows it.
    """
    from toolcrib.sandbox.host.enforcement import machine

    best = level_of(probe())
    missing = [one.name for one in probe() if one.required and not one.ok]
    return {**machine(best), **({} if best == "full" else {"missing": missing})}


def mechanism(
    name: str, trouble: str, cost: str, *, required: bool = True, works: str = "works"
) -> Mechanism:
    """Return a mechanism that works unless there is trouble."""
    return Mechanism(name, not trouble, trouble or works, cost if trouble else "", required)


def kernel_trials() -> dict[str, str]:
    """Try each mechanism of the kernel in a process of its own; return the answers of `levels.trial`."""
    import subprocess

    from toolcrib.sandbox.host.handle import FLAGS, bare_main

    names = (*KERNEL, *CALLS, "landlock", "seccomp")
    argv = [sys.executable, *FLAGS, *bare_main("levels.trial"), *names]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, env={}, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return dict.fromkeys(names, str(error))
    found = dict(line.split("\t") for line in done.stdout.splitlines())
    return {name: found.get(name, "the trial could not be run") for name in names}


def kernel_mechanism(name: str, answer: str) -> Mechanism:
    """Return a mechanism with the answer of its trial: `works …`, an errno, or words."""
    trouble = "" if answer.startswith("works") else answer
    if answer.isdigit():
        trouble = why(name, int(answer))
        if name in HINTS and (int(answer) == errno.ENOSYS or name in ("user namespace", *CALLS)):
            trouble += f" ({HINTS[name]})"
    cost = NO_SANDBOX if name in NEEDED_AT_LANDLOCK else LOWER
    substitutes = {"pidfd_send_signal": BY_NUMBER}
    if os.geteuid() == 0:
        substitutes["user namespace"] = "nothing changes, because Toolcrib runs as root"
    return mechanism(
        name, trouble, substitutes.get(name, cost), required=name not in substitutes, works=answer
    )


def lower_trial() -> str:
    """Run a shell at level `landlock` that tries to open a file, to signal us and to write to /tmp."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile() as canary:
            return level_trial(ESCAPES.format(canary=canary.name, pid=os.getpid()), "landlock")
    except OSError as error:
        return f"each call needs a folder for temporary files: {error.strerror or error}"


def level_trial(script: str, level: Level) -> str:
    """Run a shell script at a level. Return what went wrong; empty if nothing did."""
    from toolcrib.sandbox.host.runner import execute
    from toolcrib.sandbox.job import Confinement

    job = Confinement(argv=("/bin/sh", "-c", script), cwd="/tmp", timeout_ms=10_000)  # noqa: S108 - its own

    async def trial() -> str:
        done = await execute(job, level)
        error = done.stderr.decode(errors="replace").strip()
        return "" if done.exit_code == 0 else error or f"the trial ended with {done.exit_code}"

    return trouble_of(trial)


def proxy_trial() -> str:
    """Have a confined program call two ports of this machine through the proxy; one of them is allowed."""
    import asyncio
    import socket

    from toolcrib.egress import Proxy, program_policy
    from toolcrib.sandbox.host.runner import execute
    from toolcrib.sandbox.job import Confinement

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

            argv = (python, "-I", "-S", "-c", REQUESTS, str(port), str(port % 65_535 + 1))
            job = Confinement(argv, "/", read=own, network="proxy", outlet=outlet, timeout_ms=10_000)
            done = await execute(job, "full")
        answers = done.stdout.decode(errors="replace").split()
        return "" if answers == ["204", "403"] else f"the trial printed {answers} and {done.stderr[-300:]!r}"

    return trouble_of(trial)


def trouble_of(trial: Callable[[], Coroutine[Any, Any, str]]) -> str:
    """Return what is wrong, by a trial in an event loop of its own: the caller may be inside one."""
    import asyncio

    outcome: list[str] = []

    def body() -> None:
        try:
            outcome.append(asyncio.run(trial()))
        except ToolcribError as error:
            outcome.append(f"{error.message} ({error.hint})" if error.hint else error.message)
        except Exception as error:
            outcome.append(str(error) or type(error).__name__)

    # `asyncio.run` refuses to run inside a running loop.
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return outcome[0]
