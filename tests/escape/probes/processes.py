"""Processes of the machine are out of reach, and nothing of a call outlives it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import subprocess
import sys
import termios
from pathlib import Path

from tests.escape.arena import PATH, Arena, eventually
from tests.escape.contestants import end
from tests.escape.probe import Found, Outcome, probe
from tests.patience import GROWING_MS, patient

HOLD = "while :; do sleep 0.2; done"


def alive(marker: str) -> list[int]:
    """Processes of the machine with a mark on their command line, this one apart."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def state(pid: int) -> str:
    """R, S, T, Z, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def parent(pid: int) -> int:
    """The process it is a child of; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@probe("processes", "signal, trace, slow down and limit processes of the machine by number", compiled=True)
def machine_processes(arena: Arena) -> Found:
    with arena.victim() as victim:
        before = (os.getpriority(os.PRIO_PROCESS, victim.pid), os.sched_getaffinity(victim.pid))
        limit = resource.prlimit(victim.pid, resource.RLIMIT_NOFILE)
        done = arena.attack("touch", victim.pid)
        hurt = [] if eventually(lambda: state(victim.pid) == "S") else [f"state {state(victim.pid)!r}"]
        if not hurt:
            now = (os.getpriority(os.PRIO_PROCESS, victim.pid), os.sched_getaffinity(victim.pid))
            hurt += [] if now == before else [f"priority {now}"]
            hurt += [] if resource.prlimit(victim.pid, resource.RLIMIT_NOFILE) == limit else ["limits"]
    return arena.found(done, hurt, " ".join(hurt) or done.text)


@probe(
    "processes",
    "signal everything there is, the watching process and the parents",
    compiled=True,
    contained=True,
)
def signal_everything(arena: Arena) -> Found:
    with arena.victim() as victim:
        done = arena.attack("killall")
        still = eventually(lambda: state(victim.pid) == "S")
        hurt = not still or os.getpriority(os.PRIO_PROCESS, victim.pid) == 17
        said = f"victim {state(victim.pid)!r}, exit {done.exit_code}, {done.seconds:.1f} s; {done.text}"
    return arena.found(done, hurt or done.timed_out, said)


@probe("processes", "see the machine's processes")
def process_list(arena: Arena) -> Found:
    marker = f"sleeping-{arena.token}"
    with subprocess.Popen(["sh", "-c", HOLD, marker], start_new_session=True) as victim:
        try:
            done = arena.sh("cat /proc/*/cmdline /proc/*/comm; ps -ef; ls /proc")
        finally:
            victim.kill()
    end(marker)
    return arena.found(done, marker in done.text or str(victim.pid) in done.text.split())


@probe("processes", "enter another process's namespaces", compiled=True)
def foreign_namespaces(arena: Arena) -> Found:
    with arena.victim() as victim:
        return arena.nothing_gained(arena.attack("setns", victim.pid, os.getpid()))


def leftovers(arena: Arena, how: str, timeout_ms: int) -> Found:
    """Run a family that does not want to end; afterwards none of it may be there, and in time."""
    marker = f"deaf-{arena.token}"
    done = arena.attack("deaf", how, marker, timeout_ms=timeout_ms)
    gone = eventually(lambda: not alive(marker))
    left = len(alive(marker))
    end(marker)
    late = done.seconds > timeout_ms / 1000 + patient(15)
    said = f"tried; {left} left, {done.seconds:.1f} s, timed out: {done.timed_out}"
    return arena.found(done, not gone or late, said)


@probe("processes", "leave daemons behind: own sessions, deaf to signals, stopped, in vfork", compiled=True)
def daemons_after_the_end(arena: Arena) -> Found:
    return leftovers(arena, "exit", 60_000)


@probe(
    "processes", "outlive the time limit: deaf, stopped, with the watching process signalled", compiled=True
)
def deaf_at_the_time_limit(arena: Arena) -> Found:
    for limit_ms in GROWING_MS:
        found = leftovers(arena, "stay", limit_ms)
        if found.outcome is not Outcome.NOT_RUN:
            break
    else:
        raise AssertionError("no limit is long enough")
    return found


@probe("processes", "hold the output open after the command has ended")
def output_held_open(arena: Arena) -> Found:
    marker = f"held-{arena.token}"
    done = arena.sh(f"setsid sh -c 'trap \"\" HUP TERM; {HOLD}' {marker} & sleep 0.1; exit 0")
    left = not eventually(lambda: not alive(marker))
    end(marker)
    return arena.found(done, left or done.timed_out, f"tried; {done.seconds:.1f} s, left: {left}")


@probe("processes", "leave hundreds of zombies", compiled=True)
def zombies(arena: Arena) -> Found:
    def count() -> int:
        dead = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        dead = [pid for pid in dead if state(int(pid)) == "Z"]
        return sum(parent(int(pid)) == os.getpid() for pid in dead)

    done = arena.attack("zombies", 400)
    left = count()
    return arena.found(done, left, f"{left} zombies of the server; {done.text}")


