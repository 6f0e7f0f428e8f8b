"""Toolcrib as the client of the public conformance suite of MCP: `python mcp_conformance_client.py URL`.

The suite names its scenario in the environment. This program opens a project whose one server is the URL,
lists its tools, logs in where the server asks for that, and calls every tool once, as an agent does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["XDG_DATA_HOME"] = os.path.realpath(tempfile.mkdtemp(prefix="toolcrib-suite-"))
sys.path.insert(0, str(Path(__file__).parents[3]))

import aiohttp

from toolcrib.guard import Ledger
from toolcrib.project import Project, load_config
from toolcrib.project.tools.servers import Servers
from toolcrib.project.trust.trust import settings_rows
from toolcrib.spec import Call, Result, Tool
from toolcrib.state import Vault

_MOST_LOGINS = 2
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")


class Person:
    """The client behind our calls: supports everything, and accepts what it is asked with the defaults."""

    protocol = "2026-07-28"
    capabilities: Mapping[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
    responses: Mapping[str, Any] = {}
    state = None
    session = None

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Answer every request."""
        return {key: self._answer(one) for key, one in requests.items()}

    def _answer(self, request: Mapping[str, Any]) -> Any:
        if request["method"] == "elicitation/create":
            properties = request["params"].get("requestedSchema", {}).get("properties", {})
            return {"action": "accept", "content": {name: _value(one) for name, one in properties.items()}}
        if request["method"] == "roots/list":
            return {"roots": []}
        return {"role": "assistant", "content": {"type": "text", "text": "done"}, "model": "test"}

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a notification."""


def _value(schema: Mapping[str, Any]) -> Any:
    """Return an example of a schema."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _value(one) for name, one in schema.get("properties", {}).items()}
    samples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "null": None}
    return samples.get(kind, "text") if isinstance(kind, str) else "text"


async def _browse(url: str) -> None:
    """Follow an authorization server's redirects back to the listener, as a browser does."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        await answer.read()


def _needs_login(error: Any) -> bool:
    return error is not None and "toolcrib servers login" in (error.hint or "")


class Run:
    """One scenario."""

    def __init__(self, project: Project, servers: Servers) -> None:
        self._project = project
        self._servers = servers
        self._logins = 0

    async def login(self) -> bool:
        """Log in, at most so often."""
        self._logins += 1
        if self._logins > _MOST_LOGINS:
            return False
        browsing: list[asyncio.Task[None]] = []
        try:
            return await self._servers.login(
                "suite",
                lambda url: browsing.append(asyncio.create_task(_browse(url))),
                allow=lambda host: host.startswith("localhost:"),
                limit_s=80,
            )
        finally:
            await asyncio.gather(*browsing, return_exceptions=True)

    async def run(self) -> int:
        """List, log in if that is asked for, and call every tool."""
        await self._servers.ready(80)
        mounted = self._servers.get("suite")
        while not mounted.known:
            if not _needs_login(mounted.server.error) or not await self.login():
                print(mounted.server.error, file=sys.stderr)
                return 1
            await self._servers.ready(80)
        self._project.trust.accept("suite", more=[mounted.row()])
        for own, name in mounted.tools.items():
            for arguments in self._arguments(own, self._project.get(name)):
                result = await self._call(name, arguments)
                print(name, result.status, result.value, result.error, file=sys.stderr)
        return 0

    async def _call(self, name: str, arguments: dict[str, Any]) -> Result:
        call = Call(name, arguments, client=Person())
        result = await self._project.invoke(call)
        while _needs_login(result.error) and await self.login():
            result = await self._project.invoke(call)
        return result

    def _arguments(self, own: str, tool: Tool) -> list[dict[str, Any]]:
        for one in CONTEXT.get("toolCalls", []):
            if one["name"] == own:
                return [each["arguments"] for each in CONTEXT["toolCalls"] if each["name"] == own]
        if own == "echo_schema" or "schema" in tool.input_schema.get("properties", {}):
            seen = {
                name: self._project.get(name).input_schema
                for name in self._servers.get("suite").tools.values()
            }
            return [{"schema": next(iter(seen.values()))}]
        return [_value(tool.input_schema)]


async def main(url: str) -> int:
    """Run the scenario that the suite has named."""
    with tempfile.TemporaryDirectory(dir=os.environ["XDG_DATA_HOME"]) as folder:
        root = Path(folder)
        home = root / ".toolcrib"
        home.mkdir()
        entry: dict[str, Any] = {"url": url}
        if "client_id" in CONTEXT:
            entry["oauth"] = {"client_id": CONTEXT["client_id"]}
            if "client_secret" in CONTEXT:
                os.environ["SUITE_SECRET"] = CONTEXT["client_secret"]
                entry["oauth"]["client_secret"] = "${SUITE_SECRET}"
        if SCENARIO == "auth/basic-cimd":
            entry["oauth"] = {"client_id": "https://conformance-test.local/client-metadata.json"}
        settings = {"mcp_servers": {"suite": entry}, "inputs": {"lenient": True}}
        (home / "config.yml").write_text(json.dumps(settings))
        config = load_config(home / "config.yml", root)
        Ledger(Vault(root)).accept(settings_rows(config), "suite", "program")
        project = Project.open(root)
        assert project.servers is not None
        async with project:
            return await Run(project, project.servers).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(asyncio.run(main(sys.argv[1])))
