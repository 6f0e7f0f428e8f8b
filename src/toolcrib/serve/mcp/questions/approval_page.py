"""A page on this machine where a client's user decides on approvals: elicitation by URL.

Its address has a key that only the client gets, to show it to its user. So the page is trusted as much as a
form that the client shows, and needs the same setting.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import socket
from contextlib import suppress
from urllib.parse import parse_qs, quote, unquote

from toolcrib.serve.mcp.questions.elicitation import ApprovalQuestion, Approver, UserAnswer

_MOST = 16_384
"""Bytes of the longest head of a request; a body has fewer than 10,000."""
_REQUEST_S = 10.0
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
_HEAD = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n"
    f"Content-Security-Policy: {POLICY}\r\n\r\n"
)
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Toolcrib: approval</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>body {{ font: 1em/1.5 system-ui; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere }}
input, button {{ font: inherit; padding: .3em .8em }}</style>
{body}"""
_FORM = """<h1>May this call run?</h1><pre>{text}</pre><form method="post">
<p><label>Reason: <input name="reason"></label></p>
{more}<p><button name="answer" value="approve">Run it once</button>
<button name="answer" value="deny">Deny</button></p>
</form>"""
_AGAIN = """<p><label><input type="checkbox" name="dont_ask_again">
If denied, don't ask again soon</label></p>
"""


def page_of(body: str) -> str:
    """Return a whole page, of HTML."""
    return _PAGE.format(body=body)


def form_about(question: str, more: str = "") -> str:
    """Return the form that asks: `answer` is `approve` or `deny`, `reason` a text."""
    from html import escape

    # The text has arguments of the call, which must not become HTML.
    return _FORM.format(text=escape(question), more=more)


class AnswerPage:
    """The pages of one client's questions. It listens on loopback from the first one on."""

    def __init__(self, approver: Approver) -> None:
        self._approver, self._key = approver, os.urandom(32)
        self._address = ""
        self._server: asyncio.Task[asyncio.Server] | None = None

    def url(self, question: ApprovalQuestion, client: str) -> str:
        """Return the address of the page for a question; the same each time."""
        if self._server is None:
            listening = socket.create_server(("127.0.0.1", 0))
            self._address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            starting = asyncio.start_server(self._receive, sock=listening, limit=_MOST)
            self._server = asyncio.ensure_future(starting)
        # The address says all, so nothing is kept of a question that nobody answers.
        name = f"{question.approval}/{quote(client, safe='')}"
        return f"{self._address}/{name}/{self._seal(name)}"

    def _seal(self, name: str) -> str:
        return hashlib.blake2b(name.encode(), key=self._key).hexdigest()

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            (await self._server).close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError, OSError, ValueError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, path, _ = head.split(" ", 2)
                size = re.search(r"(?im)^content-length:\s*(\d{1,4})\s*$", head)
                body = await reader.readexactly(int(size[1])) if size else b""
                given = parse_qs(body.decode())
                status, page = await asyncio.to_thread(self._answer, method, path, given)
                data = page_of(page).encode()
                writer.write(_HEAD.format(status=status, length=len(data)).encode() + data)
                await writer.drain()
        writer.close()

    def _answer(self, method: str, path: str, given: dict[str, list[str]]) -> tuple[str, str]:
        name, _, seal = path.removeprefix("/").rpartition("/")
        approval, _, client = name.partition("/")
        ours = hmac.compare_digest(seal.encode(), self._seal(name).encode())
        text = self._approver.question(approval) if ours else None
        if text is None:
            return "404 Not Found", "<p>There is nothing to decide here, or it has been decided already."
        given_answer = given.get("answer", [""])[0]
        # A program that looks at links must not decide, nor a form that did not come whole.
        if method != "POST" or given_answer not in ("approve", "deny"):
            return "200 OK", form_about(text, _AGAIN)
        approved = given_answer == "approve"
        answer = UserAnswer(approved, given.get("reason", [""])[0], "dont_ask_again" in given)
        self._approver.decide(approval, unquote(client), answer)
        return "200 OK", f"<p>{'Approved' if approved else 'Denied'}. You can close this page."
