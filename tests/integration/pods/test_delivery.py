"""From the bus to a service, and from a service to the bus: a real NATS server, and a local service."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

from tests.certificates import certificate_for
from tests.chat_services import LIMITED, Service, environment, served
from tests.commands import PROGRAM
from tests.integration.pods.test_channels import signed
from tests.nats_server import NatsProcess
from tests.patience import patient
from toolcrib.egress import Egress
from toolcrib.errors import InvalidToken
from toolcrib.pods.bus import RECEIVED, SEND, STATE, Bus, envelope
from toolcrib.pods.channels.channel import Inbound, Outbound
from toolcrib.pods.channels.serving import ChannelProcess, Settled
from toolcrib.pods.channels.table import open_channel


async def until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    async with asyncio.timeout(patient(seconds)):
        while not condition():  # noqa: ASYNC110 - the condition is about another process
            await asyncio.sleep(0.01)


@asynccontextmanager
async def connected(nats: NatsProcess, **variables: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect({"NATS_URL": nats.url} | variables)
    try:
        yield bus
    finally:
        await bus.aclose()


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def delivering(nats: NatsProcess, service: Service, **more: Any) -> AsyncIterator[Bus]:
    """Run the process of telegram."""
    variables = environment("telegram", service.url) | {"TELEGRAM_ALLOWED": "7, 8"}
    async with connected(nats) as bus, Egress() as egress:
        process = ChannelProcess(open_channel("telegram", variables, egress), bus, **more)
        async with running(process.run()):
            yield bus


async def send(bus: Bus, key: str, text: str, channel: str = "telegram", chat: str = "42") -> None:
    await bus.insist(SEND, key, envelope(SEND, Outbound(channel, text, chat)))


@asynccontextmanager
async def states(bus: Bus) -> AsyncIterator[dict[str, Settled]]:
    """Collect the ends of messages."""
    found: dict[str, Settled] = {}

    async def note(settled: Any) -> None:
        found.update({one.id: one for _, one in settled})

    async with running(bus.consume("test", STATE, Settled, note, batch=10)):
        yield found


def texts(service: Service) -> list[str]:
    return [body["text"] for body in service.said("sendMessage")]


async def test_messages_are_delivered_in_order_and_only_those_of_the_channel(nats: NatsProcess) -> None:
    async with served("telegram") as service, delivering(nats, service) as bus, states(bus) as ends:
        service.first += [
            LIMITED["telegram"],
            (502, {}, {}),
        ]  # The first one waits, and nothing overtakes it.
        await send(bus, "a", "1")
        await send(bus, "b", "other", "slack")
        await send(bus, "c", "x" * 5000)
        await send(bus, "d", "3", chat="")
        await send(bus, "a", "1")  # Sent again by a bridge that was killed.
        await until(lambda: len(ends) == 3, "the ends")
        assert texts(service) == ["1", "x" * 4096, "x" * 904, "3"]
        assert {one.state for one in ends.values()} == {"delivered"}
        assert service.said("sendMessage")[-1]["chat_id"] == "me"


async def test_a_message_that_the_service_refuses_is_a_dead_letter_and_others_go_on(
    nats: NatsProcess,
) -> None:
    async with served("telegram") as service, delivering(nats, service) as bus, states(bus) as ends:
        await send(bus, "a", "1", chat="404")
        await send(bus, "b", "2")
        await until(lambda: len(ends) == 2, "the ends")
        assert (ends["a"].state, ends["b"].state) == ("dead", "delivered")
        assert "chat not found" in ends["a"].error
        assert ends["a"].message.text == "1"


async def test_a_service_that_stays_away_makes_a_dead_letter_in_the_end(nats: NatsProcess) -> None:
    async with (
        served("telegram") as service,
        delivering(nats, service, give_up_s=0.5) as bus,
        states(bus) as ends,
    ):
        service.first += [(503, {}, {})] * 100
        await send(bus, "a", "1")
        await until(lambda: "a" in ends, "the dead letter")
        assert ends["a"].state == "dead"


async def test_a_token_that_is_refused_ends_the_process_and_no_message(nats: NatsProcess) -> None:
    async with served("telegram") as service:
        async with delivering(nats, service) as bus, states(bus) as ends:
            await send(bus, "a", "1")
            await until(lambda: "a" in ends, "the first")
        async with connected(nats) as bus, Egress() as egress:
            channel = open_channel("telegram", environment("telegram", service.url, "wrong"), egress)
            with pytest.raises(InvalidToken):
                await ChannelProcess(channel, bus).run()
            await send(bus, "b", "2")
        async with delivering(nats, service):
            await until(lambda: texts(service) == ["1", "2"], "the message that waited")


async def test_a_server_that_is_killed_loses_nothing_and_repeats_nothing(nats: NatsProcess) -> None:
    async with served("telegram") as service, delivering(nats, service) as bus:
        for number in range(60):
            if number in (20, 40):
                await asyncio.to_thread(nats.stop)
                await asyncio.to_thread(nats.start)
            await send(bus, f"m{number}", str(number))
        await until(lambda: len(texts(service)) >= 60, "all messages")
        assert texts(service) == [str(number) for number in range(60)]


_CANCEL = """
import asyncio, sys
from toolcrib.pods.bus import Bus

