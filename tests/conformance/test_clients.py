"""The official clients: in Python and TypeScript over HTTP, and the Inspector over both transports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitResult

from tests.conformance.conftest import HERE
from tests.crib import Crib
from tests.http_server import http_server


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_python_client(mode: Any, address: str) -> None:
    reported: list[float] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ann", "response": "Ann"})

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)

    async with Client(address, mode=mode, elicitation_callback=elicit) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"test_simple_text", "json_schema_2020_12_tool"} <= names
        text = await client.call_tool("test_tool_with_progress", {}, progress_callback=note)
        assert text.content[0].text == "done"  # type: ignore[union-attr]
        assert reported == [0, 50, 100]
        image = await client.call_tool("test_image_content", {})
        assert image.content[0].type == "image"
        asked = await client.call_tool("test_input_required_result_elicitation", {})
        assert asked.content[0].text == "Hello, Ann!"  # type: ignore[union-attr]
        failed = await client.call_tool("test_error_handling", {})
        assert failed.is_error
        read = await client.read_resource("test://template/7/data")
        assert json.loads(read.contents[0].text)["id"] == "7"  # type: ignore[union-attr]
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert "arg1='a'" in prompt.messages[0].content.text  # type: ignore[union-attr]


def test_the_typescript_client(suite: list[str], address: str) -> None:
    node, program = suite[0], suite[-1]
    script = Path(program).parents[4] / "client.mjs"
    shutil.copy(HERE / "client.mjs", script)
    ran = subprocess.run([node, str(script), address], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found.pop("tools") > 30
    assert found == {
        "progress": [0, 50, 100],
        "counted": "done",
        "asked": "User response: action=accept, content={'response': 'blue'}",
        "image": "image",
        "read": "7",
        "prompt": "Prompt with arguments: arg1='a', arg2='b'",
    }


def test_the_inspector(suite: list[str], tmp_path: Path) -> None:
    """Its command line lists and calls a tool of a project, over both transports."""
    crib = Crib(tmp_path / "project")
    crib.write("f", "content")
    crib.tool("read", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}})
    launcher = Path(suite[-1]).parents[2] / "inspector" / "clients" / "launcher" / "build" / "index.js"
    listed, called = ["--method", "tools/list"], ["--method", "tools/call", "--tool-name", "read"]

    def inspect(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            [suite[0], str(launcher), "--cli", *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    with http_server(crib.root) as server:
        toolcrib = str(Path(sys.executable).with_name("toolcrib"))
        served = [toolcrib, "serve", "--stdio", "--root", str(crib.root), "--data", str(server.data)]
        address = [f"{server.address}/mcp", "--transport", "http"]
        address += ["--header", f"Authorization: Bearer {server.token}"]
        assert "read" in [tool["name"] for tool in inspect(*served, *listed)["tools"]]
        for target in (served, address):
            assert inspect(*target, *called)["content"][0]["text"] == "content"
