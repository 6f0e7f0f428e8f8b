"""`toolcrib serve --dev`: an editor beside an agent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from tests.commands import decide_before, shared_server
from tests.crib import Crib, accept
from tests.e2e.cli.test_cli import cli

pytestmark = pytest.mark.usefixtures("kernel")


def note(crib: Crib, text: str, **permissions: object) -> None:
    grants = {"fs": {"write": ["out"]}, **permissions}
    crib.tool("note", "file", {"action": "write", "path": "out/note", "content": text}, permissions=grants)


async def test_an_edit_is_trusted_at_once_printed_and_recorded(crib: Crib, tmp_path: Path) -> None:
    crib.write("out/note", "")
    note(crib, "one")
    accept(crib.root)
    words = ["serve", "--dev", "--stdio", "--root", str(crib.root)]
    decide_before(words, crib.root, os.environ)
    server = StdioServerParameters(command=str(shared_server().program()), args=words, env=dict(os.environ))
    with (tmp_path / "said").open("w+") as said:
        async with Client(stdio_client(server, errlog=said)) as client:

            async def until(text: str) -> bool:
                """Call until the edit is in effect; return True if it ran."""
                for _ in range(200):
                    result = await client.call_tool("note", {})
                    refused = "approval_required" in str(result.structured_content)
                    if refused or (crib.root / "out/note").read_text() == text:
                        return not refused
                    await asyncio.sleep(0.05)
                raise AssertionError(f"{text} never came")

            assert await until("one")
            note(crib, "two")
            assert await until("two")
            note(crib, "three", network=True)
            assert not await until("three")
            assert cli(crib, "trust", "--yes").code == 0
            assert await until("three")
        said.seek(0)
        assert "trusted note (dev): changed manifest\n" in said.read()
    trusted = [entry.fields for entry in crib.audit() if entry.event == "TRUSTED"]
    assert [fields["channel"] for fields in trusted][-2:] == ["dev", "flag"]
