"""Messages of a pod through the bridge: from the outbox, and from files, until NATS has stored them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.setting import Setting, find, reason_of
from benchmarks.table import Reach, Row, Table

if TYPE_CHECKING:
    from tests.nats_server import NatsProcess

OUTBOX, FILES = "a message that waits in the outbox", "a message in a file"


def measure(setting: Setting) -> list[Table]:
    """The bridge in this process, and a real server beside it."""
    from tests.nats_server import NatsProcess

    rows = [Row(OUTBOX), Row(FILES, reach=Reach(2, "wall"))]
    notes = ["Each message is committed to SQLite, and stored by JetStream in a file, before it counts."]
    table = Table("A message of a pod, until NATS has stored it", "ms", rows, notes)
    server = NatsProcess()
    try:
        for number in range(1 if setting.quick else 5):
            for row, files in zip(rows, (False, True), strict=True):
                folder = setting.folder / f"bridge-{number}-{files}"
                count = 100 if setting.quick else 1_000
                row.seconds.append(asyncio.run(_measured(server, folder, count, files=files)) / count)
    except Exception as error:
        for row in rows:
            row.missing = reason_of(error)
    finally:
        server.remove()
    return [table]


async def _measured(server: NatsProcess, folder: Path, count: int, *, files: bool) -> float:
    os.makedirs(folder)
    database = find("toolcrib.state", "SqliteDatabase")(folder / "db", find("toolcrib.state", "PROJECT"))
    messages = find("toolcrib.state.outgoing.outbox", "ChannelMessages")(database)
    spool = find("toolcrib.pods.spool", "Spool")(folder, "messages")
    text = "The report is ready. " * 10
    for number in range(count):
        if files:
            body = f'{{"channel":"telegram","text":"{text}"}}'.encode()
            spool.write(f"send-{number:05}.json", body)
        else:
            messages.queue({"channel": "telegram", "text": text})
    environment = {**os.environ, "NATS_URL": server.url, "AGENT_RUN_ID": folder.name}
    bridge: Any = find("toolcrib.pods.bridge", "Bridge")(database, environment, spool=spool)
    began = time.perf_counter()
    work = asyncio.create_task(bridge.run())
    await bridge.drained()
    took = time.perf_counter() - began
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    spool.close()
    database.close()
    return took
