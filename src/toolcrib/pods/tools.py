"""The tools of an agent in a pod that its other containers carry out, through files."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.messages.send_channel_message import CHANNELS
from toolcrib.builtin.site import Site
from toolcrib.builtin.table import builtin
from toolcrib.core.bound import BoundTool
from toolcrib.errors import ManifestError, ToolFailed
from toolcrib.executors.command.executor import input_text
from toolcrib.manifest import check_tool, failure, read_dialect
from toolcrib.manifest.dialects.registry import detect
from toolcrib.pods.ipc import Client
from toolcrib.pods.protocol import (
    FAILED,
    MESSAGES,
    WORKSPACE,
    ExecRequest,
    ExecResult,
    OutboundMessage,
    message_id,
)
from toolcrib.pods.spool import Spool
from toolcrib.spec import (
    Annotations,
    Call,
    CallContext,
    CommandExec,
    FunctionExec,
    Limits,
    Outcome,
    Permissions,
    Tool,
)
from toolcrib.spec.identifier import new_id
from toolcrib.template import Namespaces, Values, parse, parse_conditional, render_argv, render_env

_log = logging.getLogger("toolcrib.pods")
_ANSWER_S = 10.0
"""Seconds that a sidecar gets beyond the limit of a command."""
RESULT_BYTES = 50_000
"""Bytes of a result that the model gets; the runner keeps the rest."""
_IPC = Permissions()
# The sidecar runs a request once, however often it is asked for.
_ANNOTATIONS = Annotations(read_only=False, destructive=True, idempotent=True, open_world=True)
_LIMITS = Limits(output_bytes=RESULT_BYTES)


def execute_command(client: Client[ExecRequest, ExecResult], target: str = "") -> Builtin:
    """Return the tool that has a sidecar run a shell line."""

    async def run(
        _: Site, ctx: CallContext, command: str, workdir: str = "/workspace", timeout: int = 30
    ) -> Outcome:
        request = ExecRequest(command=command, work_dir=workdir, timeout=timeout, target=target)
        return await _asked(client, request, ctx)

    return replace(
        builtin("execute_command"),
        run=run,
        permissions=lambda _: _IPC,
        options={},
        runs_shell=False,
        annotations=_ANNOTATIONS,
        limits=_LIMITS,
    )


def find_packs(folder: Path) -> Iterator[tuple[Tool, str]]:
    """Yield the tools of the SkillPacks in a folder of skills, each with the name of its sidecar.

    That is the name of the folder that the pack is in; empty for a pack in none. Raises ManifestError if one
    of them is wrong.
    """
    for path in sorted({*folder.glob("*.y*ml"), *folder.glob("*/*.y*ml")}):
        inside = path.relative_to(folder)
        # Kubernetes keeps the files of a ConfigMap in hidden folders.
        if any(part.startswith(".") for part in inside.parts) or not path.is_file():
            continue
        try:
            dialect, _ = detect(path.read_bytes(), str(path))
        except ManifestError as error:
            _log.warning("%s is not read as a SkillPack: %s", path, error.message)
            continue
        if dialect.name != "sympozium":
            continue
        loaded = read_dialect(str(path), dialect=dialect.name)
        found = [*loaded.diagnostics, *(one for tool in loaded.tools for one in check_tool(tool))]
        if errors := [one for one in found if one.is_error]:
            raise failure(errors)
        for tool in loaded.tools:
            yield tool, "" if len(inside.parts) == 1 else inside.parts[0]


def sidecar_tool(tool: Tool, client: Client[ExecRequest, ExecResult], target: str) -> BoundTool:
    """Return a tool of a SkillPack as the agent has it: a sidecar runs its command.

    Raises ManifestError if it has secrets, because the agent can read the requests.
    """
    if tool.permissions.secrets:
        names = ", ".join(one.name for one in tool.permissions.secrets)
        raise ManifestError(
            f"{tool.name} would write {names} into a request, which the agent can read",
            hint="Give the sidecar its secrets with `secretRef`, and let the program read them there.",
        )
    shown = replace(
        tool,
        kind="function",
        config=FunctionExec(f"{__name__}:{sidecar_tool.__name__}"),
        permissions=_IPC,
        annotations=_ANNOTATIONS,
        limits=_LIMITS,
    )
    return BoundTool(shown, lambda: _SidecarCommand(tool, client, target))


class _SidecarCommand:
    """Has a sidecar run the command of a tool, with the arguments of the call filled in."""

    def __init__(self, tool: Tool, client: Client[ExecRequest, ExecResult], target: str) -> None:
        assert isinstance(tool.config, CommandExec)
        names = Namespaces.of(tool)
        self._tool, self._config, self._client, self._target = tool, tool.config, client, target
        self._args = [parse_conditional(one, names) for one in tool.config.args]
        self._env = {name: parse_conditional(text, names) for name, text in tool.config.env.items()}
        self._stdin = parse(tool.config.stdin, names)

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        config, values = self._config, Values.of(self._tool, call, ctx)
        argv = [config.entrypoint, *render_argv(self._args, values)]
        env = ((name, render_env(text, values)) for name, text in self._env.items())
        if given := [f"{name}={text}" for name, text in env if text is not None]:
            argv = ["env", *given, *argv]
        request = ExecRequest(
            argv=argv,
            stdin=input_text(self._stdin, values),
            work_dir=WORKSPACE if config.cwd == "." else config.cwd,
            timeout=(config.timeout_ms or 0) / 1000,
            target=self._target,
        )
        return await _asked(self._client, request, ctx)


async def _asked(client: Client[ExecRequest, ExecResult], request: ExecRequest, ctx: CallContext) -> Outcome:
    # A call that goes on after a restart of the runner finds its request, or the result of it.
    request.id = ctx.call_id or new_id()
    result = await client.ask(request.id, request, request.seconds + _ANSWER_S)
    if result.exit_code == FAILED and not result.stdout:
        raise ToolFailed(result.stderr or "the sidecar could not run the command")
    return Outcome(result_text(result), (), {"exitCode": result.exit_code})


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


def send_channel_message(spool: Spool, run_id: str, channel: str = "", chat: str = "") -> Builtin:
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
        key = ctx.call_id or new_id()
        message = OutboundMessage(channel, text, chatId)
        spool.write(MESSAGES.request_name.format(key), msgspec.json.encode(message))
        target = chatId or "owner (self)"
        return f"Message queued for {channel} (target: {target}), id {message_id(run_id, key)}"

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
