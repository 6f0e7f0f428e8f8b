"""The interface of a channel, and what its implementations share: settings, requests, parts of long texts."""

from __future__ import annotations

import hashlib
import hmac
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

import orjson
from msgspec import Struct, field

from toolcrib.egress import Egress, EgressRequest, EgressResponse, HostPolicy, HostRule
from toolcrib.errors import HttpFailed, InvalidInput, InvalidToken, RateLimited, SecretMissing, ToolFailed
from toolcrib.pods.protocol import OutboundMessage
from toolcrib.spec.record import record

_TIMEOUT_S = 30.0
_OLD_S = 300
"""Seconds after which a signed request no longer counts: somebody may have recorded it."""
USER = "user:"
"""A chat id that begins so names a person, where the service gives a private chat an id of its own."""


class Button(Struct):
    """A button below a message."""

    label: str
    action: str
    """The text that its press sends back, at most 64 bytes."""


class Outbound(OutboundMessage, rename="camel", omit_defaults=True):
    """A message to a person: the data of `channel.message.send`."""

    buttons: list[Button] = field(default_factory=list)
    link: str = ""
    """An address that is added to the text. It may be one that only this person may know."""


class Inbound(Struct, rename="camel", omit_defaults=True):
    """A message from a person: the data of `channel.message.received`."""

    channel: str
    id: str
    """The same at each delivery by the service."""
    chat_id: str
    sender: str
    """The service's id of the person who wrote it."""
    text: str
    thread_id: str = ""
    action: str = ""
    """The action of the button that was pressed, in place of a text."""


@record
class WebRequest:
    """A request of the service to this program."""

    method: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@record
class WebAnswer:
    """The answer to a request of the service, and the messages in it."""

    messages: Sequence[Inbound] = ()
    text: str = ""
    content_type: str = "text/plain"


class Settings:
    """The environment variables of one channel: `TELEGRAM_OWNER` is `OWNER` here."""

    def __init__(self, channel: str, environment: Mapping[str, str]) -> None:
        self._prefix, self._environment = f"{channel.upper()}_", environment

    def get(self, name: str, default: str = "") -> str:
        """Return a variable."""
        return self._environment.get(self._prefix + name) or default

    def need(self, name: str) -> str:
        """Return a variable; SecretMissing without it."""
        if value := self.get(name):
            return value
        raise SecretMissing(
            f"{self._prefix}{name} is not set", hint="Set it in the environment of `toolcrib channel`."
        )

    @property
    def allowed(self) -> frozenset[str]:
        """The ids of the people who may write: `ALLOWED`, separated by commas, and the owner."""
        named = (one.strip() for one in self.get("ALLOWED").split(","))
        return frozenset(filter(None, (*named, self.get("OWNER").removeprefix(USER))))


