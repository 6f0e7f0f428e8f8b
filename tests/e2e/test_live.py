"""`toolcrib serve` while manifests change on disk: what the official client hears and gets."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import anyio
import mcp_types
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.subscriptions import ToolsListChanged

from tests.commands import shared_server
from tests.crib import Crib
from tests.patience import patient
from toolcrib.bundles import BundleBody, Store, read_manifest
from toolcrib.guard import Ledger
from toolcrib.project import Config
from toolcrib.project.trust.trust import settings_rows
from toolcrib.spec.identifier import new_id
from toolcrib.state import Vault

PATIENCE_S = 40


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    crib = Crib(tmp_path / "project")
    crib.write("data/x", "x")
    return crib


def reads(crib: Crib, name: str, text: str) -> Path:
    crib.write(f"data/{text}", text)
    block = {"action": "read", "path": f"data/{text}"}
    return crib.tool(name, "file", block, permissions={"fs": {"read": ["data"]}})


def parameters(crib: Crib, errors: Path) -> StdioServerParameters:
    # The client has no way to keep what the server writes to standard error.
    command = f'exec "{shared_server().program()}" serve --stdio 2>"{errors}"'
    return StdioServerParameters(command="/bin/sh", args=["-c", command], cwd=crib.root, env=dict(os.environ))


META = {"tool_call", "tool_create", "tools_list", "tools_search"}


async def names(client: Client) -> list[str]:
    listed = (await client.list_tools()).tools
    return [tool.name for tool in listed if tool.name not in META]


async def told_on_standard_error(errors: Path, text: str) -> None:
    deadline = time.monotonic() + patient(PATIENCE_S)
    while text not in errors.read_text():  # noqa: ASYNC240 - a short file
        assert time.monotonic() < deadline, f"{text} was not told"
        await anyio.sleep(0.02)


async def test_a_session_hears_of_changes(crib: Crib, tmp_path: Path) -> None:
    reads(crib, "a", "one")
    errors = tmp_path / "errors"
    heard = anyio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            heard.set()

    async with Client(parameters(crib, errors), mode="legacy", message_handler=hear) as client:
        assert client.server_capabilities is not None
        assert client.server_capabilities.tools == mcp_types.ToolsCapability(list_changed=True)
        assert await names(client) == ["a"]
        reads(crib, "b", "two")
        with anyio.fail_after(PATIENCE_S):
            await heard.wait()
        assert await names(client) == ["a", "b"]
        assert (await client.call_tool("b")).content[0].text == "two"  # type: ignore[union-attr]

        (crib.home / "tools" / "a" / "tool.yml").write_text("name: [")
        await told_on_standard_error(errors, "error[yaml-syntax]")
        assert (await client.call_tool("a")).content[0].text == "one"  # type: ignore[union-attr]


async def test_whoever_listens_hears_of_changes(crib: Crib, tmp_path: Path) -> None:
    reads(crib, "a", "one")
    server = parameters(crib, tmp_path / "errors")
    async with (
        Client(server, mode="2026-07-28") as client,
        client.listen(tools_list_changed=True) as stream,
    ):
        assert stream.honored.tools_list_changed is True
        shutil.rmtree(crib.home / "tools" / "a")
        reads(crib, "b", "two")
        with anyio.fail_after(PATIENCE_S):
            assert await anext(stream) == ToolsListChanged()
            while await names(client) != ["b"]:
                await anext(stream)


async def test_a_session_hears_of_bundles_that_another_process_changes(
    crib: Crib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    Ledger(Vault(crib.root)).accept(settings_rows(Config()), "ann", "terminal")
    reads(crib, "a", "one")
    errors = tmp_path / "errors"
    heard = anyio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            heard.set()

    async with Client(parameters(crib, errors), mode="legacy", message_handler=hear) as client:
        assert await names(client) == ["a"]
        store, bundle = Store(tmp_path / "data"), new_id()
        store.put_bundle(bundle, BundleBody(slug="mine"))
        manifest = (crib.home / "tools" / "a" / "tool.yml").read_bytes()
        put = read_manifest(manifest, "a.yml")
        store.put_tool(bundle, put.slug, put.version, put.body)
        with anyio.fail_after(PATIENCE_S):
            await heard.wait()
        assert await names(client) == ["a", "mine_a__1"]
        result = await client.call_tool("mine_a__1", {})
        assert not result.is_error
        found = await client.call_tool("tool_call", {"name": "mine/a", "arguments": {}})
        assert not found.is_error
        heard = anyio.Event()
        store.switch_bundle(bundle, enabled=False)
        with anyio.fail_after(PATIENCE_S):
            await heard.wait()
        assert await names(client) == ["a"]
        refused = await client.call_tool("tool_call", {"name": "mine/a@1", "arguments": {}})
        assert refused.is_error
        assert "disabled" in str(refused.content)
