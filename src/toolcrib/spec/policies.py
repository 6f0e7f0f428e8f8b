"""How a tool is called: approval, retry, limits, output handling, hints to clients. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["LEVELS", "Annotations", "Approval", "Auth", "Example", "Level", "Limits", "Output", "Retry"]

Level = Literal["full", "landlock", "none"]
"""What confines a tool's process: namespaces and all else; Landlock and a filter alone; nothing."""
LEVELS: tuple[Level, ...] = ("full", "landlock", "none")
"""From the strongest to the weakest."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Whether a person must agree to each call, and why."""

    required: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Auth:
    """How a request says who sends it: which secret goes where. The secrets are declared permissions."""

    type: Literal["bearer", "basic", "api_key"]
    secret: str | None = None
    """Name of the secret: the token, the key, or the password (`basic` may have none)."""
    username_secret: str | None = None
    """`basic`: name of the secret that holds the user name."""
    location: Literal["header", "query", "cookie"] | None = None
    """`api_key`: where the key stands (`in` in the manifest)."""
    name: str | None = None
    """`api_key`: the name of that header, query entry or cookie."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failing call is attempted.

    `max_attempts` counts the first try. With `jitter` 0 a retry is instant; with `jitter` j > 0 the delay
    after attempt n is n⁴ seconds × (1 ± j). A fixed `backoff_ms`, if set, replaces that.
    """

    max_attempts: int = 1
    jitter: float = 0.0
    backoff_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one attempt, and of how often a tool is called. `None`: the project's default."""

    timeout_ms: int | None = None
    output_bytes: int | None = None
    """How much of the output the caller sees; the rest is cut and said so."""
    memory_bytes: int | None = None
    """Of a confined tool with all its processes."""
    processes: int | None = None
    """Processes and threads of a confined tool at one time."""
    cpu_ms: int | None = None
    """Processor time of each process of a confined tool."""
    file_bytes: int | None = None
    """Of any one file that a confined tool writes."""
    open_files: int | None = None
    """Of each process of a confined tool."""
    calls_per_minute: int | None = None
    """Within any 60 seconds, of all processes of the project together."""
    min_interval_ms: int | None = None
    """Between the beginnings of two calls."""
    concurrent_calls: int | None = None
    """At one time, in all processes of the project together."""

    @property
    def rated(self) -> bool:
        """Whether it is limited how often the tool is called."""
        unlimited = (
            self.calls_per_minute is None and self.min_interval_ms is None and self.concurrent_calls is None
        )
        return not unlimited


@dataclass(frozen=True, slots=True)
class Output:
    """How a tool's output is read and checked."""

    format: Literal["json", "text"] = "json"
    schema: dict[str, Any] | None = None
    on_violation: Literal["warn", "fail"] = "warn"


@dataclass(frozen=True, slots=True)
class Annotations:
    """Hints to clients about what a call does; never a permission. `None` means not said."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """One example call from the manifest."""

    description: str
    params: dict[str, Any]
    expected_output: str | None = None