class Channel(ABC):
    """One service.

    `send` and `check` raise InvalidToken if the service refuses the token, RateLimited if it asks to wait,
    HttpFailed that is `retryable` if it may work later, and ToolFailed for a message that it never takes.
    """

    name: ClassVar[str]
    limit: ClassVar[int]
    """UTF-16 units of one message, as the services count them; longer texts are split."""
    defaults: ClassVar[Mapping[str, str]] = {}
    """Variables that need not be set."""

    def __init__(self, settings: Settings, egress: Egress) -> None:
        self.settings, self._egress = settings, egress

    async def check(self) -> None:  # noqa: B027 - not every channel has a token
        """Find out if the settings are there, and if the service accepts the token."""

    @abstractmethod
    async def send(self, message: Outbound, key: str) -> None:
        """Send one message whose text has at most `limit` units. `key` is the same at each attempt."""

    def receive(self, after: Inbound | None) -> AsyncIterator[Sequence[Inbound]]:  # noqa: ARG002 - as below
        """Yield messages as they come, those after one that was received earlier.

        The service is told that messages were received when the next ones are asked for.
        """
        return _nothing()

    def accept(self, request: WebRequest) -> WebAnswer:  # noqa: ARG002 - this one has no requests
        """Read a request that the service makes. Raises InvalidToken if it is not signed by the service."""
        raise InvalidInput(f"{self.name} sends no requests: start it without --listen")

    async def _post(self, url: str, body: Mapping[str, Any] | bytes | None, **headers: str) -> EgressResponse:
        """Make a request, a GET without a body; raise RateLimited and HttpFailed by status alone."""
        data = body if isinstance(body, bytes | None) else orjson.dumps(body)
        given = [(name.replace("_", "-"), value) for name, value in headers.items()]
        if data is not None:
            given.append(("content-type", "application/json; charset=utf-8"))
        request = EgressRequest(
            "GET" if data is None else "POST",
            url,
            given,
            data,
            # A long poll ends by itself, before this.
            timeout_s=_TIMEOUT_S * 2,
            follow_redirects=False,
            secret_body=True,
        )
        # The user of this program has named the host, so it may be this machine's own.
        policy = HostPolicy((HostRule.parse(urlsplit(url).netloc),))
        answer = await self._egress.request(request, policy)
        if answer.status == 429:
            wait = answer.retry_after_s
            raise self.limited(_wait_in(answer) if wait is None else wait)
        if answer.status >= 500:
            raise HttpFailed(f"{self.name} answered with status {answer.status}", retryable=True)
        return answer

    def limited(self, wait_s: float) -> RateLimited:
        """Return the error for a service that asks to wait."""
        return RateLimited.of(self.name, "takes no more messages now", wait_s)

    def refused(self, why: str) -> ToolFailed:
        """Return the error for a message that the service never takes."""
        return ToolFailed(f"{self.name} does not take the message: {why}")

    def wrong_token(self, variable: str, why: str) -> InvalidToken:
        """Return the error for a token that the service does not accept."""
        return InvalidToken(
            f"{self.name} refuses the token: {why}",
            hint=f"Set a valid one in {self.name.upper()}_{variable}; messages wait until then.",
        )

    def require_recent(self, at: str) -> None:
        """Refuse a signed request of long ago, by its time in seconds: InvalidToken."""
        if not at.isdigit() or abs(time.time() - int(at)) > _OLD_S:
            raise InvalidToken(f"the request of {self.name} is too old")

    def require_signature(self, given: str, secret: str, signed: bytes, prefix: str = "sha256=") -> None:
        """Refuse a request that was not signed with this secret (HMAC-SHA256): InvalidToken."""
        made = prefix + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(made.encode(), given.encode()):
            raise InvalidToken(f"the request is not signed by {self.name}")


async def _nothing() -> AsyncIterator[Sequence[Inbound]]:
    none: tuple[Sequence[Inbound], ...] = ()
    for page in none:
        yield page


def _wait_in(answer: EgressResponse) -> float:
    """Return the seconds that the body of an answer 429 asks to wait: Telegram's and Discord's form."""
    found = parsed(answer)
    given = found.get("parameters", found)
    value = given.get("retry_after") if isinstance(given, dict) else None
    return float(value) if isinstance(value, int | float) else 1.0


def parsed(answer: EgressResponse) -> dict[str, Any]:
    """Return the JSON object in an answer, an empty one for anything else."""
    try:
        found = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def user_of(chat: str) -> str | None:
    """Return the person that `user:ID` names; None for the id of a chat."""
    return chat.removeprefix(USER) if chat.startswith(USER) else None


def split(text: str, limit: int) -> list[str]:
    """Return a text in parts of at most `limit` UTF-16 units, cut at a line, a word, or where it must be."""
    parts = []
    while _units(text) > limit:
        end = limit
        while _units(text[:end]) > limit:  # Characters beyond the first plane count twice.
            end -= (_units(text[:end]) - limit + 1) // 2
        for mark in ("\n", " "):
            # In the second half only, else a long word would leave almost nothing before it.
            if (at := text.rfind(mark, end // 2, end + 1)) > 0:
                end = at
                break
        parts.append(text[:end].rstrip() or text[:end])
        text = text[end:].lstrip("\n ") if text[end : end + 1] in ("\n", " ") else text[end:]
    return [*parts, text] if text or not parts else parts


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
