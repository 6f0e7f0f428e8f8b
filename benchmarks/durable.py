"""Durable calls: how many a second, how soon they start, what an idle worker costs, and a full history."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.setting import Setting, find
from benchmarks.start import COMMAND
from benchmarks.table import PEER, WALL, Reach, Row, Table
from benchmarks.timing import Effort, Sampler, interleave

if TYPE_CHECKING:
    from tests.postgres import PostgresProcess
    from toolcrib.runs import DurableCalls

FINISHED = 1_000_000
_DUE = 500
IDLE_TOOLS = 50
PGQUEUER, DBOS = "PgQueuer, which keeps no results", "DBOS, Postgres"
SQLITE = {"Toolcrib, a SQLite file": "toolcrib", "DBOS, a SQLite file": "dbos"}
POSTGRES = {
    "Toolcrib, Postgres": "toolcrib",
    PGQUEUER: "pgqueuer",
    "Procrastinate, which keeps no results": "procrastinate",
    DBOS: "dbos",
}
EACH = "The time of one call of them. That of the command has its start in it."
OURS = [row for row, kind in (SQLITE | POSTGRES).items() if kind == "toolcrib"]
REACHES: dict[tuple[str, str], Reach | Sequence[Reach]] = {
    ("SQLite", "run"): Reach(1 / 8, PEER),
    ("SQLite", "start"): Reach(5, WALL),
    ("SQLite", "slowest"): Reach(50, WALL),
    ("Postgres", "run"): [Reach(0.25, DBOS), Reach(2, PGQUEUER)],
    ("Postgres", "start"): Reach(1.5, PGQUEUER),
    ("Postgres", "slowest"): Reach(50, WALL),
}


def measure(setting: Setting) -> Iterator[Table]:
    """Engines side by side, each stopped while another is measured."""
    from tests.postgres import PostgresProcess

    server = PostgresProcess(fsync=True)  # Each commit waits for the disk, as on a real server.
    try:
        yield from _engines(setting, server)
        yield from _two_processes(setting, server)
        yield _idle(setting, server)
        yield from _full(setting, server)
    finally:
        server.remove()


class EngineProcess:
    """An engine in a process of its own, frozen until it is asked."""

    def __init__(self, kind: str, place: str, folder: Path, tools: int = 1) -> None:
        folder.mkdir()
        environment = {**os.environ, "TOOLCRIB_DATA": str(folder / "data")}
        environment.pop("DATABASE_URL", None)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.durable_engines",
                kind,
                place,
                str(folder / "root"),
                str(tools),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("wb"),
            env=environment,
            text=True,
        )
        self._log = folder / "log"
        self._answer()

    def freeze(self) -> None:
        """Let others have the machine."""
        self._process.send_signal(signal.SIGSTOP)

    def ask(self, line: str) -> float:
        """Return the seconds that it answers."""
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        seconds = float(self._answer())
        self.freeze()
        return seconds

    def cpu_s(self, seconds: float) -> float:
        """Return the CPU time that it takes in so many seconds of doing nothing."""
        self._process.send_signal(signal.SIGCONT)
        time.sleep(seconds / 2)
        before = self._cpu()
        time.sleep(seconds)
        used = self._cpu() - before
        self.freeze()
        return used

    def _cpu(self) -> float:
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError((self._log.read_text().strip().splitlines() or ["it ended"])[-1])
        return line.strip()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextmanager
def _processes(
    setting: Setting, server: PostgresProcess, name: str, tools: int = 1
) -> Iterator[dict[str, EngineProcess | Exception]]:
    """Yield the engines by row; an engine that cannot be started is its error."""
    rows = {**SQLITE, **POSTGRES}
    with ExitStack() as stack:
        found: dict[str, EngineProcess | Exception] = {}
        for number, (row, kind) in enumerate(rows.items()):
            if kind != "toolcrib" and (not setting.peers or (setting.quick and name == "idle")):
                continue
            folder = setting.folder / f"{name}{number}"
            place = str(folder) if row in SQLITE else _database(server, f"{name}{number}")
            try:
                engine = EngineProcess(kind, place, folder, tools)
            except Exception as error:
                found[row] = error
                continue
            stack.callback(engine.close)
            engine.freeze()
            found[row] = engine
        yield found


def _engines(setting: Setting, server: PostgresProcess) -> Iterator[Table]:
    calls, starts = (20, 5) if setting.quick else (300, 40)
    effort = Effort(1, 0) if setting.quick else Effort(3, 0)
    with _processes(setting, server, "engines") as engines:
        for title, word, times in (
            ("Durable calls of one worker, from the first submission to the last record", "run", calls),
            ("From submitting a call to its start, the median", "start", starts),
            ("From submitting a call to its start, the slowest of 120", "slowest", 3 * starts),
        ):
            samples = interleave(
                {row: _asks(engine, word) for row, engine in engines.items()},
                Effort(1, 0) if word == "slowest" else effort,
                times=times,
            )
            for place, rows in (("SQLite", SQLITE), ("Postgres", POSTGRES)):
                table = Table(
                    f"{title}: {place}", "ms", [Row(row, peer=True) for row in rows], has_limit=False
                )
                ours = table.rows[0]
                ours.peer, ours.reach = False, REACHES[place, word]
                table.take(samples)
                yield table


def _asks(engine: EngineProcess | Exception, word: str) -> Sampler:
    def sample(times: int) -> float:
        if isinstance(engine, Exception):
            raise engine
        return engine.ask(f"{word} {times}")

    return sample


def _two_processes(setting: Setting, server: PostgresProcess) -> Iterator[Table]:
    """A call that this process submits and another one runs; and many that are stored at once."""
    times, many = (2, 20) if setting.quick else (20, 1_000)
    for place in ("SQLite", "Postgres"):
        folder = setting.folder / f"two-{place}"
        database = str(folder) if place == "SQLite" else _database(server, f"two{place}".lower())
        with closing(EngineProcess("toolcrib", database, folder)) as engine:
            root = folder if place == "SQLite" else folder / "root"
            os.environ["TOOLCRIB_DATA"] = str(folder / "data")
            own = "sqlite" if place == "SQLite" else database
            project = find("toolcrib", "Project").open(root, accept="all", database=own)
            started, ended = Row("until its start", Reach(10, WALL)), Row("until its result is here")
            for number in range(times):
                began = time.perf_counter()
                call = project.calls.wait_sync(project.submit("tool_0", {"number": number}), 60)
                ended.seconds.append(time.perf_counter() - began)
                started.seconds.append(call.outcome().unwrap() - began)
                time.sleep(0.03)
            yield Table(f"A call of another process: {place}", "ms", [started, ended], has_limit=False)
            engine.freeze()
            rows = _stored(project, many)
            if place == "SQLite":
                rows += _stored_from_outside(setting.folder, root, many)
            yield Table(f"Store {many:,} calls: {place}", "ms", rows, [EACH], has_limit=False)
            asyncio.run(project.aclose())


def _stored(project: Any, many: int) -> list[Row]:
    """Store calls of a tool of another process one by one, and all at once."""
    calls = [{"tool": "tool_0", "arguments": {"number": number}} for number in range(many)]
    loop, once = Row("submit, one after the other"), Row("submit_many", Reach(0.05))
    for _ in range(3):
        began = time.perf_counter()
        project.calls.submit_many(calls)
        between = time.perf_counter()
        for call in calls[: many // 3]:
            project.submit("tool_0", call["arguments"])
        once.seconds.append((between - began) / many)
        loop.seconds.append((time.perf_counter() - between) / (many // 3))
    return [loop, once]


def _stored_from_outside(folder: Path, root: Path, many: int) -> list[Row]:
    """Store as many by the command, from its start to its end, and by one request to a server."""
    file = folder / "calls.jsonl"
    line = '{"tool": "tool_0", "arguments": {"number": 1}}\n'
    file.write_text(line * many, encoding="utf-8")
    command = [*COMMAND, "calls", "submit", "--from", str(file), "--root", str(root)]
    call = {"tool": "add", "args": {"a": 1, "b": 2}, "delayS": 3600}
    body = json.dumps({"calls": [call] * many}).encode()
    serve = [sys.executable, "-m", "benchmarks.rest_servers", "toolcrib", str(folder / "posted")]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port, token = server.stdout.readline().split()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/tools/calls", body, headers)
        ways: dict[str, Callable[[], object]] = {
            "toolcrib calls submit --from FILE.jsonl": lambda: subprocess.run(
                command, check=True, stdout=subprocess.PIPE
            ),
            "POST /tools/calls": lambda: urllib.request.urlopen(request).read(),
        }
        rows = [Row(name) for name in ways]
        for row in rows * 3:
            began = time.perf_counter()
            ways[row.name]()
            row.seconds.append((time.perf_counter() - began) / many)
        server.kill()
    return rows


def _idle(setting: Setting, server: PostgresProcess) -> Table:
    title = f"CPU time of an idle worker with {IDLE_TOOLS} tools, in one second"
    table = Table(title, "ms", [], has_limit=False)
    seconds = 0.5 if setting.quick else 4.0
    with _processes(setting, server, "idle", IDLE_TOOLS) as engines:
        for name, engine in engines.items():
            row = Row(name, Reach(3, WALL) if name in OURS else (), name not in OURS)
            if isinstance(engine, Exception):
                row.missing = f"failed: {engine}"
            else:
                row.seconds = [engine.cpu_s(seconds) / seconds]
            table.rows.append(row)
    table.notes.append("3 ms are 0.3 % of a core.")
    return table


def _full(setting: Setting, server: PostgresProcess) -> Iterator[Table]:
    """Submit, claim and list beside a million finished calls, and beside none."""
    from toolcrib.runs import DurableCalls, dispatcher_for
    from toolcrib.state import PROJECT, Database, SqliteDatabase
    from toolcrib.state.drivers.postgres import PostgresDatabase, PostgresServer

    finished = 2_000 if setting.quick else FINISHED
    for kind in ("SQLite", "Postgres"):
        stores: dict[str, DurableCalls] = {}
        for name, count in (("none", 0), (f"{finished:,}", finished)):
            database: Database
            if kind == "SQLite":
                database = SqliteDatabase(setting.folder / f"full{count}.db", PROJECT)
            else:
                place = PostgresServer(_database(server, f"full{count}"))
                database = PostgresDatabase(place, "state", PROJECT)
            stores[name] = DurableCalls(database, dispatcher=dispatcher_for(database))
            fill(stores[name], count, kind)
        table = Table(
            f"Submit, claim, finish and list beside {finished:,} finished calls: {kind}",
            "µs",
            [],
            has_limit=False,
        )
        steps = {name: _step(calls) for name, calls in stores.items()}
        table.rows = [Row("none"), Row(f"{finished:,}", reach=Reach(1.5))]
        table.take(interleave(steps, setting.effort(7), times=2 if setting.quick else 50))
        removal = Table(
            f"Remove {_DUE} calls of last year beside {finished:,} finished calls: {kind}",
            "ms",
            [],
            has_limit=False,
        )
        removals = {name: _prune(calls, kind) for name, calls in stores.items()}
        removal.rows = [Row("none"), Row(f"{finished:,}", reach=Reach(1.5))]
        removal.take(interleave(removals, setting.effort(7), times=1))
        for calls in stores.values():
            calls.database.close()
        yield table
        yield removal


def _prune(calls: DurableCalls, kind: str) -> Sampler:
    from toolcrib.runs.retention import Pruned, Pruner, Retention

    pruner, turn = Pruner(calls.database, Retention()), [0]

    def sample(times: int) -> float:
        turn[0] += 1
        fill(calls, _DUE * times, kind, f"old-{turn[0]}-", time.time() - 365 * 86_400)
        began = time.perf_counter()
        if pruner.prune() != Pruned(_DUE * times):
            raise RuntimeError("not the calls of last year were removed")
        return time.perf_counter() - began

    return sample


def _step(calls: DurableCalls) -> Sampler:
    def sample(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            call_id = calls.submit("add", {})
            with calls.database.write("take") as tx:
                claim = calls.take(tx, call_id, "bench")
            if claim is None or not calls.finish(claim, b"1") or len(calls.page(limit=20)) == 0:
                raise RuntimeError("a call was not stored")
        return time.perf_counter() - began

    return sample


def fill(calls: DurableCalls, count: int, kind: str, begin: str = "", ended: float | None = None) -> None:
    """Add finished calls with their attempts and changes, in the database itself.

    Their ids are `begin` and a number; `ended` is the time of their end, if not now.
    """
    if not count:
        return
    call_id = calls.submit("add", {})
    with calls.database.write("take") as tx:
        claim = calls.take(tx, call_id, "bench")
    if claim is None or not calls.finish(claim, b'{"value": 1}'):
        raise RuntimeError("the pattern was not stored")
    numbers = f"generate_series(1, {count}) AS numbers (n)" if kind == "Postgres" else "numbers"
    series = f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})"
    with calls.database.write("fill") as tx:
        if kind == "Postgres":
            tx.run("SET LOCAL statement_timeout = 0")
        for table, key in (("calls", "id"), ("call_attempts", "call_id"), ("call_events", "call_id")):
            columns = _columns(tx.all, table, kind)
            new = {key: f"'{begin}' || CAST(n AS TEXT)"}
            if ended is not None and table == "calls":
                new["ended_at"] = str(ended)
            values = ", ".join(new.get(column, f"old.{column}") for column in columns)
            source = f"SELECT {values} FROM {table} AS old, {numbers} WHERE old.{key} = '{call_id}'"
            insert = f"INSERT INTO {table} ({', '.join(columns)}) {source}"
            tx.run(insert if kind == "Postgres" else f"{series} {insert}")
        if kind == "Postgres":
            tx.run("ANALYZE")  # As autovacuum does, which is off here.


def _columns(query: Callable[..., list[tuple[Any, ...]]], table: str, kind: str) -> list[str]:
    if kind == "SQLite":
        return [row[1] for row in query(f"PRAGMA table_info({table})")]
    names = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0"
    return [row[0] for row in query(names, table)]


def _database(server: PostgresProcess, name: str) -> str:
    """Make a database and return its address."""
    import psycopg

    address = f"postgresql://toolcrib@/{{}}?host={server.folder}"
    with psycopg.connect(address.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return address.format(name)
