"""What a mounted server reports is passed on to the client of the call that it belongs to."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from mcp import MCPError

from toolcrib.core.context import Context
from toolcrib.executors.mcp.relay import CallRelay, Relays
from toolcrib.serve.mcp.questions.client import OpenQuestions, SessionClient
from toolcrib.serve.mcp.request import Channel, Sender
from toolcrib.spec import Call


async def test_visits_that_never_end_hide_no_later_one() -> None:
    sent: list[bytes] = []
    channel = Channel(Sender(), sent.append, lambda: False)
    client = SessionClient(channel, "2025-11-25", {}, "info", dict, OpenQuestions())
    relays, call = Relays(), CallRelay(Context.of(Call("visit", {}, client=client)))

    async def send(*_: Any) -> NoReturn:
        begun = [{"elicitationId": f"e-{number}"} for number in range(1_001)]
        raise MCPError(-32042, "log in first", {"elicitations": begun})

    with pytest.raises(MCPError):
        await relays.run(call, send)
    relays.completed("e-1000")
    assert b"e-1000" in b"".join(sent)
