"""The cost of the guard in a call: rules, the audit line, an approval that is there, a turn, a key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.everything_on import LOOKING, RULES, policy
from benchmarks.setting import Setting
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import Sampler, interleave, repeat, repeat_async

if TYPE_CHECKING:
    from toolcrib import Project

LINES_A_SECOND = 20_000
BARE = "Project.call, without rules"
RULED = f"the same, {RULES} rules, none of them about arguments"
PATTERNS = f"the same, {RULES} rules of this tool, each with a pattern of its own"
WEIGHED = f"the same, {RULES} rules, {LOOKING} of which look at the arguments"


def measure(setting: Setting) -> list[Table]:
    """Calls under rules, records of the audit log, and what goes through the project's database."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return [_rules(setting, loop), _audit(setting), _waiting(setting, loop)]


def _rules(setting: Setting, loop: asyncio.AbstractEventLoop) -> Table:
    cases = {
        BARE: _project(setting.folder / "bare", ""),
        RULED: _project(setting.folder / "ruled", policy(RULES, 0)),
        WEIGHED: _project(setting.folder / "looking", policy(RULES, LOOKING)),
        PATTERNS: _project(setting.folder / "patterns", _patterns()),
    }
    rows = [Row(name, reach=() if name == BARE else Reach(5, "over")) for name in cases]
    samplers = {name: repeat_async(loop, _call(project, "add")) for name, project in cases.items()}
    table = Table("Call `async def add(a, b)` in a project with a policy", "µs", rows)
    table.take(interleave(samplers, setting.effort(25)))
    return table


def _audit(setting: Setting) -> Table:
    from toolcrib.guard import AuditLog

    folder = setting.folder / "audit"
    folder.mkdir()
    file = (folder / "plain").open("ab", buffering=0)
    line = b"x" * 250 + b"\n"
    logs = {
        "AuditLog.record": AuditLog(folder / "a" / "tools.log", max_bytes=2**40),
        "the same, anchored outside the project": AuditLog(
            folder / "b" / "tools.log", folder / "anchor", max_bytes=2**40
        ),
    }
    samplers: dict[str, Sampler] = {"one write of as many bytes": repeat(lambda: file.write(line))}
    samplers.update({name: repeat(_record(log)) for name, log in logs.items()})
    reach = Reach(1e6 / LINES_A_SECOND, "wall")
    rows = [Row(name, reach=reach if name in logs else ()) for name in samplers]
    table = Table("Write one line of the audit log, without fsync", "µs", rows)
    table.notes.append(f"{LINES_A_SECOND:,} lines a second are 50 µs each.")
    table.take(interleave(samplers, setting.effort(25)))
    for log in logs.values():
        log.close()
    file.close()
    return table


def _record(log: Any) -> Callable[[], None]:
    def record() -> None:
        log.record(
            "TOOL_EXECUTED", name="add", params={"a": 1, "b": 2}, status="success", caller="cli", ms=0.1
        )

    return record


def _waiting(setting: Setting, loop: asyncio.AbstractEventLoop) -> Table:
    project = _project(setting.folder / "kept", "")
    keys = count()
    cases: dict[str, Callable[[], Awaitable[Any]]] = {
        BARE: _call(project, "add"),
        "with an approval": _call(project, "agreed"),
        "limited to calls a minute": _call(project, "limited"),
        "with an idempotency key, new": lambda: _keyed(project, f"k{next(keys)}"),
        "with an idempotency key, known": lambda: _keyed(project, "known"),
    }
    loop.run_until_complete(_agree(project))
    rows = [Row(name) for name in cases]
    table = Table("Calls that go through the project's database", "µs", rows)
    samplers = {name: repeat_async(loop, operation) for name, operation in cases.items()}
    table.take(interleave(samplers, setting.effort(9), times=2 if setting.quick else 50))
    table.notes.append("A new key is on the disk before its tool runs, and its result before the call ends.")
    return table


async def _agree(project: Project) -> None:
    waits = await project.call("agreed", {"a": 1, "b": 2}, wait="pending")
    if waits.details is None:
        raise RuntimeError("the call did not wait for approval")
    project.approval_service.approve(waits.details["approval"], "ann", "arguments")


async def _keyed(project: Project, key: str) -> None:
    (await project.call("add", {"a": 1, "b": 2}, idempotency_key=key)).unwrap()


def _call(project: Project, name: str) -> Callable[[], Awaitable[Any]]:
    async def call() -> None:
        (await project.call(name, b'{"a":1,"b":2}', wait="block" if name == "agreed" else "raise")).unwrap()

    return call


def _project(root: Path, config: str) -> Project:
    from dataclasses import replace

    from toolcrib.project import Project
    from toolcrib.spec import Limits

    (root / ".toolcrib" / "tools").mkdir(parents=True)
    (root / ".toolcrib" / "config.yml").write_text(config, encoding="utf-8")
    project = Project.open(root, accept="all")

    async def add(a: int, b: int, note: str = "oil the lathe") -> int:  # noqa: ARG001 - what rules look at
        """Add."""
        return a + b

    project.toolset.register("add", add)
    project.toolset.register("agreed", add, approval="it is dear")
    project.toolset.register("limited", add)
    limited = project.toolset.bound("limited")
    vars(limited)["tool"] = replace(limited.tool, limits=Limits(calls_per_minute=1_000_000))
    return project


def _patterns() -> str:
    when = "when: {{properties: {{note: {{pattern: '^drill{n}[a-z]+ ({n}|x)$'}}}}, required: [note]}}"
    rules = [f"    - {{effect: deny, tools: [add], {when.format(n=n)}, reason: no}}" for n in range(RULES)]
    return "policy:\n  rules:\n" + "\n".join(rules) + "\n"