async def main():
    for halves in range(60):
        task = asyncio.create_task(Bus.connect({"NATS_URL": sys.argv[1]}))
        await asyncio.sleep(halves / 2_000)
        is_cancelled = task.cancel()
        await asyncio.wait([task])
        if is_cancelled and not task.cancelled():
            print("connected in spite of it, after", halves / 2, "ms")

asyncio.run(main())
"""


def test_a_connection_that_is_being_made_can_be_cancelled(nats: NatsProcess) -> None:
    # In a process of its own: the client leaves sockets open.
    words = [sys.executable, "-c", _CANCEL, nats.url]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == ""


async def test_a_connection_that_is_closed_is_not_reported_as_lost(
    nats: NatsProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(nats):
        await asyncio.to_thread(nats.stop)
        await until(lambda: "NATS: disconnected" in caplog.messages, "the word of it")
        await asyncio.to_thread(nats.start)
        await until(lambda: caplog.messages[-1] == "NATS: connected again", "the connection")
        caplog.clear()
    assert caplog.messages == []


async def test_what_allowed_people_write_is_published_once(nats: NatsProcess) -> None:
    def update(number: int, person: int, text: str) -> dict[str, Any]:
        return {"update_id": number, "message": {"chat": {"id": 42}, "from": {"id": person}, "text": text}}

    updates = [update(1, 7, "hello"), update(2, 666, "intruder"), update(3, 8, "bye")]
    async with served("telegram") as service:
        usual = service.answer

        def answer(heard: Any) -> tuple[int, Any]:
            # It forgets nothing, as if the process had died before it asked for more.
            return (200, {"ok": True, "result": updates}) if "getUpdates" in heard.path else usual(heard)

        service.answer = answer
        found: list[Inbound] = []

        async def note(messages: Any) -> None:
            found.extend(one for _, one in messages)

        for _ in range(2):
            async with (
                delivering(nats, service) as bus,
                running(bus.consume("test", f"{RECEIVED}.>", Inbound, note)),
            ):
                await until(lambda: len(service.said("getUpdates")) > 2, "two requests")
                await until(lambda: len(found) >= 2, "the messages")
            service.heard.clear()
        assert [(one.sender, one.text) for one in found] == [("7", "hello"), ("8", "bye")]


async def test_requests_of_a_service_are_accepted_if_they_are_signed(nats: NatsProcess) -> None:
    async with connected(nats) as bus, Egress() as egress:
        variables = environment("webhook", "http://127.0.0.1:9") | {"WEBHOOK_ALLOWED": "ann"}
        process = ChannelProcess(open_channel("webhook", variables, egress), bus)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        listening = f"http://127.0.0.1:{port}"
        body = b'{"channel":"x","id":"1","chatId":"room","sender":"ann","text":"hi"}'
        async with running(process.run(("127.0.0.1", port))), aiohttp.ClientSession() as http:

            async def post(signature: str, text: bytes = body) -> int:
                headers = {"X-Toolcrib-Signature": f"sha256={signature}"}
                while True:
                    try:
                        async with http.post(listening, data=text, headers=headers) as answer:
                            return answer.status
                    except aiohttp.ClientConnectorError:
                        await asyncio.sleep(0.01)

            assert await post(signed("signing", body)) == 200
            assert await post(signed("other", body)) == 401
            assert await post(signed("signing", b"{"), b"{") == 400
        assert await bus.last(f"{RECEIVED}.webhook.web", Inbound) == Inbound(
            "webhook", "1", "room", "ann", "hi"
        )


async def test_the_console_is_its_owners_and_ends_while_it_waits_for_a_line(nats: NatsProcess) -> None:
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "channel", "console", env={**os.environ, "NATS_URL": nats.url}, stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hello\n")
    async with connected(nats) as bus:
        await send(bus, "a", "1", "console", chat="")
        assert await process.stdout.readline() == b"owner: 1\n"
        found: list[Inbound] = []

        async def note(messages: Any) -> None:
            found.extend(one for _, one in messages)

        async with running(bus.consume("test", f"{RECEIVED}.>", Inbound, note)):
            await until(lambda: found, "the line")
    assert [(one.sender, one.text) for one in found] == [("owner", "hello")]
    process.terminate()
    async with asyncio.timeout(patient(30)):
        assert await process.wait() == 0


async def test_a_login_and_tls_are_those_of_the_server(tmp_path: Any) -> None:
    certificate = str(certificate_for(tmp_path, "localhost"))
    server = NatsProcess(auth="s3cret", tlscert=certificate, tlskey=certificate)
    try:
        secure = {
            "NATS_URL": f"nats://localhost:{server.port}",
            "NATS_CA": certificate,
            "NATS_TOKEN": "s3cret",
        }
        async with connected(server, **secure) as bus:
            await send(bus, "a", "1")
            assert (await bus.last(SEND, Outbound)) == Outbound("telegram", "1", "42")
        with pytest.raises(InvalidToken, match="NATS refuses"):
            async with connected(server, **secure | {"NATS_TOKEN": "wrong"}):
                pass
    finally:
        server.remove()
