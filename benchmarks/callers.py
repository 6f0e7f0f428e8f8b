"""Everything that can be called, opened once: Toolcrib's toolset and project, and the peers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from benchmarks.everything_on import open_project
from benchmarks.peers import Peer, open_peers
from benchmarks.setting import Missing, Setting, reason_of
from benchmarks.subjects import TASK_SCHEMA, add, add_async, create_task_async, create_task_plain, noop
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import Sampler, interleave, repeat, repeat_async
from toolcrib import Call, Project, Toolset

Operation = Callable[[], Awaitable[Any]]


class Callers:
    """One event loop, and on it all whose calls are measured."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.tools = Toolset()
        self.tools.register("add", add_async)
        self.tools.register("add_thread", add)
        self.tools.register("add_inline", add, isolation="inline")
        self.tools.register("create_task", create_task_plain, input_schema=TASK_SCHEMA)
        self.tools.register("create_task_typed", create_task_async)
        self.tools.register("noop", noop)
        self.peers: list[Peer] = []
        self.missing: dict[str, str] = {}
        if setting.peers:
            self.peers, self.missing = open_peers((add, add_async, create_task_async, noop), self.loop)
        self._project: Project | None = None
        try:
            self._project = project = open_project(setting.folder / "project")
            project.toolset.register("add", add_async)
            project.toolset.register("create_task", create_task_plain, input_schema=TASK_SCHEMA)
            project.toolset.register("noop", noop)
        except Exception as error:
            self._no_project = reason_of(error)

    def toolset(self, tool: str, raw: bytes) -> Operation:
        """A call through a bare toolset."""
        call = self.tools.call
        return lambda: call(tool, raw)

    def project(self, tool: str, raw: bytes) -> Operation:
        """The same call through a whole project."""
        if self._project is None:
            raise Missing(self._no_project)
        invoke = self._project.invoke
        return lambda: invoke(Call(tool, raw))

    def peer(self, peer: Peer, tool: str, raw: bytes) -> Operation:
        """The same call through a peer."""
        call, text = peer.call, raw.decode()
        return lambda: call(tool, text)

    def once(self, operation: Operation) -> Any:
        """Return what one operation gives."""

        async def wait() -> Any:
            return await operation()

        return self.loop.run_until_complete(wait())

    def sampler(self, operation: Operation, expected: Any) -> Sampler:
        """Sample an operation, after a look whether it gives what it should."""
        got = self.once(operation)
        if getattr(got, "value", got) != expected and str(expected) not in str(got):
            raise RuntimeError(f"expected {expected!r}, got {got!r}")
        return repeat_async(self.loop, operation)


class Rows:
    """A table of calls while its rows are put together."""

    def __init__(self, callers: Callers, title: str, expected: Any) -> None:
        self.callers = callers
        self.expected = expected
        self.table = Table(title, "µs", [])
        self._samplers: dict[str, Sampler] = {}

    def plain(self, name: str, operation: Callable[[], Any]) -> None:
        """A row that is a plain function."""
        self._samplers[name] = repeat(operation)
        self.table.rows.append(Row(name))

    def row(
        self,
        name: str,
        make: Callable[[], Operation],
        reach: Reach | Sequence[Reach] = (),
        *,
        peer: bool = False,
    ) -> None:
        """A row that is awaited; where it cannot be made or gives something else, the row says why."""
        row = Row(name, reach, peer)
        self.table.rows.append(row)
        try:
            self._samplers[name] = self.callers.sampler(make(), self.expected)
        except Exception as error:
            row.missing = reason_of(error)

    def peers(self, make: Callable[[Peer], Operation]) -> None:
        """A row for each peer."""
        for peer in self.callers.peers:
            self.row(peer.name, lambda peer=peer: make(peer), peer=True)  # type: ignore[misc]
        missing = self.callers.missing.items()
        self.table.rows += [Row(name, peer=True, missing=reason) for name, reason in missing]

    def measure(self, rounds: int, times: int | None = None) -> Table:
        """Run the rounds."""
        self.table.take(interleave(self._samplers, self.callers.setting.effort(rounds), times=times))
        return self.table
