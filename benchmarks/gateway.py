"""An HTTP tool behind a gateway: Toolcrib, ContextForge, and the tool's own server as the limit."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson

from benchmarks.environment import bin_of_gateway
from benchmarks.http_tools import MANIFEST
from benchmarks.mcp_http import Connection
from benchmarks.rest import CONNECTIONS, Server, separate, take
from benchmarks.setting import Missing, Setting, reason_of
from benchmarks.table import Row, Table

LIMIT, OURS, PEER_NAME = "the tool's own server", "toolcrib serve --http", "ContextForge"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ARGUMENTS = {"a": 1}
WAIT = 180
"""Seconds in which ContextForge must have made its database."""
NOTE = (
    "One process a gateway, with the tool's server on the same core. Toolcrib checks Host and token, and "
    "writes two lines of its audit log for each call. ContextForge runs without authentication, otherwise "
    "with its own settings, and keeps its metrics in SQLite."
)


class Target(Server):
    """The server of the tool: it answers with what it gets."""

    connection = Connection

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        self._post("/", ARGUMENTS, orjson.dumps(ARGUMENTS))

    def _post(self, path: str, body: object, answer: bytes) -> None:
        """Send this from now on, and expect an answer with these bytes in it."""
        text = orjson.dumps(body)
        token = f"Authorization: Bearer {self.token}\r\n" * bool(self.token)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{token}"
            "Content-Type: application/json\r\nAccept: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n"
        )
        self.request, self.answer = head.encode() + text, answer


class Ours(Target):
    """`toolcrib serve --http` of a project with an HTTP tool."""

    def __init__(self, folder: Path, target: int) -> None:
        tool = folder / "project" / ".toolcrib" / "tools" / "asks"
        tool.mkdir(parents=True)
        (tool / "tool.yml").write_text(MANIFEST.format(port=target), encoding="utf-8")
        super().__init__("toolcrib", folder)
        self._post("/tools/invoke/asks", {"args": ARGUMENTS}, b'"value":{"a":1}')


class ContextForge(Target):
    """The gateway with the same tool, called by JSON-RPC."""

    def __init__(self, folder: Path, target: int) -> None:
        programs = bin_of_gateway(lambda _: None)
        if programs is None:
            raise Missing("skipped: its environment cannot be made")
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.token, self.processor = "", []
        command = [str(programs / "mcpgateway"), "--host", "127.0.0.1", "--port", str(self.port)]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=_settings(folder), stdout=log, stderr=log, text=True
            )
        separate(self.process.pid)
        try:
            self._wait()
            about = {"name": "asks", "url": f"http://127.0.0.1:{target}/", "input_schema": SCHEMA}
            self._ask("/tools", {"tool": about | {"integration_type": "REST", "request_type": "POST"}})
        except BaseException:
            self.close()
            raise
        params = {"name": "asks", "arguments": ARGUMENTS}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        self._post("/rpc", call, b'"isError":false')

    def _wait(self) -> None:
        deadline = time.monotonic() + WAIT
        while True:
            try:
                return self._ask("/health")
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.2)

    def _ask(self, path: str, body: object = None) -> None:
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()


def _settings(folder: Path) -> Mapping[str, str]:
    """Return the environment of ContextForge: what it needs to start, and to call tools of this machine."""
    keys = ("JWT_SECRET_KEY", "AUTH_ENCRYPTION_SECRET", "PLATFORM_ADMIN_PASSWORD", "BASIC_AUTH_PASSWORD")
    return {
        **os.environ,
        **{name: f"Aa1-{secrets.token_urlsafe(48)}" for name in keys},
        "DATABASE_URL": f"sqlite:///{folder}/gateway.db",
        "AUTH_REQUIRED": "false",
        "ALLOW_UNAUTHENTICATED_ADMIN": "true",
        "SSRF_PROTECTION_ENABLED": "false",
        "LOG_LEVEL": "ERROR",
    }


def measure(setting: Setting) -> Iterator[Table]:
    """Yield one table; each round asks every server in turn."""
    rows = [Row(LIMIT), Row(OURS)]
    rows += [Row(PEER_NAME, peer=True)] * setting.peers
    table = Table(f"An HTTP tool behind a gateway, {CONNECTIONS} connections", "µs", rows, [NOTE])
    with ExitStack() as stack:
        target = Target("echo", setting.folder / "target")
        stack.callback(target.close)
        servers: dict[str, Target] = {LIMIT: target}
        makers: dict[str, Callable[[Path, int], Any]] = {OURS: Ours, PEER_NAME: ContextForge}
        for number, row in enumerate(rows[1:]):
            try:
                servers[row.name] = server = makers[row.name](
                    setting.folder / f"gateway{number}", target.port
                )
                stack.callback(server.close)
                asyncio.run(server.send(1))
            except Exception as error:
                servers.pop(row.name, None)
                row.missing = reason_of(error)
        take(table, servers, setting.effort(5), times=32 if setting.quick else 64)
    yield table
