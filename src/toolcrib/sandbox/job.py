"""The description of a command to run confined, and of how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from socket import socket
from typing import TYPE_CHECKING, Any, Literal, Protocol

from toolcrib.spec import Level
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.sandbox.tracing.watch import Seen

MIB = 1_048_576

NetworkAccess = Literal["none", "proxy", "host"]
"""No network; what an `Outlet` allows; the machine's own network, not confined."""


class Outlet(Protocol):
    """Serves the connections that one confined command makes, and decides which are allowed."""

    def start(self) -> None:
        """Start to accept connections in the running event loop."""

    async def aclose(self) -> None:
        """Close the listener and all its connections, and wait until they are closed."""


@record
class Script:
    """A Python script of ours that a running interpreter can call, so that no new one must be started.

    It must define `main`, which is called without arguments. All else is as `argv` would have it: standard
    streams, descriptor 3, environment, `sys.executable`, installed packages. An answer on descriptor 3 that
    ends with `}` is whole: the call ends when the streams are closed after it.
    """

    path: str
    """The script. It is loaded outside the sandbox, so it must be ours."""
    interpreter: str
    """The real interpreter. It is started outside the sandbox, so no tool may be able to change it."""
    executable: str
    """The value of `sys.executable`: the interpreter as a virtual environment names it."""


@record
class Confinement:
    """One command and everything it may touch.

    All paths are absolute real paths: no symbolic link, no `.` or `..` in them. Where rules overlap,
    `hide` beats `scratch` beats `protect` beats `write` beats `read` on the same path; a `read` inside a
    `write` is read-only and a `write` inside a `read` is writable. Beyond its grants the command sees
    the system's programs and libraries (read-only), a private `/tmp` and nothing of the project.
    """

    argv: tuple[str, ...]
    """Program and arguments; a program without a slash is looked for on the `PATH` of `env`."""
    cwd: str
    """The working folder: inside a grant, an `empty` folder, `/tmp` or the system's own folders."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment; nothing is inherited."""
    read: tuple[str, ...] = ()
    """Files and folders it may read; each must exist."""
    write: tuple[str, ...] = ()
    """Files and folders it may read and write; each must exist."""
    protect: tuple[str, ...] = ()
    """Stay read-only whatever `write` says, where they exist."""
    scratch: tuple[str, ...] = ()
    """Writable even inside `protect`; each must exist."""
    hide: tuple[str, ...] = ()
    """Unreadable whatever is granted, where they exist."""
    empty: tuple[str, ...] = ()
    """Appear as empty read-only folders unless a grant covers them: a place for an ungranted `cwd`."""
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links to show, each as (place, target), where no grant shows what is there: a granted path or
    an interpreter may be named by way of one. A link alone makes nothing readable."""
    pinned: tuple[tuple[str, str], ...] = ()
    """Files and folders to show as they were, read-only: each as (place, copy). Only where a grant shows the
    place, and at level `full` only."""
    stays: bool = False
    """The command runs for long: files in other folders than its pinned ones are those of the moment."""
    stdin: bytes = b""
    timeout_ms: int = 300_000
    """Wall clock of the whole call in milliseconds, set-up included."""
    output_limit: int = MIB
    """Bytes kept of each output stream; the rest is read, counted and given to `on_long`, or discarded."""
    result_limit: int = 0
    """Above 0, descriptor 3 is a pipe; this many of its first bytes are returned as `Completed.result`."""
    good: bytes = b""
    """The first bytes of a result that is not a failure; the limits that a failure reached are reported."""
    cpu_s: int = 3_600
    """CPU seconds of each process."""
    file_size: int = 1024 * MIB
    """Bytes of any one file it writes."""
    open_files: int = 512
    """Descriptors that each process may have open. It also bounds how many may be on their way between
    processes, which is counted for each user; 512 leaves the rest to a server with the usual 1,024."""
    memory_bytes: int | None = None
    """Memory of the whole tree; refused where nothing can enforce it. None: the usual bound, if any."""
    processes: int | None = None
    """Processes and threads of the whole tree; likewise."""
    tmp_size: int = 256 * MIB
    """Bytes in the private `/tmp` (which lives in memory)."""
    network: NetworkAccess = "none"
    """With `proxy` the command finds the way out in the usual variables (`HTTP_PROXY`, …), set over `env`."""
    outlet: Callable[[socket], Outlet] | None = None
    """For `proxy`: returns what serves the listening socket on the sandbox's loopback, and then owns it."""
    minimum: Level = "full"
    """The lowest level that it may run at. It runs at the best one that can confine it here."""
    advice: str = ""
    """Added to the hint if it is refused because the level is too low."""
    script: Script | None = None
    """Set if `argv` starts a Python script of ours: the same for an interpreter that runs already."""
    on_output: Callable[[bytes], None] | None = None
    """Called on the event loop with what is read of standard output, as far as it is kept; must not fail."""
    on_long: Callable[[str, bytes], bool] | None = None
    """Called on the event loop with `stdout` or `stderr` and all bytes of one that is longer than
    `output_limit`, in parts from the first on until it returns False; must not fail."""
    watch: Callable[[Seen], None] | None = None
    """Called on the event loop with each path and network address that the command is about to use, while it
    waits; must not fail. Such a command is slower, and never uses a spare."""


@record
class Completed:
    """The end of a confined command; one that failed or was stopped at its timeout is still one."""

    exit_code: int | None
    """None when a signal ended it."""
    signal: int | None
    stdout: bytes
    stderr: bytes
    stdout_total: int
    """Bytes written, kept or not."""
    stderr_total: int
    timed_out: bool
    duration_ms: float
    enforcement: Mapping[str, Any]
    """The mechanisms that enforced the limits, and what was not enforced."""
    result: bytes = b""
    result_total: int = 0


@record
class Warmth:
    """The amount kept ready for the next calls."""

    idle_s: float = 300.0
    """Seconds after its last use that a launcher is ended."""
    spare_idle_s: float = 60.0
    """The same for a spare sandbox."""
    launchers: int = 8
    """Interpreters with a launcher; the least recently used goes first."""
    spares: int = 8
    """Spare sandboxes in all; 0 for none."""
    spares_each: int = 2
    """Spare sandboxes for one tool that is called many times at once."""
