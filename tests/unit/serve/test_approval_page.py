"""The page on which a client's user decides."""

from __future__ import annotations

import asyncio
import tracemalloc

from toolcrib.serve.mcp.questions.approval_page import AnswerPage
from toolcrib.serve.mcp.questions.elicitation import ApprovalQuestion, UserAnswer


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
        await asyncio.wait_for(page.close(), 30)
