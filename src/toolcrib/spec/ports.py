"""The protocols between the packages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from toolcrib.errors import ToolcribError
from toolcrib.spec.calls.call import Call, CallEvent, CallEvents, Outcome, Result
from toolcrib.spec.calls.caller import Caller
from toolcrib.spec.calls.client import CallClient
from toolcrib.spec.tools.tool import Tool


class Masker(Protocol):
    """Masks secrets."""

    def redact(self, value: Any) -> Any:
        """Return a JSON value with every secret in it masked."""


class CallContext(Protocol):
    """The call that an attempt belongs to, as its executor sees it."""

    created: tuple[str, ...]
    """The files made by the call that start other programs of the user, for the audit log."""

    @property
    def tool(self) -> str:
        """Name of the tool that runs."""

    @property
    def caller(self) -> str:
        """Name of the caller: `local`, `cli`, `mcp:<client>`."""

    @property
    def call_id(self) -> str | None:
        """The id of the call, the same in each attempt; None for a call that nothing refers to."""

    @property
    def attempt(self) -> int:
        """1 for the first try."""

    @property
    def limit_ms(self) -> int:
        """Limit of one attempt in milliseconds."""

    @property
    def variables(self) -> dict[str, Any] | None:
        """Run variables: never shown to the model."""

    @property
    def run_id(self) -> str | None:
        """The run this call belongs to, if any."""

    @property
    def session_id(self) -> str | None:
        """The session this call belongs to, if any."""

    @property
    def client(self) -> CallClient | None:
        """The MCP client that called; None if there is none to ask."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """The declared secrets that resolved, by name; nothing else."""

    @property
    def redactor(self) -> Masker | None:
        """Masks every known secret; None if only `secrets` are known."""

    @property
    def remaining(self) -> float:
        """Seconds left of this attempt (never negative)."""

    @property
    def is_followed(self) -> bool:
        """True if reports during the call matter: somebody listens, or silence is limited."""

    def timed_out(self) -> ToolcribError:
        """Return the error of an attempt that used up its time; it names the limit that applies."""

    def identify(self) -> str:
        """Return the UUIDv7 of the call, the same for all its attempts; doubles as the idempotency key."""

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress to the caller."""

    def chunk(self, text: str) -> None:
        """Give the caller the next part of the output before the call ends."""

    def relay(self, event: CallEvent) -> None:
        """Report an event of a call that this one makes as its own."""


class Executor(Protocol):
    """Runs one attempt of one tool. Raises ToolcribError or a ToolSignal; anything else is a tool failure.

    An executor that ends its own work when the time is up (a confined process gets a signal first) has an
    attribute `grace_s`: the seconds after the limit that the call path waits before it cancels the attempt.
    """

    def run(self, call: Call, ctx: CallContext) -> Coroutine[Any, Any, Outcome | Any]:
        """Run one attempt. `call.arguments` is the validated object with defaults applied.

        Returns an `Outcome`, or just the value.
        """


class SecretSource(Protocol):
    """A source of secret values."""

    def get(self, name: str) -> str | None:
        """Return the value, or None if it is not set."""


class Clock(Protocol):
    """The clock of the call path; a test double can replace it."""

    def now(self) -> float:
        """Return monotonic seconds."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


Invoke = Callable[[Call], Awaitable[Result]]


class Catalog(Protocol):
    """Tools to list and call, and news about both: a toolset or a whole project.

    Each request says who makes it: `caller` in words, and `identity` if it came with a token.
    """

    @property
    def revision(self) -> int:
        """Changes whenever the list of tools changes."""

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after each change of the list, in any thread. Return what ends that."""

    def tools(self, caller: str = "local", identity: Caller | None = None) -> Sequence[Tool]:
        """Return the tools that this caller may see, in a stable order."""

    def listed(
        self, caller: str = "local", identity: Caller | None = None
    ) -> Mapping[str, Tool | memoryview]:
        """Return the same by name. In place of a tool there may be its entry in MCP's list of tools, as JSON.

        Such a tool is neither prompt nor resource, and clients know it by its own name.
        """

    def untrusted(self) -> int:
        """Return how many tools wait until a person trusts them, so that no model's list has them."""

    def get(self, name: str) -> Tool:
        """Return one tool. Raises ToolNotFound with the nearest name."""

    async def invoke(self, call: Call) -> Result:
        """Make a call, by the one path. Never raises for a failing tool; cancellation passes through."""

    def subscribe(
        self, caller: str = "local", identity: Caller | None = None, *, size: int = 1_000
    ) -> CallEvents:
        """Return the events of running calls of tools that this caller may see, without chunks.

        At most `size` of them wait to be read; beyond that the oldest are dropped and counted.
        """
