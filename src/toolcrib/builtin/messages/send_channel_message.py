"""`send_channel_message`."""

from __future__ import annotations

from functools import partial

from toolcrib.builtin.definition import Builtin, string
from toolcrib.builtin.site import Site
from toolcrib.errors import ToolUnavailable
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.spec import Annotations, CallContext, Example
from toolcrib.state.outgoing.outbox import ChannelMessages

CHANNELS = ("whatsapp", "telegram", "discord", "slack")


async def send_channel_message(
    site: Site,
    ctx: CallContext,
    channel: str,
    text: str,
    chatId: str = "",  # noqa: N803 - the name of the argument
) -> str:
    """Put a message into the project's outbox, which a bridge delivers."""
    if site.database is None:
        raise ToolUnavailable(
            "send_channel_message needs a project, whose database keeps messages until they are delivered",
            hint="Open a project and list the tool under `builtins` in its config.yml.",
        )
    database, source = site.database(), ctx.variables or {}
    # A run that a message began answers there.
    if not chatId and source.get("SOURCE_CHANNEL") == channel:
        chatId = str(source.get("SOURCE_CHAT_ID", ""))  # noqa: N806 - as above
    data = {"channel": channel, "text": text} | ({"chatId": chatId} if chatId else {})
    metadata = {} if ctx.run_id is None else {"agentRunID": ctx.run_id}
    number = await run_in_thread(partial(ChannelMessages(database).queue, data, metadata))
    return f"Message queued for {channel} (target: {chatId or 'owner (self)'}), id {number}"


BUILTIN = Builtin(
    name="send_channel_message",
    description=(
        "Send a message to the user via a connected channel (WhatsApp, Telegram, Discord, Slack)."
        " Use this when the user asks to be notified or to get a summary. The message is queued and delivered"
        " later. Without chatId it goes to the chat that the task came from, else to the owner of the device."
    ),
    properties={
        "channel": string("The channel to send through.", enum=list(CHANNELS)),
        "text": string("The text of the message.", minLength=1),
        "chatId": string("The chat or group. Leave it out to answer, or to send to the owner of the device."),
    },
    run=send_channel_message,
    annotations=Annotations(read_only=False, destructive=False, idempotent=False, open_world=True),
    examples=[Example("Notify the owner", {"channel": "telegram", "text": "The report is ready."})],
)