@probe("processes", "live on when the server is killed")
def server_killed(arena: Arena) -> Found:
    marker = f"orphan-{arena.token}"
    ready = arena.project / "src/ready"
    script = f"trap '' TERM HUP INT; setsid sh -c '{HOLD}' {marker} & touch {ready}; {HOLD}"
    server = os.fork()
    if server == 0:
        try:
            arena.run("/bin/sh", "-c", script, marker, write=[ready.parent])
        finally:
            os._exit(0)
    started = eventually(ready.exists) and eventually(lambda: len(alive(marker)) >= 2)
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    gone = eventually(lambda: not alive(marker))
    left = len(alive(marker))
    end(marker)
    if not started:
        return Found(Outcome.NOT_RUN, "the command did not start", arena.report)
    return Found(Outcome.BLOCKED if gone else Outcome.ESCAPED, f"{left} processes left", arena.report)


@probe(
    "processes", "share memory, semaphores and messages with the machine by number and by name", compiled=True
)
def shared_memory(arena: Arena) -> Found:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    key = int.from_bytes(os.urandom(3), "big") + 1
    size = ctypes.c_size_t(4096)
    memory, queue, sets = (
        libc.shmget(key, size, 0o1666),
        libc.msgget(key, 0o1666),
        libc.semget(key, 1, 0o1666),
    )
    address = libc.shmat(memory, None, 0)
    ctypes.memmove(address, arena.token.encode() + b"\0", len(arena.token) + 1)
    libc.msgsnd(
        queue, ctypes.c_long(1).value.to_bytes(8, sys.byteorder) + arena.token.encode(), len(arena.token), 0
    )
    try:
        done = arena.attack("sysv", key, f"/{arena.token}")
    finally:
        libc.shmdt(ctypes.c_void_p(address))
        libc.shmctl(memory, 0, None)
        libc.msgctl(queue, 0, None)
        libc.semctl(sets, 0, 0)
    return arena.nothing_gained(done)


@probe("processes", "change the machine's name", compiled=True)
def host_name(arena: Arena) -> Found:
    before = os.uname().nodename
    done = arena.attack("hostname", "escaped")
    after = os.uname().nodename
    if after != before:
        ctypes.CDLL(None).sethostname(before.encode(), len(before))
    return arena.found(done, after != before, after)


@probe("processes", "type into the server's terminal", compiled=True)
def terminal(arena: Arena) -> Found:
    ours, theirs = os.openpty()
    answer, told = os.pipe()
    child = os.fork()
    if child == 0:
        typed = b""
        try:
            os.setsid()
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(theirs, fd)
            done = arena.attack("tiocsti")
            flags = termios.tcgetattr(theirs)
            flags[3] &= ~termios.ICANON
            termios.tcsetattr(theirs, termios.TCSANOW, flags)
            os.set_blocking(theirs, False)
            try:
                typed = os.read(theirs, 10)
            except OSError:
                pass
            os.write(told, f"{'typed' if typed else 'silent'} {done.text}".encode()[:2000])
        finally:
            os._exit(0)
    os.close(told)
    os.close(theirs)
    said = b""
    while part := os.read(answer, 4096):
        said += part
    os.waitpid(child, 0)
    for fd in (ours, answer):
        os.close(fd)
    text = said.decode(errors="replace")
    if "tried" not in text:
        return Found(Outcome.NOT_RUN, text[:200], arena.report)
    outcome = Outcome.ESCAPED if text.startswith("typed") else Outcome.BLOCKED
    return Found(outcome, " ".join(text.split())[:200], arena.report)


@probe("processes", "run with the rights of whom a set-user-id program belongs to", compiled=True)
def set_user_id_program(arena: Arena) -> Found:
    assert arena.attacks is not None
    program = arena.project / "src/suid"
    program.write_bytes(arena.attacks.read_bytes())
    program.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(program, 65534, 65534)
    program.chmod(0o6755)
    system = [
        path for path in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp") if os.access(path, os.X_OK)
    ]
    done = arena.attack("suid", program, *system, read=[arena.project / "src"])
    return arena.nothing_gained(done)


@probe("processes", "keep what a cancelled call had started", ours_only=True)
def cancelled(arena: Arena) -> Found:
    import asyncio

    from toolcrib.sandbox import Confinement, run

    marker = f"cancelled-{arena.token}"
    script = f"trap '' TERM HUP; setsid sh -c '{HOLD}' {marker} & {HOLD}"
    seen = 0

    async def cancel() -> None:
        nonlocal seen
        argv = ("/bin/sh", "-c", script, marker)
        task = asyncio.ensure_future(run(Confinement(argv=argv, cwd="/tmp", env={"PATH": PATH})))
        await asyncio.to_thread(eventually, lambda: len(alive(marker)) >= 2)
        seen = len(alive(marker))
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(cancel())
    left = len(alive(marker))
    end(marker)
    outcome = Outcome.NOT_RUN if seen < 2 else Outcome.ESCAPED if left else Outcome.BLOCKED
    return Found(outcome, f"{seen} before, {left} after", arena.report)
