"""The page of a link that a person got in a chat: one question, for a phone, without a login."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from starlette.responses import HTMLResponse, Response

from toolcrib.errors import ToolcribError
from toolcrib.project.control.chats import ChatApprovals
from toolcrib.serve.auth import NOBODY
from toolcrib.serve.http import Routes
from toolcrib.serve.mcp.questions.approval_page import POLICY, form_about, page_of
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()
_PATH = "/asked/{stamp}/{channel}/{account}"
_FORM = "application/x-www-form-urlencoded"
_PAGES = {200: "text/html"}


@ROUTES.add("GET", _PATH, None, _PAGES)
def show_question(request: RestRequest) -> Response:
    """Show the question of a link. Programs of a chat open links too, so this decides nothing."""
    stamp, name, chats = _link(request)
    try:
        approval, _ = chats.asked(stamp, name)
        text = chats.service.question(chats.service.show(approval.id))
    except ToolcribError as error:
        return _refusal(request, error)
    if approval.status != "pending":
        return _page(f"This call no longer waits: {approval.status}.")
    if text is None:
        return _page(f"This call is too long to show: toolcrib approvals show {approval.id}")
    return _html(form_about(text))


@ROUTES.add(
    "POST", _PATH, None, _PAGES, raw={_FORM: ("The form of this page.", "answer=deny&reason=Too+dear")}
)
def answer_question(request: RestRequest) -> Response:
    """Take the answer of the page. It counts once, as one of the account that got the link."""
    stamp, name, chats = _link(request)
    given = {key: values[0] for key, values in parse_qs(request.data.decode(errors="replace")).items()}
    if given.get("answer") not in ("approve", "deny"):
        return show_question(request)
    try:
        approve = given["answer"] == "approve"
        sheet = chats.decide(stamp, name, approve=approve, note=given.get("reason", ""))
    except ToolcribError as error:
        return _refusal(request, error)
    return _page(f"{sheet.approval.status.capitalize()}. You can close this page.")


def _link(request: RestRequest) -> tuple[str, str, ChatApprovals]:
    path = request.path
    return path["stamp"], f"{path['channel']}:{path['account']}", request.services.project.chat_approvals


def _refusal(request: RestRequest, error: ToolcribError) -> Response:
    request.services.access.hide(error, NOBODY)
    return _page(f"This does not count: {error.message}")


def _page(text: str) -> Response:
    return _html(f"<p>{escape(text)}")


def _html(body: str) -> Response:
    headers = {
        "content-security-policy": POLICY,
        "cache-control": "no-store",
        # With `no-referrer` a browser sends the form with the origin `null`, which is refused.
        "referrer-policy": "same-origin",
    }
    return HTMLResponse(page_of(body), headers=headers)
