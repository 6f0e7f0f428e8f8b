"""Test tools: one against a folder of its own, and mocks in place of tools that reach the world."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from toolcrib import ToolcribError, Toolset
from toolcrib.testing import ANY, MockTools


async def test_read_file() -> None:
    """A built-in tool reads a file of its folder, and none outside."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test.txt").write_text("hello")
        tools = Toolset()
        tools.register_builtins("read_file", roots=folder)
        assert await tools.execute("read_file", {"path": "test.txt"}) == "hello"
        refused = await tools.call("read_file", {"path": "../../etc/passwd"})
        assert refused.error is not None
        print("read_file:", refused.error.message)


async def test_with_mocks() -> None:
    """Mocks answer in order, remember their calls, and can fail."""
    tools = MockTools()
    tools.on("web_search", query=ANY).returns("mock results", "more results")
    tools.on("send_email").raises(ToolcribError("the server is down"))
    print("web_search:", await tools.execute("web_search", {"query": "Python"}))
    print("web_search:", await tools.execute("web_search", {"query": "Python 3"}))
    failed = await tools.call("send_email", {"to": "you@example.com"})
    assert failed.error is not None
    print("send_email:", failed.error.message)
    tools.assert_called("web_search", times=2)


asyncio.run(test_read_file())
asyncio.run(test_with_mocks())
