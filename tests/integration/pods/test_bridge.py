"""The bridge as a process: real files, a real NATS server, and both killed at any time."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked
from tests.integration.pods.test_delivery import connected, running, until
from tests.nats_server import NatsProcess
from tests.patience import patient
from toolcrib.errors import ConflictError
from toolcrib.pods.bus import SEND, STATE, envelope
from toolcrib.pods.channels.channel import Outbound
from toolcrib.pods.channels.serving import Settled
from toolcrib.pods.protocol import MESSAGES, OutboundMessage, message_id
from toolcrib.pods.spool import Spool
from toolcrib.state import PROJECT, SqliteDatabase
from toolcrib.state.outgoing.outbox import ChannelMessages


class Pod:
    """The folder that the containers of a pod share, and its bridge."""

    def __init__(self, folder: Path, nats: NatsProcess, **variables: str) -> None:
        self.ipc, self.state = folder / "ipc", folder / "bridge.db"
        self.spool = Spool(self.ipc, "messages")
        self._environment = {**os.environ, "NATS_URL": nats.url, "AGENT_RUN_ID": "run-1", **variables}
        self.process: Forked | None = None

    def start(self, *words: str) -> None:
        argv = [PROGRAM, "bridge", "--ipc", str(self.ipc), "--state", str(self.state), *words]
        self.process = Forked(argv, env=self._environment, stderr=subprocess.DEVNULL)

    def stop(self, how: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait()

    def say(self, number: int, channel: str = "telegram", **more: str) -> None:
        message = {"channel": channel, "text": str(number), **more}
        self.spool.write(f"send-{number:05}.json", json.dumps(message).encode())

    @property
    def messages(self) -> ChannelMessages:
        return ChannelMessages(SqliteDatabase(self.state, PROJECT))

    def left(self) -> list[str]:
        return [name for name in os.listdir(self.ipc / "messages") if not name.startswith(".")]


@pytest.fixture
def pod(tmp_path: Path, nats: NatsProcess) -> Pod:
    return Pod(tmp_path, nats)


@asynccontextmanager
async def sent(nats: NatsProcess) -> AsyncIterator[list[Outbound]]:
    """Collect the messages on the bus, as a channel gets them."""
    found: list[Outbound] = []

    async def note(messages: Any) -> None:
        found.extend(one for _, one in messages)

    async with connected(nats) as bus, running(bus.consume("test", SEND, Outbound, note)):
        yield found


async def test_messages_go_out_in_order_and_foreign_channels_do_not(pod: Pod, nats: NatsProcess) -> None:
    pod.say(1)
    pod.say(2, "slack", chatId="C1", threadId="9.1")
    pod.start("--channel", "telegram", "--channel", "slack")
    async with sent(nats) as found:
        await until(lambda: len(found) == 2, "both messages")
        pod.say(3, "fax")
        pod.say(4, "whatsapp")
        pod.say(5)
        await until(lambda: len(found) == 3, "the last message")
        assert found == [
            Outbound("telegram", "1"),
            Outbound("slack", "2", "C1", "9.1"),
            Outbound("telegram", "5"),
        ]
        await until(lambda: not pod.left(), "an empty folder")
        rejected = sorted(os.listdir(pod.ipc / "messages" / ".rejected"))
        assert rejected == ["send-00003.json", "send-00004.json"]
    assert pod.stop(signal.SIGTERM) == 0


async def test_a_reply_goes_where_the_task_came_from(tmp_path: Path, nats: NatsProcess) -> None:
    pod = Pod(tmp_path, nats, SOURCE_CHANNEL="telegram", SOURCE_CHAT_ID="42", INSTANCE_NAME="shop")
    pod.start()
    pod.say(1)
    pod.say(2, "slack")
    pod.say(3, chatId="77")
    async with sent(nats) as found:
        await until(lambda: len(found) == 3, "all messages")
        assert [one.chat_id for one in found] == ["42", "", "77"]
    pod.stop()


async def test_a_half_file_is_no_message_until_it_is_whole(pod: Pod, nats: NatsProcess) -> None:
    pod.start()
    whole = json.dumps({"channel": "telegram", "text": "late"}).encode()
    path = pod.ipc / "messages" / "send-1.json"
    path.write_bytes(b"")
    async with sent(nats) as found:
        pod.say(2)
        await until(lambda: len(found) == 1, "the other message")
        path.write_bytes(whole[:10])
        path.write_bytes(whole)
        await until(lambda: len(found) == 2, "the late message")
    pod.stop()


async def test_the_state_of_a_message_can_be_asked(pod: Pod, nats: NatsProcess) -> None:
    pod.start()
    pod.say(1)
    messages = pod.messages
    await until(lambda: [one.state for one in messages.page()] == ["published"], "the message")
    (one,) = messages.page()
    assert one.id == message_id("run-1", "00001")  # The tool has answered with this id.
    async with connected(nats) as bus:
        ended = Settled(one.id, "dead", Outbound("telegram", "1"), "chat not found")
        await bus.insist(STATE, "x", envelope(STATE, ended))
        await until(lambda: messages.find(one.id).state == "dead", "its end")
    assert messages.find(one.id).error == "chat not found"
    assert [found.id for found in messages.page("dead")] == [one.id]
    assert list(messages.page("delivered")) == []
    new = messages.retry(one.id)
    with pytest.raises(ConflictError):  # Once.
        messages.retry(one.id)
    async with sent(nats) as found:
        await until(lambda: len(found) == 2, "the message again")
    await until(lambda: messages.find(new).state == "published", "its state")
    assert [(found.id, found.state) for found in messages.page()] == [(new, "published"), (one.id, "retried")]
    assert messages.find(one.id).error == f"chat not found; sent again as {new}"
    messages.settle([(one.id, "dead", "chat not found", b"{}")])  # NATS may report an end twice.
    assert list(messages.page("dead")) == []
    pod.stop()


async def test_messages_wait_while_nats_is_away_and_the_bridge_ends_when_they_are_gone(
    pod: Pod, nats: NatsProcess
) -> None:
    await asyncio.to_thread(nats.stop)
    pod.start()
    for number in range(5):
        pod.say(number)
    await until(lambda: not pod.left(), "an empty folder")
    assert {one.state for one in pod.messages.page()} == {"queued"}
    assert pod.process is not None
    pod.process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(pod.process.wait, 0.5)
        pytest.fail("the bridge ended with messages that nobody has")
    await asyncio.to_thread(nats.start)
    assert await asyncio.to_thread(pod.process.wait, patient(30)) == 0
    async with sent(nats) as found:
        await until(lambda: len(found) == 5, "all messages")
        assert [one.text for one in found] == [str(number) for number in range(5)]


async def endure(pod: Pod, nats: NatsProcess, count: int, kills: int, outages: int) -> None:
    """Put messages into the folder while bridge and server are killed at random; check what arrived."""
    chance = random.Random(count)
    order = chance.sample(range(count), kills + outages)
    killed, out = set(order[:kills]), set(order[kills:])
    pod.start()
    async with sent(nats) as found:
        for number in range(count):
            pod.say(number, "telegram" if number % 2 else "slack")
            if number in killed:
                await asyncio.sleep(chance.random() / 2)
                await asyncio.to_thread(pod.stop)
                pod.start()
            if number in out:
                await asyncio.to_thread(nats.stop)
                await asyncio.sleep(chance.random() / 20)
                await asyncio.to_thread(nats.start)
        await until(lambda: len({one.text for one in found}) == count, "all messages", 120)
        await until(lambda: not pod.left(), "an empty folder")
    numbers: Mapping[str, list[int]] = {
        name: [int(one.text) for one in found if one.channel == name] for name in ("slack", "telegram")
    }
    assert numbers == {"slack": [*range(0, count, 2)], "telegram": [*range(1, count, 2)]}
    pod.stop()


async def test_kills_of_bridge_and_server_lose_nothing_and_repeat_nothing(
    pod: Pod, nats: NatsProcess
) -> None:
    await endure(pod, nats, 200, kills=6, outages=2)


@pytest.mark.soak
async def test_many_kills_lose_nothing_and_repeat_nothing(pod: Pod, nats: NatsProcess) -> None:
    await endure(pod, nats, 2_000, kills=100, outages=20)


def test_the_files_are_those_of_the_guide() -> None:
    assert (MESSAGES.folder, MESSAGES.request_name) == ("messages", "send-{}.json")
    assert MESSAGES.read("1", b'{"channel":"slack","text":"x"}') == OutboundMessage("slack", "x")
