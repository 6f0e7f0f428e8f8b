"""Secrets from other programs: a helper command, or the keyring of the operating system."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from toolcrib.guard.secrets.sources import (
    MAX_VALUE,
    LabelledSource,
    UnreadableError,
    is_secret_name,
    require_length,
    value_of,
)
from toolcrib.state.installation import install_command

_STORE_S = 60.0

StartHelper = Callable[[Sequence[str], float], tuple[int, bytes]]
"""Runs a command line for at most this many seconds. Returns its exit status (below 0: a signal) and output.

Raises UnreadableError or OSError.
"""


class _CachedSource(LabelledSource):
    """A source whose answers are kept for `keep` seconds; one thread asks at a time."""

    def __init__(self, label: str, keep: float, clock: Callable[[], float]) -> None:
        super().__init__(label)
        self._keep = keep
        self._clock = clock
        self._mutex = Lock()
        self._known: dict[str, tuple[float, str | None]] = {}

    def ask(self, name: str) -> str | None:
        """Return the value now; UnreadableError."""
        raise NotImplementedError

    def find(self, name: str) -> str | None:
        """Return the value, at most `keep` seconds old."""
        with self._mutex:
            until, value = self._known.get(name, (float("-inf"), None))
            if self._clock() >= until:
                self._known.pop(name, None)
                value = self.ask(name)
                self._known[name] = (self._clock() + self._keep, value)
            return value


class CommandSecrets(_CachedSource):
    """A helper command, run without a shell by `start`, with the secret's name as its last argument.

    It prints the value. Exit code 0 without output means that it has no such secret. Another exit code, or
    more than `timeout` seconds, is an error, to whose hint `advice` is added. Its standard error is
    discarded, because it could contain the value. Answers are kept for `keep` seconds.
    """

    def __init__(
        self,
        argv: Sequence[str],
        timeout: float = 10.0,
        *,
        keep: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        start: StartHelper | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(f"command {argv[0]}", keep, clock)
        self._argv = tuple(argv)
        self._timeout = timeout
        self._start = start or start_unconfined
        self._advice = advice

    def ask(self, name: str) -> str | None:
        """Run the command."""
        if is_secret_name(name) is None:
            return None
        status, output = self._start([*self._argv, name], self._timeout)
        require_length(output)
        if status != 0:
            end = f"it ended with status {status}" if status > 0 else f"it was ended by signal {-status}"
            hint = f"Run it yourself to see why: {' '.join(self._argv)} {name}"
            raise UnreadableError(end, f"{hint}{'; ' if self._advice else ''}{self._advice}")
        return value_of(output)


class KeyringSecrets(_CachedSource):
    """The keyring of the operating system, through the `keyring` library or the command `secret-tool`.

    An entry's user name is the secret's name, its service is `service`. Both ways find the same entries of
    the Secret Service. Answers are kept for `keep` seconds.
    """

    def __init__(self, service: str, *, keep: float = 60.0) -> None:
        super().__init__(f"keyring {service}", keep, time.monotonic)
        self.service = service

    def ask(self, name: str) -> str | None:
        """Return the entry's password."""
        try:
            import keyring
            import keyring.errors
        except ImportError:
            return self._ask_secret_tool(name)
        try:
            return keyring.get_password(self.service, name) or None
        except keyring.errors.NoKeyringError:
            reason, hint = "there is no keyring that the keyring library can use", "See `keyring diagnose`."
        except Exception as error:  # A backend may raise anything, and the text could contain anything.
            reason = f"the keyring failed with {type(error).__name__}"
            hint = "Unlock the keyring, and see `keyring diagnose`."
        raise UnreadableError(reason, hint)

    def store(self, name: str, value: str | None) -> None:
        """Keep a value in the keyring; None removes it. Raises UnreadableError."""
        require_length((value or "").encode())
        try:
            import keyring
        except ImportError:
            self._store_by_secret_tool(name, value)
            return
        try:
            if value is not None:
                keyring.set_password(self.service, name, value)
            elif keyring.get_password(self.service, name) is not None:
                keyring.delete_password(self.service, name)
        except Exception as error:  # As above.
            reason = f"the keyring failed with {type(error).__name__}"
            raise UnreadableError(reason, "Unlock the keyring, and see `keyring diagnose`.") from None
        finally:
            self._known.pop(name, None)  # Last, because another thread may have asked meanwhile.

    def _store_by_secret_tool(self, name: str, value: str | None) -> None:
        entry = ["service", self.service, "username", name]
        line = ["clear", *entry] if value is None else ["store", f"--label={self.service} {name}", *entry]
        tool = _secret_tool()
        try:
            done = subprocess.run([tool, *line], input=value or "", text=True, check=False, timeout=_STORE_S)
        except subprocess.TimeoutExpired:  # A desktop asks for the keyring's password meanwhile.
            reason = f"secret-tool took longer than {_STORE_S:g} s"
            raise UnreadableError(reason, "Unlock the keyring.") from None
        if done.returncode > (value is None):  # `clear` ends with 1 if it finds nothing.
            raise UnreadableError(f"secret-tool ended with status {done.returncode}", "Unlock the keyring.")

    def _ask_secret_tool(self, name: str) -> str | None:
        line = [_secret_tool(), "lookup", "service", self.service, "username", name]
        status, output = start_unconfined(line, 10.0)
        if status not in (0, 1):  # It ends with 1 if it finds nothing.
            raise UnreadableError(f"secret-tool ended with status {status}", "Unlock the keyring.")
        return value_of(output)


def _secret_tool() -> str:
    import shutil

    tool = shutil.which("secret-tool")
    if tool is None:
        raise UnreadableError(
            "neither the keyring library nor the command secret-tool is installed",
            f"Install one: {install_command('keyring')}, or your system's libsecret-tools.",
        )
    return tool


def start_unconfined(argv: Sequence[str], timeout: float, cwd: Path | None = None) -> tuple[int, bytes]:
    """Run a command with all rights of its user; as of `StartHelper`."""
    null = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            argv, stdin=null, stdout=subprocess.PIPE, stderr=null, cwd=cwd, start_new_session=True
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it cannot be started"
        raise UnreadableError(reason, f"Check that the program {argv[0]} exists.") from None
    assert process.stdout is not None
    deadline = time.monotonic() + timeout
    try:
        output = _read(process.stdout.fileno(), process.pid, deadline)
    except TimeoutError:
        hint = "It must not ask anybody; raise timeout_ms if it is slow."
        raise UnreadableError(f"it took longer than {timeout:g} s", hint) from None
    finally:
        # The process is not reaped yet, so the group is still its own, with all that it has started.
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        status = process.wait()
    require_length(output)
    return status, output


def _read(fd: int, pid: int, deadline: float) -> bytes:
    """Read a command's output until it ends, at most one byte too many."""
    output = b""
    while len(output) <= MAX_VALUE:
        _wait_readable(fd, deadline)
        data = os.read(fd, MAX_VALUE + 1 - len(output))
        if not data:
            # It has closed its output but may still run: a pidfd is readable once the process has ended.
            ended = os.pidfd_open(pid)
            try:
                _wait_readable(ended, deadline)
            finally:
                os.close(ended)
            break
        output += data
    return output


def _wait_readable(fd: int, deadline: float) -> None:
    waiting = select.poll()  # select(2) takes no descriptor above 1,023.
    waiting.register(fd, select.POLLIN)
    if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError
