"""`toolcrib serve --http` as a process of its own, and a plain HTTP client."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.commands import PROGRAM, Forked
from tests.crib import accept
from tests.patience import patient
from toolcrib.guard import Tokens
from toolcrib.serve.rest import running_link
from toolcrib.state import Vault

LIMIT_S = 30


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of the error in it; "" for another response."""
        found = self.json.get("error", {}) if self.body else {}
        return str(found.get("code", ""))


@dataclass(slots=True)
class HttpServerProcess:
    """A running server."""

    process: Forked
    address: str
    login: str
    token: str
    """With the scope admin, and an owner who is not this user."""
    root: Path
    data: Path
    """The user's data folder."""

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=patient(LIMIT_S))

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = "",
    ) -> Reply:
        """Send one request. `body` is JSON, or bytes as they are; `token` None sends none."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {} if data is None else {"Content-Type": "application/json"}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        connection = self.connect()
        try:
            connection.request(method, path, data, {**sent, **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def person_link(self) -> str:
        """Return a new login link of the person who started the server."""
        link = running_link(Vault(self.root, self.data))
        assert link is not None
        return link

    def log_in(self, link: str) -> dict[str, str]:
        """Use a login link; return the header of its session, as the page sends it."""
        reply = self.send("POST", "/session", {"code": link.partition("#code=")[2]}, token=None)
        assert (reply.status, reply.headers["Set-Cookie"]) == (201, None)
        return {"Authorization": f"Bearer {reply.json['token']}", "Origin": self.address}

    def create_token(self, name: str, *scopes: str, **options: Any) -> str:
        tokens = Tokens(Vault(self.root, self.data))
        try:
            return tokens.create(name, scopes, owner="olga", **options)
        finally:
            tokens.close()


@contextmanager
def http_server(
    root: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = (),
) -> Iterator[HttpServerProcess]:
    """Serve a project from here to the end of the block, with `<root>-data` as the user's data folder."""
    data = root.with_name(f"{root.name}-data")
    accept(root, data)
    words = ["serve", "--http", "--port", "0", "--root", str(root), "--data", str(data), *options]
    with tempfile.TemporaryFile("w+") as errors:
        process = Forked(
            [*([sys.executable, *program] if program else [PROGRAM]), *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(env or {})},
        )
        assert process.stdout is not None
        try:
            first, second = process.stdout.readline(), process.stdout.readline()
            if not second:
                errors.seek(0)
                raise AssertionError(f"the server did not start: {errors.read()}")
            server = HttpServerProcess(process, first.split()[-1], second.split()[-1], "", root, data)
            server.token = server.create_token(f"admin-{server.port}", "admin")
            yield server
        finally:
            process.terminate()
            process.wait(patient(LIMIT_S))
            process.stdout.close()
