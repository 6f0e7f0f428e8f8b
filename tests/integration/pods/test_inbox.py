"""People write on a channel, an agent of a project answers there."""

from __future__ import annotations

import asyncio
import os

from tests.crib import Crib
from tests.integration.pods.test_bridge import sent
from tests.integration.pods.test_delivery import connected, running, until
from tests.nats_server import NatsProcess
from toolcrib import Agent, Project
from toolcrib.pods.bridge import Bridge
from toolcrib.pods.bus import RECEIVED, Bus, envelope
from toolcrib.pods.channels.channel import Inbound, Outbound
from toolcrib.pods.inbox import Inbox

SETTINGS = "builtins: [send_channel_message]\n"


async def hear(bus: Bus, number: int, text: str, chat: str = "42") -> None:
    subject = f"{RECEIVED}.telegram"
    message = Inbound("telegram", str(number), chat, "7", text)
    await bus.insist(subject, f"telegram/{number}", envelope(subject, message))


async def test_each_message_begins_one_run_whose_answer_goes_back(crib: Crib, nats: NatsProcess) -> None:
    crib.write(".toolcrib/config.yml", SETTINGS)
    agent = Agent(
        "helper", "scripted", script=({"text": "One."}, {"text": "Two."}), tools=("send_channel_message",)
    )
    async with Project.open(crib.root, accept="all") as project, connected(nats) as bus:
        project.agents.add(agent)
        project.calls.serve()
        bridge = Bridge(project.calls.stored.database, {**os.environ, "NATS_URL": nats.url})
        inbox = Inbox(project, "helper")
        async with running(bridge.run(inbox.run)), sent(nats) as found:
            await hear(bus, 1, "hello")
            await until(lambda: len(found) == 1, "the first answer")
            await hear(bus, 2, "again")
            await hear(bus, 3, "elsewhere", "43")
            await until(lambda: len(found) == 3, "all answers")
        first, second, other = sorted(project.runs.page(), key=lambda one: one.id)
        assert found[0] == Outbound("telegram", "One.", "42")
        assert {one.chat_id for one in found[1:]} == {"42", "43"}
        assert first.session_id == second.session_id != other.session_id
        assert first.caller == "channel:telegram:7"
        # A bridge that was killed before it said so gets them again.
        for key in ("telegram/1", "telegram/2"):
            await asyncio.to_thread(inbox.begin, key, Inbound("telegram", key[-1], "42", "7", "hello"))
        assert len(project.runs.page()) == 3


async def test_a_message_without_a_chat_goes_to_the_chat_of_the_task(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", SETTINGS)
    async with Project.open(crib.root, accept="all") as project:
        source = {"SOURCE_CHANNEL": "slack", "SOURCE_CHAT_ID": "C1"}
        for channel, target in (("slack", "C1"), ("telegram", "owner (self)")):
            result = await project.call(
                "send_channel_message", {"channel": channel, "text": "Done."}, variables=source
            )
            text = result.unwrap()
            assert text.startswith(f"Message queued for {channel} (target: {target}), id ")
            message = project.messages.find(text.rpartition(" ")[2])
            assert message.state == "queued"
        chats = [one.as_dict()["data"].get("chatId") for one in project.messages.page()]
        assert chats == [None, "C1"]
