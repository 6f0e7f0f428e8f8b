"""A server that makes mixed calls in rounds: `leak_server.py PROJECT AT_ONCE ROUNDS`.

Prints a JSON object: how many calls were made, which ended otherwise than they must, and after each round how
many descriptors and children there were and how much memory was in use.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.descriptors import descriptors
from toolcrib.errors import ToolcribError
from toolcrib.project import Project
from toolcrib.sandbox import Completed, Confinement, run
from toolcrib.sandbox.host.pool import shared

PATH = {"PATH": "/usr/bin:/bin"}


async def sh(script: str, expected: Callable[[Completed], bool], **fields: object) -> str:
    """A confined shell script; what went wrong, or nothing."""
    fields.setdefault("timeout_ms", 120_000)
    job = Confinement(argv=("/bin/sh", "-c", script), cwd="/tmp", env=PATH, **fields)  # type: ignore[arg-type]  # fields of a job
    done = await run(job)
    return "" if expected(done) else f"{script[:40]}: {done}"


async def missing() -> str:
    """A program that is not there."""
    try:
        await run(Confinement(argv=("no-such-program",), cwd="/tmp", env=PATH))
    except ToolcribError as error:
        return "" if error.code == "tool_unavailable" else f"missing: {error!r}"
    return "missing: was run"


async def cancelled() -> str:
    """A call that is given up."""
    job = Confinement(argv=("sleep", "60"), cwd="/tmp", env=PATH)
    task = asyncio.ensure_future(run(job))
    await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.wait([task])
    return "" if task.cancelled() else f"cancelled: {task!r}"


async def tool(project: Project, name: str, expected: object) -> str:
    """A tool of a project."""
    result = await project.call(name)
    got = result.error.code if result.error is not None else result.value
    return "" if got == expected else f"{name}: {result.error or result.value}"


def calls(project: Project, number: int) -> Awaitable[str]:
    """The kind of call with that number."""
    kinds: list[Callable[[], Awaitable[str]]] = [
        lambda: sh("echo x", lambda done: done.stdout == b"x\n"),
        lambda: sh("cat; exit 3", lambda done: (done.exit_code, done.stdout) == (3, b"in"), stdin=b"in"),
        lambda: sh("head -c 300000 /dev/zero", lambda done: done.stdout_total == 300_000, output_limit=1000),
        lambda: sh("setsid sleep 30 & echo x > /tmp/x", lambda done: done.exit_code == 0),
        lambda: sh("echo x >&3", lambda done: done.result == b"x\n", result_limit=10),
        lambda: sh("kill -9 $$", lambda done: done.signal == 9),
        lambda: sh("sleep 60", lambda done: done.timed_out, timeout_ms=50),
        missing,
        cancelled,
        lambda: tool(project, "words", "some words\n"),
        lambda: tool(project, "show", "some words\n"),
        lambda: tool(project, "fails", "command_failed"),
        lambda: tool(project, "add", 3),
    ]
    return kinds[number % len(kinds)]()


def lay_out(root: Path) -> None:
    """A project with one tool of each kind that runs confined."""
    (root / "words.txt").write_text("some words\n")
    (root / "adding.py").write_text("def run():\n    return 1 + 2\n")
    manifests: dict[str, dict[str, object]] = {
        "words": {"command": {"entrypoint": "cat", "args": ["words.txt"]}},
        "show": {"file": {"action": "read", "path": "words.txt"}},
        "fails": {"command": {"entrypoint": "false"}},
        "add": {"python": {"module": "adding", "function": "run"}},
    }
    for name, block in manifests.items():
        folder = root / ".toolcrib/tools" / name
        folder.mkdir(parents=True)
        kind = next(iter(block))
        manifest = {"name": name, "description": "A tool.", "kind": kind, "version": 1, "exec": block}
        manifest["outputs"] = {"format": "json" if kind == "python" else "text"}
        manifest["permissions"] = {"fs": {"read": ["."]}}
        (folder / "tool.yml").write_text(json.dumps(manifest))


def state() -> tuple[int, int, int]:
    """Descriptors, children and KiB of memory now, without what is kept for the next calls."""
    shared().drop_spares()
    gc.collect()
    me = f"PPid:\t{os.getpid()}\n"
    children = 0
    for entry in Path("/proc").iterdir():
        try:
            children += entry.name.isdigit() and me in (entry / "status").read_text()
        except OSError:
            continue
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return descriptors(), children, pages * os.sysconf("SC_PAGESIZE") // 1024


def files(root: Path) -> set[str]:
    """What lies in the project, the log of calls apart."""
    return {str(path) for path in root.rglob("*") if "/audit" not in str(path)}


def control_groups() -> set[str]:
    """The control groups of this process, which it keeps open."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # That of the listing itself.
            continue
        if "/toolcrib-server-" in path:
            found.add(path.partition("/slot-")[0])
    return found


async def settled() -> tuple[int, int, int]:
    """The state once what the last calls used has been put away: when it has been the same for a second."""
    last, since = state(), time.monotonic()
    while time.monotonic() - since < 1:
        await asyncio.sleep(0.25)
        now = state()
        if now[:2] != last[:2]:
            since = time.monotonic()
        last = now
    return last


async def main(root: Path, at_once: int, rounds: int) -> dict[str, object]:
    """All rounds, and what was seen after each. The first ones open what the project keeps until its end."""
    lay_out(root)
    before = files(root)
    wrong: list[str] = []
    states: list[tuple[int, int, int]] = []
    async with Project.open(root, accept="all") as project:
        for _ in range(rounds):
            answers = await asyncio.gather(
                *(calls(project, number) for number in range(at_once)), return_exceptions=True
            )
            wrong += [str(answer) for answer in answers if answer]
            now = await settled()
            for _ in range(30):  # A busy machine takes long to end processes.
                if len(states) < 2 or (now[0] <= states[1][0] and now[1] <= states[1][1]):
                    break
                now = await settled()
            states.append(now)
        held = control_groups()
    after = files(root)
    names = ("descriptors", "children", "memory")
    return {
        "control groups": sorted(held),
        "calls": at_once * rounds,
        "wrong": wrong[:10],
        "project files": sorted(after - before),
        **{name: [one[place] for one in states] for place, name in enumerate(names)},
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
