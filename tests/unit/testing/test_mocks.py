"""Mocks of tools, and the fixtures of the pytest plugin."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest

from toolcrib import Project, Toolset
from toolcrib.bundles import BundleBody
from toolcrib.errors import InvalidInput, InvalidOutput, RetryableError, ToolNotFound
from toolcrib.spec.identifier import new_id
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


async def test_matchers_may_be_functions_and_types() -> None:
    mocks = MockTools()
    mocks.on("pay", amount=int).returns("paid")
    mocks.on("pay", amount=lambda amount: amount > 100, to=ANY).returns("asked")
    assert await mocks.execute("pay", {"amount": 5, "to": "a"}) == "paid"
    assert await mocks.execute("pay", {"amount": 500, "to": "a"}) == "asked"
    mocks.assert_called("pay", times=1, amount=lambda amount: amount > 100)


@dataclasses.dataclass
class Order:
    item: str
    due: datetime.date
    number: int = 1


def like_orders() -> MockTools:
    real = Toolset()

    @real.tool
    def order(order: Order, urgent: bool = False) -> list[Order]:
        """Order."""
        return [order]

    return MockTools(like=real)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"urgnt": True}, "$.urgnt is not known; did you mean urgent?"),
        ({"urgnt": ANY}, "$.urgnt is not known"),
        ({"urgnt": lambda _: True}, "$.urgnt is not known"),
        ({"urgent": "yes"}, '$.urgent "yes" is not of type "boolean"'),
        ({"order": {"item": 3}}, "$.order.item 3 is not of type"),
    ],
)
def test_a_stub_with_arguments_that_the_tool_refuses_is_refused(arguments: Any, says: str) -> None:
    mocks = like_orders()
    for use in (mocks.on, mocks.called, mocks.assert_called, mocks.assert_not_called):
        with pytest.raises(InvalidInput, match=re.escape(says)):
            use("order", **arguments)
    with pytest.raises(ToolNotFound):
        mocks.assert_not_called("ordr")


async def test_an_answer_that_the_tool_would_not_return_is_refused() -> None:
    mocks = like_orders()
    tea = Order("tea", datetime.date(2026, 1, 2))
    stub = mocks.on("order", order=tea, urgent=ANY).returns([tea])
    with pytest.raises(InvalidOutput, match=re.escape('$[0].number "one" is not of type')):
        stub.returns([{"item": "tea", "due": "2026-01-02", "number": "one"}])
    with pytest.raises(InvalidOutput):
        stub.returns("tea")
    found = {"item": "tea", "due": "2026-01-02", "number": 1}
    assert await mocks.execute("order", {"order": found}) == [found]


def test_a_store_in_memory_is_gone_when_it_is_closed() -> None:
    with MemoryStore() as store:
        assert store.bundles() == []
        store.put_bundle(new_id(), BundleBody(slug="kept"))
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
