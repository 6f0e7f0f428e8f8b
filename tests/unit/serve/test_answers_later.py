"""Requests that are answered later than calls are: completions of mounted servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.serve.doubles import make_tool
from tests.unit.serve.test_connection import Client, error_of, session
from toolcrib.errors import ToolFailed
from toolcrib.guard import Redactor
from toolcrib.serve.mcp import Sender
from toolcrib.spec import Caller, McpForms


class Completing(Client):
    """A client whose server asks a mounted server for completions."""

    def __init__(self, complete: Any, **settings: Any) -> None:
        self.given: Any = None

        def work(*asked: Any) -> Any:
            self.given = asked[-1]
            return complete()

        super().__init__(complete=work, **settings)
        self.catalog.add(make_tool("hi", kind="mcp", mcp=McpForms(prompt=True)))

    def complete(self, **more: Any) -> None:
        argument = {"name": "who", "value": "a"}
        ref = {"type": "ref/prompt", "name": "hi"}
        self.post("completion/complete", {"ref": ref, "argument": argument, **more})


async def test_a_completion_that_raises_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> Any:
        raise RuntimeError("secret")

    client = Completing(crash)
    await session(client)
    client.complete()
    answer = await client.next()
    assert error_of(answer) == -32603
    assert "secret" not in str(answer)
    assert "RuntimeError" in caplog.text


async def test_the_other_arguments_of_a_completion_are_an_object() -> None:
    """With anything else the client of the mounted server fails, and its connection ends for all callers."""
    client = Completing(asyncio.Event().wait)
    await session(client)
    for arguments, given in (({"with": "b"}, {"with": "b"}), ([1], {}), ("with", {}), (None, {})):
        client.complete(context={"arguments": arguments})
        assert await client.quiet()
        assert client.given == given
    await client.connection.drain(0)


async def test_a_token_that_may_not_call_asks_no_mounted_server() -> None:
    client = Completing(asyncio.Event().wait)
    client.sender = Sender("token:reader", Caller("reader", frozenset(["read"])))
    await session(client)
    client.complete()
    assert (await client.next())["result"]["completion"]["values"] == []


async def test_secrets_in_a_completion_and_in_its_error_are_masked() -> None:
    async def complete() -> Any:
        return {"completion": {"values": ["s3cr3t"]}}

    async def fail() -> Any:
        raise ToolFailed("no s3cr3t")

    for work in (complete, fail):
        client = Completing(work, mask=Redactor({"KEY": "s3cr3t"}).redact)
        await session(client)
        client.complete()
        answer = str(await client.next())
        assert "***KEY***" in answer
        assert "s3cr3t" not in answer


async def test_completions_that_wait_are_limited_and_answered_at_the_end() -> None:
    client = Completing(asyncio.Event().wait, max_running=1, max_waiting=2)
    await session(client)
    for _ in range(4):
        client.complete()
    assert error_of(await client.next()) == -32000
    await client.connection.drain(0)
    assert [error_of(await client.next()) for _ in range(3)] == [-32603] * 3
