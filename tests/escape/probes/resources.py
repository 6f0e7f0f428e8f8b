"""What everybody shares is bounded: time, memory, processes, descriptors, space, output."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.escape.arena import Arena, eventually
from tests.escape.contestants import Done
from tests.escape.probe import Found, Outcome, probe
from tests.patience import GROWING_MS
from toolcrib.sandbox import level

MIB = 1_048_576


def number(text: str, word: str) -> int:
    """The number after a word in what an attack said; 0 without one."""
    match = re.search(rf"^{word} (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def limited(**wanted: int) -> dict[str, Any]:
    """These limits where this user's sandbox can hold them; else the usual bounds are tried."""
    limits = level()["limits"]
    held = {"memory_bytes": limits["memory"], "processes": limits["processes"]}
    return {name: value for name, value in wanted.items() if held[name] != "not enforced"}


def at_its_limit(run: Callable[[int], Done]) -> Done:
    """Run a job with a limit (ms) that it outlives, but that lets it begin."""
    for limit_ms in GROWING_MS:
        done = run(limit_ms)
        if "tried" in done.text:
            break
    else:
        raise AssertionError("no limit is long enough")
    return done


@probe("resources", "run past the time limit, deaf to its signals")
def wall_clock(arena: Arena) -> Found:
    done = at_its_limit(
        lambda ms: arena.sh("trap '' TERM INT HUP; while :; do sleep 0.05; done", timeout_ms=ms)
    )
    return arena.found(done, not done.timed_out, f"tried; {done.seconds:.2f} s")


@probe("resources", "use more CPU time than is given", ours_only=True)
def cpu_time(arena: Arena) -> Found:
    done = arena.sh("trap '' XCPU; while :; do :; done", cpu_s=1, timeout_ms=300_000)
    return arena.found(
        done, done.timed_out or done.signal is None, f"tried; {done.seconds:.1f} s, signal {done.signal}"
    )


@probe(
    "resources", "flood the output: the server keeps no more than the limit", compiled=True, ours_only=True
)
def output_flood(arena: Arena) -> Found:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = arena.attack("flood", 1, 256, output_limit=100_000)
    kept, total = len(done.stdout), done.stdout_total
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    said = f"tried; {kept} of {total} bytes kept, {grown} KiB more memory"
    return arena.found(done, kept > 100_000 or total < 256 * MIB or grown > 32_768, said)


@probe("resources", "flood the result channel", compiled=True, ours_only=True)
def result_flood(arena: Arena) -> Found:
    done = arena.attack("flood", 3, 64, result_limit=1000)
    return arena.found(
        done, len(done.result) > 1000 or done.timed_out, f"tried; {len(done.result)} bytes kept"
    )


@probe("resources", "write without end, past the time limit", compiled=True, ours_only=True)
def endless_output(arena: Arena) -> Found:
    done = at_its_limit(lambda ms: arena.attack("flood", 2, 1_000_000, timeout_ms=ms))
    return arena.found(done, not done.timed_out, f"tried; {done.seconds:.2f} s")


@probe("resources", "open more files than is allowed, and raise the limit", compiled=True, ours_only=True)
def descriptors(arena: Arena) -> Found:
    done = arena.attack("fds", open_files=100)
    held = number(done.text, "held")
    return arena.found(done, held > 100, done.text)


@probe("resources", "fill /tmp", compiled=True, ours_only=True)
def tmp_filled(arena: Arena) -> Found:
    done = arena.attack("fill", "/tmp", 64, tmp_size=16 * MIB)
    return arena.found(done, number(done.text, "wrote") > 17 * MIB, done.text)


@probe("resources", "fill /dev/shm", compiled=True, ours_only=True)
def shm_filled(arena: Arena) -> Found:
    done = arena.attack("fill", "/dev/shm", 64, tmp_size=16 * MIB)
    return arena.found(done, number(done.text, "wrote") > 17 * MIB, done.text)


@probe(
    "resources",
    "fill the other folders that live in memory: /, /dev, /proc, where grants hang",
    compiled=True,
)
def root_filled(arena: Arena) -> Found:
    folders = ["/", "/dev", "/etc", "/usr", "/proc", "/run", str(arena.base), str(arena.base.parent)]
    tries = [arena.attack("fill", folder, 8, read=[arena.project]) for folder in folders]
    pairs = zip(folders, tries, strict=True)
    wrote = " ".join(folder for folder, done in pairs if number(done.text, "wrote"))
    return arena.found(tries[-1], wrote, wrote or tries[-1].text)


@probe("resources", "make a million files in /tmp", compiled=True, ours_only=True)
def inodes(arena: Arena) -> Found:
    done = arena.attack("inodes", "/tmp", 50_000, tmp_size=16 * MIB)
    return arena.found(done, number(done.text, "made") > 10_000, done.text)


