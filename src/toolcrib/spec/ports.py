"""The seams: what the call path needs from its neighbours, and what it gives to a running tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from toolcrib.errors import ToolcribError
from toolcrib.spec.call import Call, Outcome, Result
from toolcrib.spec.caller import Caller
from toolcrib.spec.tool import Tool

__all__ = ["CallContext", "Catalog", "Clock", "Executor", "Invoke", "SecretSource"]


class CallContext(Protocol):
    """What an attempt may ask of the call it belongs to."""

    @property
    def tool(self) -> str:
        """Name of the tool that runs."""

    @property
    def caller(self) -> str:
        """Who called: `local`, `cli`, `mcp:<client>`."""

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
    def secrets(self) -> Mapping[str, str]:
        """The declared secrets that resolved, by name; nothing else."""

    @property
    def redactor(self) -> Any:
        """What masks all secrets that are known (a `Redactor`); None: none is known beside `secrets`."""

    @property
    def remaining(self) -> float:
        """Seconds left of this attempt (never negative)."""

    def timed_out(self) -> ToolcribError:
        """The error of an attempt that used up its time, naming the limit that binds."""

    def identify(self) -> str:
        """UUIDv7 of the call, the same for all its attempts; doubles as the idempotency key."""

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the caller how far the tool has come."""


class Executor(Protocol):
    """Runs one attempt of one tool. Raises ToolcribError or a ToolSignal; anything else is a tool failure.

    One that ends its own work when the time is up (a confined process gets a signal first) says so by an
    attribute `grace_s`: how many seconds after the limit the call path waits before it cancels.
    """

    def run(self, call: Call, ctx: CallContext) -> Coroutine[Any, Any, Outcome | Any]:
        """One attempt. `call.arguments` is the validated object with defaults applied.

        Gives an `Outcome`, or the bare value where there is no more to say.
        """


class SecretSource(Protocol):
    """Where secret values come from."""

    def get(self, name: str) -> str | None:
        """The value, or None when it is not set."""


class Clock(Protocol):
    """Time as the call path sees it."""

    def now(self) -> float:
        """Monotonic seconds."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


Invoke = Callable[[Call], Awaitable[Result]]


class Catalog(Protocol):
    """What a door needs to serve tools: a toolset or a whole project."""

    @property
    def revision(self) -> int:
        """Changes whenever the list of tools changes."""

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after each change of the list, in whatever thread; gives what ends it."""

    def tools(self, caller: str = "local", identity: Caller | None = None) -> Sequence[Tool]:
        """The tools that this caller may see, in a stable order."""

    async def invoke(self, call: Call) -> Result:
        """The one call path. Never raises for a failing tool; cancellation passes through."""
