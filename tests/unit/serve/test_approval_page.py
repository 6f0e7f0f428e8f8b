"""Questions to a client's user, and the page on which they decide."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc

from tests.patience import patient
from tests.unit.serve.test_connection import Client, Message
from toolcrib.serve.mcp.questions.approval_page import AnswerPage
from toolcrib.serve.mcp.questions.elicitation import ApprovalQuestion, UserAnswer
from toolcrib.spec import Call, Result


class Approver:
    """Asks about every approval, and takes every answer."""

    def question(self, approval: str) -> str | None:
        return f"May {approval} run?"

    def decide(self, approval: str, client: str, answer: UserAnswer) -> None:
        """Take an answer."""


async def test_questions_that_nobody_answers_take_no_memory() -> None:
    page = AnswerPage(Approver())
    page.url(ApprovalQuestion("first", "text"), "mcp:c")
    tracemalloc.start()
    try:
        for number in range(1_000):
            page.url(ApprovalQuestion(f"{number}", "x" * 4_000 + f"{number}"), "mcp:c")
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
        await asyncio.wait_for(page.close(), 100)


class SlowApprover(Approver):
    """Waits for a database before it asks."""

    def __init__(self) -> None:
        self.database = threading.Event()

    def question(self, approval: str) -> str | None:
        assert self.database.wait(patient(10)), "nothing else was done meanwhile"
        return super().question(approval)


async def test_a_question_that_waits_for_the_database_keeps_no_other_call_waiting() -> None:
    async def pending(call: Call) -> Result:
        details = {"status": "pending", "approval": "a1"}
        return Result("pending", details=details) if call.tool == "add" else Result("ok", 1)

    approver = SlowApprover()
    client = Client(pending, approver=approver)
    meta: Message = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    waiting = client.modern("tools/call", {"name": "add"}, **meta)
    other = client.modern("tools/call", {"name": "my_tool"})
    assert (await client.next())["id"] == other
    approver.database.set()
    asked = await client.next()
    assert (asked["id"], asked["result"]["resultType"]) == (waiting, "input_required")
