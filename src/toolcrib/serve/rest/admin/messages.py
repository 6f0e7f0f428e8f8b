"""The routes of messages to people on channels."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, convert

from toolcrib.bundles.records import Moment, Uuid
from toolcrib.errors import ConflictError, NotFoundError
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.pages import PageQuery, given, page_before, page_of
from toolcrib.serve.rest.services import RestRequest, location

ROUTES = Routes()
_PATH = "/messages"
_ONE = f"{_PATH}/{{messageId}}"
_State = Literal["queued", "published", "delivered", "dead", "retried"]


class MessageAnswer(Struct, kw_only=True, frozen=True, rename="camel"):
    """A message and its state."""

    id: Uuid
    data: dict[str, Any]
    """`channel`, `text` and, if given, `chatId` and `threadId`."""
    state: _State
    """`queued` here, `published` on NATS, `delivered` to the service, or `dead`: it never will be. `retried`:
    it was dead, and another message has taken its place."""
    error: str
    """The reason why it is dead, and the message that replaced it."""
    queued_at: Moment
    settled_at: Moment | None


class MessagePage(Struct, kw_only=True, rename="camel"):
    """A page of messages, the newest first."""

    messages: list[MessageAnswer]
    next_page_token: str | None


class MessagesQuery(PageQuery, kw_only=True):
    """The query of messages."""

    state: _State | UnsetType = UNSET


class QueuedAgain(Struct, kw_only=True, frozen=True):
    """The message that replaces a dead letter."""

    id: Uuid


@ROUTES.add("GET", _PATH, "admin", {200: MessagePage}, NotFoundError, query=MessagesQuery)
def list_messages(request: RestRequest) -> Answer:
    """List messages to people on channels, the newest first."""
    query: MessagesQuery = request.query
    question = ("messages", given(query.state))
    before = page_before(query, question)
    found = request.services.project.messages.page(given(query.state), query.page_size + 1, before)
    page, token = page_of(found, query, question, lambda one: [one.id])
    answers = [convert(one.as_dict(), MessageAnswer) for one in page]
    return Answer(MessagePage(messages=answers, next_page_token=token))


@ROUTES.add("GET", _ONE, "read", {200: MessageAnswer}, NotFoundError)
def get_message(request: RestRequest) -> Answer:
    """Return one message and its state."""
    found = request.services.project.messages.find(request.path["messageId"])
    return Answer(convert(found.as_dict(), MessageAnswer))


@ROUTES.add("POST", f"{_ONE}/retry", "admin", {201: QueuedAgain}, NotFoundError, ConflictError, located=True)
def retry_message(request: RestRequest) -> Answer:
    """Send a dead letter again, as a new message."""
    new = request.services.project.messages.retry(request.path["messageId"])
    return Answer(QueuedAgain(id=new), 201, headers=location(request, f"{_PATH}/{new}"))
