"""Engines of durable calls, each in a process of its own: `… KIND PLACE FOLDER [TOOLS]`.

A process submits and serves, and obeys lines on standard input: `run N` submits N calls and waits until all
are recorded, `start N` and `slowest N` submit N calls with pauses. It answers with seconds,
and ends with its input.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

TOOLS = int(sys.argv[4]) if len(sys.argv) > 4 else 1
PAUSE_S = 0.03


class Engine(NamedTuple):
    """The two things that every engine does."""

    submit: Callable[[int], Awaitable[Any]]
    recorded: Callable[[list[Any]], Awaitable[None]]
    """Returns once the calls with these tickets of `submit` are recorded."""


STARTED: dict[int, float] = {}


def start(number: int) -> float:
    """The body of every call: returns the time of its start, by the clock of the machine."""
    STARTED[number] = time.perf_counter()
    return STARTED[number]


@asynccontextmanager
async def toolcrib(place: str) -> AsyncIterator[Engine]:
    """Toolcrib: a project that serves its own calls."""
    from toolcrib import Project

    root = Path(place) if place.startswith("/") else Path(sys.argv[3])
    (root / ".toolcrib" / "tools").mkdir(parents=True)
    database = "sqlite" if place.startswith("/") else place
    async with Project.open(root, accept="all", database=database) as project:
        for tool in range(TOOLS):

            async def run(number: int) -> float:
                """Run."""
                return start(number)

            project.toolset.register(f"tool_{tool}", run)
        project.calls.serve()

        async def submit(number: int) -> str:
            return await asyncio.to_thread(project.submit, "tool_0", {"number": number})

        async def recorded(tickets: list[str]) -> None:
            for ticket in tickets:
                if (await project.calls.wait(ticket, 60)).state != "done":
                    raise RuntimeError("a call has failed")

        yield Engine(submit, recorded)


@asynccontextmanager
async def pgqueuer(place: str) -> AsyncIterator[Engine]:
    """PgQueuer as it is: it keeps no results."""
    asyncpg = importlib.import_module("asyncpg")
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
    from pgqueuer.models import Job
    from pgqueuer.queries import Queries

    own, pool = await asyncpg.connect(place), await asyncpg.create_pool(place, min_size=2, max_size=8)
    queries = Queries(AsyncpgDriver(own))
    await queries.install()
    queue = PgQueuer(AsyncpgPoolDriver(pool))
    for tool in range(TOOLS):

        async def run(job: Job) -> None:
            start(int(job.payload or b""))

        queue.entrypoint(f"tool_{tool}")(run)
    task = asyncio.create_task(queue.qm.run(batch_size=50))

    async def submit(number: int) -> None:
        await queries.enqueue("tool_0", str(number).encode())

    async def recorded(_tickets: list[Any]) -> None:
        while await own.fetchval("SELECT count(*) FROM pgqueuer"):  # noqa: ASYNC110 - a table
            await asyncio.sleep(0.01)

    yield Engine(submit, recorded)
    task.cancel()


@asynccontextmanager
async def procrastinate(place: str) -> AsyncIterator[Engine]:
    """Procrastinate as it is: it keeps no results."""
    library = importlib.import_module("procrastinate")

    app = library.App(connector=library.PsycopgConnector(conninfo=place))
    for tool in range(TOOLS):

        async def run(number: int) -> None:
            start(number)

        app.task(name=f"tool_{tool}")(run)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        task = asyncio.create_task(app.run_worker_async(concurrency=50, install_signal_handlers=False))

        async def submit(number: int) -> None:
            await app.configure_task("tool_0").defer_async(number=number)

        async def recorded(_tickets: list[Any]) -> None:
            todo = "SELECT count(*) AS n FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
            while (await app.connector.execute_query_one_async(todo))["n"]:  # noqa: ASYNC110 - a table
                await asyncio.sleep(0.01)

        yield Engine(submit, recorded)
        task.cancel()


@asynccontextmanager
async def dbos(place: str) -> AsyncIterator[Engine]:
    """DBOS: each call a workflow of one step, the queue polled as often as it allows."""
    DBOS: Any = importlib.import_module("dbos").DBOS  # noqa: N806 - its own name

    url = f"sqlite:///{place}/dbos.sqlite" if place.startswith("/") else place
    url = url.replace("postgresql://", "postgresql+psycopg://")
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})

    @DBOS.step()  # type: ignore[untyped-decorator]  # of a package that may be missing
    async def step(number: int) -> float:
        return start(number)

    @DBOS.workflow()  # type: ignore[untyped-decorator]  # as above
    async def flow(number: int) -> Any:
        return await step(number)

    DBOS.launch()
    for tool in range(TOOLS):
        await DBOS.register_queue_async(f"queue_{tool}", polling_interval_sec=0.05)
    queue = await DBOS.retrieve_queue_async("queue_0")

    async def submit(number: int) -> Any:
        return await queue.enqueue_async(flow, number)

    async def recorded(_tickets: list[Any]) -> None:
        while await DBOS.list_workflows_async(status=["ENQUEUED", "PENDING"], limit=1):  # noqa: ASYNC110 - a table
            await asyncio.sleep(0.01)

    yield Engine(submit, recorded)
    DBOS.destroy()


ENGINES = {"toolcrib": toolcrib, "pgqueuer": pgqueuer, "procrastinate": procrastinate, "dbos": dbos}


async def main() -> None:
    """Obey the lines of standard input."""
    numbers = iter(range(10**9))
    async with ENGINES[sys.argv[1]](sys.argv[2]) as engine:
        await engine.recorded([await engine.submit(next(numbers))])
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            word, count = line.split()
            batch = [next(numbers) for _ in range(int(count))]
            began = time.perf_counter()
            if word == "run":
                await engine.recorded([await engine.submit(number) for number in batch])
                seconds = time.perf_counter() - began
            else:
                waits = [await _wait(engine, number) for number in batch]
                seconds = (sorted(waits)[len(waits) // 2] if word == "start" else max(waits)) * len(waits)
            print(seconds, flush=True)


async def _wait(engine: Engine, number: int) -> float:
    """Return the seconds from the submission of a call to its start."""
    began = time.perf_counter()
    await engine.submit(number)
    while number not in STARTED:  # noqa: ASYNC110 - the same for all engines
        await asyncio.sleep(0.0005)
    await asyncio.sleep(PAUSE_S)
    return STARTED[number] - began


if __name__ == "__main__":
    asyncio.run(main())