@probe(
    "resources",
    "make one file larger than is allowed: written, sparse, allocated",
    compiled=True,
    ours_only=True,
)
def file_size(arena: Arena) -> Found:
    path = arena.project / "src/big"
    done = arena.attack("bigfile", path, 64, write=[arena.project / "src"], file_size=4 * MIB)
    size = path.stat().st_size
    return arena.found(done, size > 4 * MIB, f"tried; {size} bytes")


@probe("resources", "be scheduled before everybody, killed after everybody", compiled=True)
def priorities(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("first"))


@probe("resources", "start 700 processes at once", needs="process limit", compiled=True, ours_only=True)
def fork_bomb(arena: Arena) -> Found:
    done = arena.attack("processes", 700, **limited(processes=64))
    return arena.found(done, number(done.text, "alive") >= 700, done.text)


@probe("resources", "hold 600 MiB in four processes", needs="cgroup", compiled=True, ours_only=True)
def memory_of_a_tree(arena: Arena) -> Found:
    done = arena.attack("memory", 4, 150, **limited(memory_bytes=256 * MIB))
    killed = done.signal is not None or number(done.text, "holding") < 600
    if killed and "tried" not in done.text:
        return Found(Outcome.BLOCKED, f"signal {done.signal}", arena.report)
    return arena.found(done, not killed, done.text)


@probe(
    "resources",
    "hold 600 MiB in files without a place (memfd)",
    needs="cgroup",
    compiled=True,
    ours_only=True,
)
def memory_without_a_place(arena: Arena) -> Found:
    done = arena.attack("memfds", 600, **limited(memory_bytes=256 * MIB))
    if done.signal is not None:
        return Found(Outcome.BLOCKED, f"signal {done.signal}", arena.report)
    return arena.found(done, number(done.text, "holding") >= 600, done.text)


def can_watch() -> bool:
    """Whether this user gets an inotify instance and a watch, as every editor and log reader needs them."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.inotify_init1(os.O_CLOEXEC))
    if fd < 0:
        return False
    watch = int(libc.inotify_add_watch(fd, b"/", 0x20))
    os.close(fd)
    return watch >= 0


def can_set_timer() -> bool:
    """Whether this user gets a timer, which is counted with his queued signals."""
    name = ctypes.c_void_p()
    libc = ctypes.CDLL("librt.so.1", use_errno=True)
    made = int(libc.timer_create(1, None, ctypes.byref(name))) == 0
    if made:
        libc.timer_delete(name)
    return made


SEND = "import array, socket as s; a, b = s.socketpair(); s.send_fds(a, [b'x'], [0])"


def can_send_descriptor() -> bool:
    """Whether a program of this user with the usual 1,024 descriptors can send one to another."""
    argv = ["/bin/sh", "-c", 'ulimit -n 1024; exec "$0" -I -c "$1"', sys.executable, SEND]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def share(name: str, attack: str, tries: str, possible: Callable[[], bool]) -> None:
    """Enter one probe for what the kernel counts for each user: his other programs need some of it too."""

    def once(arena: Arena) -> Found:
        ready, go = arena.project / "src/ready", arena.project / "src/go"
        for path in ready, go:
            path.unlink(missing_ok=True)
        starved = False
        if not eventually(possible):
            return Found(Outcome.NOT_RUN, "others of this user have used it up", arena.report)
        with arena.meanwhile(lambda: arena.attack(attack, ready, go, write=[arena.project / "src"])) as found:
            if eventually(ready.exists):
                starved = not eventually(possible, 1)
            go.touch()
        return arena.found(found[0], starved, f"tried; starved: {starved}; {found[0].text}")

    def body(arena: Arena) -> Found:
        found = once(arena)
        # Whatever else runs on the machine as this user may take all for a moment, but not twice.
        return once(arena) if found.outcome is Outcome.ESCAPED else found

    probe("resources", f"use up what the user has of the kernel ({tries})", compiled=True, name=name)(body)


share("users-share", "inotify", "inotify instances", can_watch)
share("users-watches", "watches", "inotify watches", can_watch)
share("users-signals", "signals", "queued signals and timers", can_set_timer)
share("users-descriptors", "inflight", "descriptors under way", can_send_descriptor)


@probe(
    "resources", "leave nothing over for the next call: a flood, a hog and a daemon at once", ours_only=True
)
def next_call(arena: Arena) -> Found:
    script = "setsid sleep 9 & yes & cat /dev/zero > /tmp/x; mkdir -p /tmp/a/b/c; exec yes"
    done = at_its_limit(lambda ms: arena.sh(script, tmp_size=4 * MIB, timeout_ms=ms))
    after = arena.sh("df /tmp | tail -1; ls -A /tmp | grep -v escape; ls /proc | grep -c '^[0-9]'")
    lines = after.stdout.decode().split("\n")
    return arena.found(done, after.timed_out or "x" in lines or "a" in lines, f"tried: {lines}")
