"""The protocols of a pod: for each the folder, the names of its files, and the fields in them.

A request is one JSON file, and so is its result. Names and fields are those of Sympozium's guide, so that its
containers and ours understand each other. A new protocol is one more `Protocol`, in a file
of its own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from toolcrib.spec.identifier import derived_id

WORKSPACE = "/workspace"
"""The folder of commands, as requests name it."""
MAX_TIMEOUT_S, DEFAULT_TIMEOUT_S = 120, 30
FAILED = 125
"""The exit code of a request that ran nothing; `docker run` has the same one for its own failures."""


class ExecRequest(Struct, omit_defaults=True, rename="camel"):
    """A command: a line for the shell, or with `argv` a program and its arguments."""

    id: str = ""
    command: str = ""
    args: list[str] | None = None
    """Arguments of `command`, which then names a program."""
    work_dir: str = ""
    timeout: float = DEFAULT_TIMEOUT_S
    """Seconds. Below 1 it is 30, above 120 it is 120."""
    target: str = ""
    """The sidecar that it is for; empty for any."""
    argv: list[str] | None = None
    stdin: str = ""

    @property
    def seconds(self) -> float:
        """The time limit that counts."""
        return DEFAULT_TIMEOUT_S if not self.timeout >= 1 else min(self.timeout, MAX_TIMEOUT_S)

    @property
    def line(self) -> tuple[str, ...]:
        """The program and its arguments."""
        if self.argv:
            return tuple(self.argv)
        return (self.command, *self.args) if self.args else ("/bin/sh", "-c", self.command)


class ExecResult(Struct, rename="camel"):
    """The end of a command."""

    id: str
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


class OutboundMessage(Struct, omit_defaults=True, rename="camel"):
    """A message for a channel. Without `chat_id` it is for the owner."""

    channel: str
    text: str
    chat_id: str = ""
    thread_id: str = ""


class AgentResult(Struct, rename="camel"):
    """The end of an agent's run, in `output/result.json`."""

    status: str
    """`success` or `error`."""
    response: str = ""
    error: str = ""
    metrics: dict[str, float] = {}
    """`durationMs`, `inputTokens`, `outputTokens`, `toolCalls`."""


class StatusUpdate(Struct, rename="camel"):
    """The state of an agent's run, in `output/status.json`."""

    phase: str
    """`starting`, `running`, `done` or `failed`."""
    message: str = ""
    timestamp: str = ""


class StreamChunk(Struct, rename="camel"):
    """A part of an agent's answer, in `output/stream-<index>.json`, from 0."""

    index: int
    content: str
    type: str = "text"


OUTPUT = "output"
"""The folder of an agent's result, status and stream."""

Q = TypeVar("Q", bound=Struct)
R = TypeVar("R", bound=Struct)


@dataclass(frozen=True)
class Protocol(Generic[Q, R]):
    """One kind of request, and of result if it has any."""

    folder: str
    """The folder, in the one that the containers share."""
    request: type[Q]
    result: type[R] | None = None
    request_name: str = "request-{}.json"
    """The name of a request's file, with `{}` for its id."""
    result_name: str = "result-{}.json"
    refuse: Callable[[str, str], R] | None = None
    """Makes the result of a request that cannot be served, of its id and the reason."""
    max_bytes: int = 4 << 20
    """The size of a request's file."""

    def id_of(self, name: str) -> str | None:
        """Return the id in the name of a request's file; None for another file."""
        before, _, after = self.request_name.partition("{}")
        fits = len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)
        return name[len(before) : len(name) - len(after)] if fits else None

    def read(self, id: str, data: bytes) -> Q:
        """Return the request in a file. Raises msgspec.DecodeError if it is none, or has another id."""
        request = msgspec.json.decode(data, type=self.request)
        if getattr(request, "id", "") not in ("", id):
            raise msgspec.ValidationError("its `id` is not the one in the name of its file")
        return request


EXEC: Protocol[ExecRequest, ExecResult] = Protocol(
    "tools",
    ExecRequest,
    ExecResult,
    "exec-request-{}.json",
    "exec-result-{}.json",
    refuse=lambda id, reason: ExecResult(id, FAILED, stderr=reason),
)
"""Commands for sidecars."""
MESSAGES: Protocol[OutboundMessage, Any] = Protocol("messages", OutboundMessage, request_name="send-{}.json")
"""Messages that the bridge passes on."""


def pod_of(run_id: str) -> str:
    """Return the name of a pod: the same after a restart, and another one for each pod."""
    return run_id or socket.gethostname()


def message_id(run_id: str, key: str) -> str:
    """Return the id of a message, by the run of its pod and the id in the name of its file."""
    return derived_id(pod_of(run_id), key)
