"""Each channel against a local server of its service's shape."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.chat_services import LIMITED, SERVICES, Heard, Service, environment, served
from toolcrib.egress import Egress
from toolcrib.errors import HttpFailed, InvalidToken, RateLimited, SecretMissing, ToolFailed
from toolcrib.pods.channels.channel import Button, Channel, Inbound, Outbound, WebRequest, split
from toolcrib.pods.channels.table import open_channel

WITH_TOKEN = ("telegram", "discord", "slack", "whatsapp")


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    async with Egress() as opened:
        yield opened


@pytest.fixture(params=SERVICES)
async def service(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Service]]:
    async with served(request.param) as running:
        yield request.param, running


def opened(name: str, url: str, egress: Egress, **more: str) -> Channel:
    return open_channel(name, environment(name, url, **more), egress)


def text_of(body: dict[str, object]) -> object:
    """Return the text that a person would read."""
    found = body.get("text", body.get("content"))
    return found["body"] if isinstance(found, dict) else found


async def test_a_message_arrives(service: tuple[str, Service], egress: Egress) -> None:
    name, running = service
    channel = opened(name, running.url, egress)
    await channel.check()
    running.heard.clear()
    await channel.send(Outbound(name, "Hello", "42"), "key")
    (heard,) = running.heard
    assert text_of(heard.body) == "Hello"
    assert "42" in json.dumps(heard.body) + heard.path


async def test_a_service_that_asks_to_wait_says_how_long(
    service: tuple[str, Service], egress: Egress
) -> None:
    name, running = service
    running.first.append(LIMITED[name])
    with pytest.raises(RateLimited) as caught:
        await opened(name, running.url, egress).send(Outbound(name, "x", "42"), "key")
    assert caught.value.retryable
    assert caught.value.details["retryAfterS"] <= 0.02


async def test_a_service_that_is_down_may_work_later(service: tuple[str, Service], egress: Egress) -> None:
    name, running = service
    running.first.append((503, {}, {}))
    with pytest.raises(HttpFailed) as caught:
        await opened(name, running.url, egress).send(Outbound(name, "x", "42"), "key")
    assert caught.value.retryable


async def test_a_message_that_no_attempt_would_deliver_is_refused(
    service: tuple[str, Service], egress: Egress
) -> None:
    name, running = service
    with pytest.raises(ToolFailed) as caught:
        await opened(name, running.url, egress).send(Outbound(name, "x", "404"), "key")
    assert not caught.value.retryable
    assert f"{name} does not take the message" in caught.value.message


@pytest.mark.parametrize("name", WITH_TOKEN)
async def test_a_wrong_token_is_found_at_the_start(name: str, egress: Egress) -> None:
    async with served(name) as running:
        channel = opened(name, running.url, egress, token="wrong")
        with pytest.raises(InvalidToken, match=f"{name} refuses the token"):
            await channel.check()
        with pytest.raises(InvalidToken):
            await channel.send(Outbound(name, "x", "42"), "key")


@pytest.mark.parametrize("name", SERVICES)
async def test_without_a_token_the_variable_is_named(name: str, egress: Egress) -> None:
    with pytest.raises(SecretMissing, match=f"{name.upper()}_"):
        await open_channel(name, {}, egress).check()


async def test_discord_gets_one_number_for_every_attempt_and_alarms_nobody(egress: Egress) -> None:
    async with served("discord") as running:
        channel = opened("discord", running.url, egress)
        for _ in range(2):
            await channel.send(Outbound("discord", "@everyone", "user:7"), "one")
        first, second = running.said("/channels/dm-7/messages")
        assert first["nonce"] == second["nonce"]
        assert first["enforce_nonce"] is True
        assert first["allowed_mentions"] == {"parse": []}


async def test_slack_text_cannot_mention_everybody(egress: Egress) -> None:
    async with served("slack") as running:
        await opened("slack", running.url, egress).send(Outbound("slack", "<!channel> a&b", "C1", "9.1"), "k")
        (body,) = running.said("chat.postMessage")
        assert (body["channel"], body["text"]) == ("C1", "&lt;!channel&gt; a&amp;b")
        assert (body["thread_ts"], body["unfurl_links"]) == ("9.1", False)


async def test_buttons_are_those_of_the_service(egress: Egress) -> None:
    buttons = [Button("Approve", "yes 1"), Button("Deny", "no 1")]
    for name in WITH_TOKEN:
        async with served(name) as running:
            await opened(name, running.url, egress).send(Outbound(name, "?", "42", buttons=buttons), "key")
            written = json.dumps(running.heard[-1].body)
            assert all(part in written for part in ("Approve", "yes 1", "Deny", "no 1")), name


@pytest.mark.parametrize("limit", [1, 7, 50, 4096])
def test_a_long_text_is_split_without_loss(limit: int) -> None:
    text = "word " * 900 + "x" * 5000 + "\n" + "🙂" * 700 + "\n\nend"
    if limit == 1:
        text = "abc def"
    parts = split(text, limit)
    assert all(0 < len(part.encode("utf-16-le")) // 2 <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert split("short", 7) == ["short"]


def signed(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def slack_request(body: bytes, at: float, *, secret: str = "signing", form: bool = False) -> WebRequest:
    stamp = str(int(at))
    headers = {
        "x-slack-request-timestamp": stamp,
        "x-slack-signature": "v0=" + signed(secret, b"v0:" + stamp.encode() + b":" + body),
        "content-type": "application/x-www-form-urlencoded" if form else "application/json",
    }
    return WebRequest("POST", {}, headers, body)


def test_slack_events_count_if_they_are_signed_and_new() -> None:
    channel = open_channel("slack", environment("slack", ""), Egress())
    event = {"type": "message", "channel": "C1", "user": "U1", "text": "hi", "ts": "1.5"}
    body = json.dumps({"type": "event_callback", "event": event}).encode()
    now = time.time()
    assert channel.accept(slack_request(body, now)).messages == [Inbound("slack", "C1-1.5", "C1", "U1", "hi")]
    for wrong in (slack_request(body, now, secret="other"), slack_request(body, now - 1000)):
        with pytest.raises(InvalidToken):
            channel.accept(wrong)
    own = json.dumps({"type": "event_callback", "event": {**event, "bot_id": "B1"}}).encode()
    assert channel.accept(slack_request(own, now)).messages == ()
    question = json.dumps({"type": "url_verification", "challenge": "c"}).encode()
    assert channel.accept(slack_request(question, now)).text == "c"
    press = {
        "channel": {"id": "C1"},
        "user": {"id": "U1"},
        "actions": [{"action_ts": "2.5", "value": "approve 1"}],
    }
    form = urlencode({"payload": json.dumps(press)}).encode()
    (pressed,) = channel.accept(slack_request(form, now, form=True)).messages
    assert (pressed.sender, pressed.action) == ("U1", "approve 1")


def test_discord_presses_count_if_they_are_signed_and_new() -> None:
    key = Ed25519PrivateKey.generate()
    known = {"DISCORD_PUBLIC_KEY": key.public_key().public_bytes_raw().hex()}
    channel = open_channel("discord", known, Egress())

    def request(body: dict[str, object], at: float, by: Ed25519PrivateKey = key) -> WebRequest:
        raw, stamp = json.dumps(body).encode(), str(int(at))
        signature = by.sign(stamp.encode() + raw).hex()
        return WebRequest("POST", {}, {"x-signature-timestamp": stamp, "x-signature-ed25519": signature}, raw)

    now = time.time()
    ping = channel.accept(request({"type": 1}, now))
    assert (ping.messages, json.loads(ping.text), ping.content_type) == ((), {"type": 1}, "application/json")
    press = {"type": 3, "id": "9", "channel_id": "42", "data": {"custom_id": "approve 1"}}
    for person in ({"user": {"id": "7"}}, {"member": {"user": {"id": "7"}}}):
        answer = channel.accept(request({**press, **person}, now))
        assert answer.messages == [Inbound("discord", "9", "42", "7", "", "", "approve 1")]
        assert json.loads(answer.text) == {"type": 6}
    other = Ed25519PrivateKey.generate()
    for wrong in (request(press, now, other), request(press, now - 1000), WebRequest("POST", {}, {}, b"{}")):
        with pytest.raises(InvalidToken):
            channel.accept(wrong)
    with pytest.raises(SecretMissing, match="DISCORD_PUBLIC_KEY"):
        open_channel("discord", {}, Egress()).accept(request({"type": 1}, now))


def test_whatsapp_requests_count_if_they_are_signed() -> None:
    channel = open_channel("whatsapp", environment("whatsapp", ""), Egress())
    hello = {"hub.mode": "subscribe", "hub.verify_token": "verify", "hub.challenge": "77"}
    assert channel.accept(WebRequest("GET", hello, {}, b"")).text == "77"
    with pytest.raises(InvalidToken):
        channel.accept(WebRequest("GET", hello | {"hub.verify_token": "other"}, {}, b""))
    message = {"from": "4917", "id": "wamid.2", "type": "text", "text": {"body": "hi"}}
    body = json.dumps({"entry": [{"changes": [{"value": {"messages": [message]}}]}]}).encode()
    right = {"x-hub-signature-256": "sha256=" + signed("signing", body)}
    found = channel.accept(WebRequest("POST", {}, right, body)).messages
    assert found == [Inbound("whatsapp", "wamid.2", "4917", "4917", "hi")]
    with pytest.raises(InvalidToken):
        channel.accept(WebRequest("POST", {}, right, body + b" "))


async def test_telegram_messages_and_presses_are_read_once_they_were_taken(egress: Egress) -> None:
    person = {"id": 7}
    updates = [
        {"update_id": 5, "message": {"chat": {"id": 42}, "from": person, "text": "hi"}},
        {"update_id": 6, "message": {"chat": {"id": 42}, "from": person, "photo": []}},
        {
            "update_id": 7,
            "callback_query": {
                "id": "q",
                "from": person,
                "data": "approve 1",
                "message": {"chat": {"id": 42}},
            },
        },
    ]
    async with served("telegram") as running:
        usual = running.answer

        def answer(heard):  # type: ignore[no-untyped-def]
            if "getUpdates" in heard.path:
                return 200, {
                    "ok": True,
                    "result": [one for one in updates if one["update_id"] >= heard.body["offset"]],
                }
            return usual(heard)

        running.answer = answer
        pages = opened("telegram", running.url, egress).receive(None)
        found = [(one.id, one.sender, one.text, one.action) for one in await anext(pages)]
        assert found == [("5", "7", "hi", ""), ("7", "7", "", "approve 1")]
        # The service forgets them with the next request only.
        assert [body["offset"] for body in running.said("getUpdates")] == [0]
        assert await anext(pages) == []
        assert [body["offset"] for body in running.said("getUpdates")] == [0, 8]
        assert running.said("answerCallbackQuery") == [{"callback_query_id": "q"}]
        await pages.aclose()  # type: ignore[attr-defined]


async def test_discord_reads_the_chats_that_there_are_and_names_the_others(
    egress: Egress, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"id": "9", "channel_id": "100", "author": {"id": "7"}, "content": "hi"}
    async with served("discord") as running:
        usual = running.answer

        def answer(heard: Heard) -> tuple[int, object]:
            return (200, [message]) if "/channels/100/messages?" in heard.path else usual(heard)

        running.answer = answer
        chats = {"DISCORD_CHATS": "404, 100", "DISCORD_OWNER": ""}
        variables = environment("discord", running.url) | chats
        pages = open_channel("discord", variables, egress).receive(None)
        assert [one.text for one in await anext(pages)] == ["hi"]
        await pages.aclose()  # type: ignore[attr-defined]
    (said,) = caplog.messages
    assert "Unknown Channel" in said
    assert "nothing is read in 404: check DISCORD_CHATS" in said
