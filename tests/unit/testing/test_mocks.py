"""Mocks of tools, and the fixtures of the pytest plugin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolcrib import Project, Toolset
from toolcrib.errors import RetryableError
from toolcrib.testing import ANY, FakeClock, MemoryStore, MockTools


async def test_answers_come_by_arguments_and_in_sequence() -> None:
    mocks = MockTools()
    mocks.on("web_search", query=ANY).returns("first", "then")
    mocks.on("web_search", query="special").returns("own")
    assert await mocks.execute("web_search", {"query": "a"}) == "first"
    assert await mocks.execute("web_search", {"query": "special", "count": 3}) == "own"
    assert [await mocks.execute("web_search", {"query": "b"}) for _ in range(2)] == ["then", "then"]
    assert [one.arguments["query"] for one in mocks.called("web_search")] == ["a", "special", "b", "b"]
    mocks.assert_called("web_search", query="special", times=1)
    mocks.assert_not_called("send_email")
    with pytest.raises(AssertionError, match="was to be called 2 times, not 1"):
        mocks.assert_called("web_search", query="a", times=2)
    with pytest.raises(AssertionError, match="at least once"):
        mocks.assert_called("web_search", query="never")


async def test_errors_take_the_call_path_and_no_match_is_an_error() -> None:
    mocks = MockTools(clock=FakeClock())
    mocks.on("flaky").raises(RetryableError("busy")).returns("ok")
    result = await mocks.call("flaky", {})
    assert (result.unwrap(), result.attempts) == ("ok", 2)
    mocks.on("strict", x=1).returns("one")
    missing = await mocks.call("strict", {"x": 2})
    assert missing.error is not None
    assert missing.error.code == "not_found"


async def test_a_mock_can_have_the_schema_of_the_real_tool() -> None:
    real = Toolset()

    @real.tool
    def search(query: str) -> str:
        """Search."""
        return query

    mocks = MockTools(like=real)
    mocks.on("search").returns("mocked")
    assert mocks.get("search").description == "Search."
    wrong = await mocks.call("search", {"q": 1})
    assert wrong.error is not None
    assert wrong.error.code == "invalid_input"


def test_a_store_in_memory_is_gone_when_it_is_closed() -> None:
    with MemoryStore() as store:
        assert store.bundles() == []
        place = store._folder
        assert place.is_dir()
    assert not place.exists()


async def test_the_plugin_has_a_toolset_and_a_project(
    toolset: Toolset, project: Callable[..., Project]
) -> None:
    toolset.register("one", lambda: 1, description="One.")
    assert await toolset.execute("one") == 1
    manifest = (
        "name: hello\ndescription: Greets.\nkind: command\nversion: 1\n"
        "inputs: {schema: {type: object, properties: {}}}\noutputs: {format: text}\n"
        "exec: {command: {entrypoint: echo, args: [hello]}}\n"
    )
    async with project({"tools/hello/tool.yml": manifest}) as opened:
        assert (await opened.call("hello")).unwrap() == "hello\n"
