"""Sixteen clients read and write for ten minutes: no error, and the server does not grow."""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from toolcrib.spec.identifier import new_id

CLIENTS = 16
SECONDS = float(os.environ.get("TOOLCRIB_SOAK_S", "600"))
TOOL = {"type": "go", "displayName": "Sum of numbers", "impl": {"goFunc": "Sum"}}


class Client:
    """One client with a connection, and a bundle of its own."""

    def __init__(self, server: HttpServerProcess, number: int) -> None:
        self._server, self._chance = server, random.Random(number)
        self.connection = server.connect()
        self.bundle = f"/tools/bundles/{new_id()}"
        self.slug = f"soak-{number}"
        self.tools: list[str] = []
        self.requests = 0

    def send(self, method: str, path: str, body: Any = None, *expected: int) -> Any:
        headers = {"Authorization": f"Bearer {self._server.token}", "Content-Type": "application/json"}
        try:
            self.connection.request(method, path, None if body is None else json.dumps(body), headers)
            reply = self.connection.getresponse()
        except (http.client.BadStatusLine, ConnectionError):  # It was idle for long, so it was closed.
            self.connection.close()
            self.connection.request(method, path, None if body is None else json.dumps(body), headers)
            reply = self.connection.getresponse()
        data = reply.read()
        assert reply.status in (expected or (200,)), (method, path, reply.status, data[:500])
        self.requests += 1
        return json.loads(data) if data else None

    def step(self) -> None:
        reads = [self._read, self._list, self._search, self._call]
        self._chance.choice([self._put, self._put, self._delete, self._switch, *reads])()

    def _put(self) -> None:
        if len(self.tools) < 30:
            name = f"{self.bundle}/tools/t-{new_id()}/version/v1"
            self.send("PUT", name, TOOL, 201)
            self.tools.append(name)

    def _delete(self) -> None:
        if self.tools:
            self.send("DELETE", self.tools.pop(0), None, 204)

    def _switch(self) -> None:
        for enabled in (False, True):
            self.send("PATCH", self.bundle, {"isEnabled": enabled})

    def _read(self) -> None:
        for name in self.tools[:3]:
            self.send("GET", name)
            self.send("GET", f"{name}/revisions")

    def _list(self) -> None:
        token = self.send("GET", "/tools?recommendedPageSize=20")["nextPageToken"]
        if token:
            self.send("GET", f"/tools?recommendedPageSize=20&pageToken={token}")

    def _search(self) -> None:
        self.send("GET", "/tools/search?q=sum+num&pageSize=20")

    def _call(self) -> None:
        for number in range(5):
            found = self.send("POST", "/tools/invoke/add", {"args": {"a": number, "b": 1}})
            assert found == {"ok": True, "value": number + 1}


def state(server: HttpServerProcess) -> tuple[int, int]:
    """Return how much memory the server has in KiB, and how many descriptors."""
    proc = Path(f"/proc/{server.process.pid}")
    lines = (proc / "status").read_text().splitlines()
    memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return memory, len(list((proc / "fd").iterdir()))


@pytest.mark.soak
def test_sixteen_clients_leave_the_server_as_it_was(tmp_path: Path) -> None:
    crib = Crib(tmp_path / "project")
    with http_server(crib.root, program=("-m", "tests.e2e.rest.rest_server")) as server:
        clients = [Client(server, number) for number in range(CLIENTS)]
        for client in clients:
            client.send("PUT", client.bundle, {"slug": client.slug}, 201)
        states = run(clients, server)
        for client in clients:
            client.connection.close()
        print(f"{sum(client.requests for client in clients)} requests; memory and descriptors: {states}")
    (before, opened), (after, still) = states[len(states) // 3], states[-1]
    assert after < before * 1.2, states
    assert still <= opened + CLIENTS, states


def run(clients: list[Client], server: HttpServerProcess) -> list[tuple[int, int]]:
    until = time.monotonic() + SECONDS
    failed: list[BaseException] = []
    states: list[tuple[int, int]] = []

    def work(step: Callable[[], None]) -> None:
        try:
            while time.monotonic() < until and not failed:
                step()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(client.step,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(SECONDS / 20)
            states.append(state(server))
    assert not failed, failed[0]
    return states
