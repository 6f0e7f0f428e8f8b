"""The tools of an agent in a pod that its other containers carry out, through files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.messages.send_channel_message import CHANNELS
from toolcrib.builtin.site import Site
from toolcrib.builtin.table import builtin
from toolcrib.errors import ToolFailed
from toolcrib.pods.ipc import Client
from toolcrib.pods.protocol import FAILED, MESSAGES, ExecRequest, ExecResult, OutboundMessage
from toolcrib.pods.spool import Spool
from toolcrib.spec import Annotations, CallContext, Limits, Outcome, Permissions
from toolcrib.spec.identifier import new_id

_ANSWER_S = 10.0
"""Seconds that a sidecar gets beyond the limit of a command."""
RESULT_BYTES = 50_000
"""Bytes of a result that the model gets; the runner keeps the rest."""
_IPC = Permissions()


def execute_command(client: Client[ExecRequest, ExecResult], target: str = "") -> Builtin:
    """Return the tool that has a sidecar run a shell line."""

    async def run(
        _: Site, ctx: CallContext, command: str, workdir: str = "/workspace", timeout: int = 30
    ) -> Outcome:
        # A call that goes on after a restart of the runner finds its request, or the result of it.
        id = ctx.call_id or new_id()
        request = ExecRequest(id, command, work_dir=workdir, timeout=timeout, target=target)
        result = await client.ask(id, request, request.seconds + _ANSWER_S)
        if result.exit_code == FAILED and not result.stdout:
            raise ToolFailed(result.stderr or "the sidecar could not run the command")
        return Outcome(result_text(result), (), {"exit_code": result.exit_code})

    return replace(
        builtin("execute_command"),
        run=run,
        permissions=lambda _: _IPC,
        options={},
        runs_shell=False,
        # The sidecar runs a request once, however often it is asked for.
        annotations=Annotations(read_only=False, destructive=True, idempotent=True, open_world=True),
        limits=Limits(output_bytes=RESULT_BYTES),
    )


def result_text(result: ExecResult) -> str:
    """Return streams and exit code as one text."""
    text = result.stdout
    if result.stderr:
        text += ("\n" if text else "") + f"STDERR: {result.stderr}"
    if result.timed_out:
        text += "\n(timed out)"
    if result.exit_code:
        text += f"\n(exit code: {result.exit_code})"
    return text or "(no output)"


def send_channel_message(spool: Spool, channel: str = "", chat: str = "") -> Builtin:
    """Return the tool that hands messages to the bridge. A message without a channel goes to this chat."""
    source, source_chat = channel, chat

    async def run(
        _: Site,
        ctx: CallContext,
        text: str,
        channel: str = "",
        chatId: str = "",  # noqa: N803 - the name of the argument
    ) -> str:
        channel = channel or source
        if channel == source:
            chatId = chatId or source_chat  # noqa: N806
        id = ctx.call_id or new_id()
        message = OutboundMessage(channel, text, chatId)
        spool.write(MESSAGES.request_name.format(id), msgspec.json.encode(message))
        return f"Message queued for {channel} (target: {chatId or 'owner (self)'}), id {id}"

    known = builtin("send_channel_message")
    properties: Mapping[str, Any] = known.properties
    if source:
        about = f"The channel to send through (default: {source}, from which the task came)."
        properties = {
            **properties,
            "channel": {"type": "string", "enum": list(CHANNELS), "description": about},
        }

    # Where no channel is known, the model must name one.
    async def named(site: Site, ctx: CallContext, channel: str, text: str, chatId: str = "") -> str:  # noqa: N803
        return await run(site, ctx, text, channel, chatId)

    return replace(
        known,
        properties=properties,
        run=run if source else named,
        annotations=replace(known.annotations, idempotent=True),
    )
