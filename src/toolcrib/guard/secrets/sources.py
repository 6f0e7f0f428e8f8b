"""Where secret values come from, besides the environment: a `.env` file, a folder, a command, the keyring.

A source gives the value, or None when it has none of that name. Where it cannot tell, it raises SecretMissing
with what is wrong, and nothing runs: another source that is asked next could have another value.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple, Protocol

from toolcrib.errors import SecretMissing
from toolcrib.guard.secrets.env_file import parse_env_file
from toolcrib.guard.secrets.source import EnvironmentSecrets
from toolcrib.sandbox.files.beneath import open_beneath
from toolcrib.spec import SecretSource

__all__ = [
    "ChainedSecrets",
    "CommandSecrets",
    "EnvFileSecrets",
    "FolderSecrets",
    "Found",
    "KeyringSecrets",
    "look_up",
]

MAX_VALUE = 65_536
"""Bytes of one secret."""

MAX_FILE = 1024 * 1024
"""Bytes of a `.env` file."""

_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*").fullmatch


class Labelled(SecretSource, Protocol):
    """A source that says what it is."""

    @property
    def label(self) -> str:
        """What the source is, for a person."""


class Found(NamedTuple):
    """What is known of a secret without showing it."""

    state: Literal["resolved", "missing", "unreadable"]
    source: str = ""
    """The source that has it, or that cannot be read."""
    reason: str = ""
    hint: str | None = None


def look_up(source: SecretSource, name: str) -> Found:
    """Ask a source for a secret and tell only how that went; never raises."""
    inner = source.sources if isinstance(source, ChainedSecrets) else (source,)
    for one in inner:
        label = getattr(one, "label", "env" if isinstance(one, EnvironmentSecrets) else type(one).__name__)
        try:
            if one.get(name):
                return Found("resolved", label)
        except SecretMissing as error:
            return Found("unreadable", label, str(error.details.get("reason", error.message)), error.hint)
    return Found("missing")


class ChainedSecrets:
    """Several sources: the first that has a value gives it."""

    def __init__(self, sources: Sequence[SecretSource]) -> None:
        self.sources = tuple(sources)

    def get(self, name: str) -> str | None:
        """The value; SecretMissing where a source that comes first cannot be read."""
        for source in self.sources:
            if value := source.get(name):
                return value
        return None


class EnvFileSecrets:
    """A `.env` file, as `parse_env_file` reads it; read again when it has changed. A missing one is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = f"env_file {path}"
        self._seen: tuple[int, ...] | None = None
        self._values: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        """The variable's value."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(name, self.label, error.strerror or str(error), "Make it readable.") from None
        try:
            found = os.fstat(fd)
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if seen != self._seen:
                self._values = self._parse(name, _read_file(fd, MAX_FILE))
                self._seen = seen
        finally:
            os.close(fd)
        return self._values.get(name) or None

    def _parse(self, name: str, data: bytes | None) -> dict[str, str]:
        if data is None or len(data) > MAX_FILE:
            told = f"it is no file of at most {MAX_FILE:,} bytes"
            raise _unreadable(name, self.label, told, "Name a `.env` file.")
        try:
            return parse_env_file(data.decode())
        except UnicodeDecodeError:
            raise _unreadable(name, self.label, "it is not UTF-8", "Save it as UTF-8.") from None
        except ValueError as error:
            raise _unreadable(name, self.label, str(error), "Mend the line; quotes help.") from None


class FolderSecrets:
    """A mounted folder: one file a secret, its last newline dropped.

    Links inside the folder are followed, as Kubernetes makes them (`TOKEN -> ..data/TOKEN`), none out of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = f"folder {path}"

    def get(self, name: str) -> str | None:
        """The content of the file of that name."""
        if _name(name) is None:
            return None
        try:
            folder = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            hint = "Mount the folder, or take it out of secrets.sources."
            raise _unreadable(name, self.label, error.strerror or str(error), hint) from None
        try:
            fd = open_beneath(folder, name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            told = error.strerror or str(error)
            raise _unreadable(
                name, self.label, told, f"{name} must be a readable file in the folder."
            ) from None
        finally:
            os.close(folder)
        try:
            data = _read_file(fd, MAX_VALUE)
        finally:
            os.close(fd)
        if data is None:
            raise _unreadable(name, self.label, "it is not a file", "One file holds one secret.")
        return _value(name, self.label, data)


class CommandSecrets:
    """A helper command: run without a shell, the secret's name as its last argument, the value on its output.

    Ending with 0 and no output means that there is none of that name; any other end, or `timeout` seconds,
    that it cannot tell. What it gives is kept for `keep` seconds. What it writes to standard error is thrown
    away: it could hold the value. `cwd` is where it runs.
    """

    def __init__(
        self,
        argv: Sequence[str],
        timeout: float = 10.0,
        *,
        keep: float = 60.0,
        cwd: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.argv = tuple(argv)
        self.label = f"command {self.argv[0]}"
        self._timeout = timeout
        self._kept = _Kept(self._run, keep, clock)
        self._cwd = cwd

    def get(self, name: str) -> str | None:
        """What the command says."""
        if _name(name) is None:
            return None
        return self._kept.get(name)

    def _run(self, name: str) -> str | None:
        status, output = run_bounded([*self.argv, name], self._timeout, name, self.label, self._cwd)
        if status != 0:
            end = f"it ended with status {status}" if status > 0 else f"it was ended by signal {-status}"
            shown = " ".join(self.argv)
            raise _unreadable(name, self.label, end, f"Run it yourself and see: {shown} {name}")
        return _value(name, self.label, output)


class KeyringSecrets:
    """The keyring of the operating system, through the `keyring` library or else the command `secret-tool`.

    The secret's name is the user name of the entry, `service` its service. Both ways find the same entries of
    the Secret Service. What is found is kept for `keep` seconds.
    """

    def __init__(
        self, service: str, *, keep: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.service = service
        self.label = f"keyring {service}"
        self._kept = _Kept(self._ask, keep, clock)

    def get(self, name: str) -> str | None:
        """The entry's password."""
        return self._kept.get(name)

    def _ask(self, name: str) -> str | None:
        try:
            import keyring
            import keyring.errors
        except ImportError:
            return self._ask_tool(name)
        try:
            return keyring.get_password(self.service, name) or None
        except keyring.errors.NoKeyringError:
            told, hint = "there is no keyring that the keyring library can use", "See `keyring diagnose`."
        except Exception as error:  # Backends raise what they like; its text could hold anything.
            told, hint = (
                f"the keyring failed with {type(error).__name__}",
                "Unlock it, and see `keyring diagnose`.",
            )
        raise _unreadable(name, self.label, told, hint) from None

    def _ask_tool(self, name: str) -> str | None:
        tool = shutil.which("secret-tool")
        if tool is None:
            hint = "Install one: pip install 'toolcrib[keyring]', or your system's libsecret-tools."
            told = "neither the keyring library nor the command secret-tool is there"
            raise _unreadable(name, self.label, told, hint)
        argv = [tool, "lookup", "service", self.service, "username", name]
        status, output = run_bounded(argv, 10.0, name, self.label, None)
        if status not in (0, 1):  # It ends with 1 where it finds nothing.
            raise _unreadable(name, self.label, f"secret-tool ended with {status}", "Unlock the keyring.")
        return _value(name, self.label, output)


class _Kept:
    """What was asked, kept for a while; one thread asks at a time."""

    def __init__(self, ask: Callable[[str], str | None], keep: float, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._keep = keep
        self._clock = clock
        self._mutex = Lock()
        self._known: dict[str, tuple[float, str | None]] = {}

    def get(self, name: str) -> str | None:
        with self._mutex:
            until, value = self._known.get(name, (float("-inf"), None))
            if self._clock() >= until:
                self._known.pop(name, None)
                value = self._ask(name)
                self._known[name] = (self._clock() + self._keep, value)
            return value


def _read_file(fd: int, most: int) -> bytes | None:
    """A file's content, at most one byte too many; None for what is no regular file."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    data = b""
    while len(data) <= most and (more := os.read(fd, most + 1 - len(data))):
        data += more
    return data


def run_bounded(
    argv: Sequence[str], timeout: float, name: str, label: str, cwd: Path | None
) -> tuple[int, bytes]:
    """Run a command to its end: its status, and what it wrote. SecretMissing where it breaks its bounds."""
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or "it cannot be started"
        raise _unreadable(name, label, told, f"Is there a program {argv[0]}?") from None
    assert process.stdout is not None
    try:
        output = _read(process.stdout.fileno(), process.pid, time.monotonic() + timeout)
    finally:
        # Not reaped yet, so it is still this group, with all that it has started.
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        status = process.wait()
    if output is None:
        told = f"it took longer than {timeout:g} s"
        raise _unreadable(name, label, told, "It must not ask anybody; raise timeout_ms if it is slow.")
    if len(output) > MAX_VALUE:
        raise _too_long(name, label)
    return status, output


def _read(fd: int, pid: int, deadline: float) -> bytes | None:
    """What a command writes until it ends, at most one byte too many; None when its time is up."""
    output = b""
    ended = os.pidfd_open(pid)
    try:
        waiting = [fd, ended]
        while waiting and len(output) <= MAX_VALUE:
            ready = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                return None
            if fd not in ready:
                waiting.remove(ended)  # What it has started may still write.
                continue
            data = os.read(fd, MAX_VALUE + 1 - len(output))
            output += data
            if not data:
                waiting.remove(fd)
    finally:
        os.close(ended)
    return output


def _value(name: str, label: str, data: bytes) -> str | None:
    """The value as text, without its last newline; None when it is empty."""
    if len(data) > MAX_VALUE:
        raise _too_long(name, label)
    if b"\0" in data:
        raise _unreadable(name, label, "it holds a NUL byte", "Store it as text, in base64 perhaps.")
    value = os.fsdecode(data)
    return value.removesuffix("\n").removesuffix("\r") or None


def _too_long(name: str, label: str) -> SecretMissing:
    told = f"it is longer than {MAX_VALUE:,} bytes"
    return _unreadable(name, label, told, "A secret is a token or a key, not a file.")


def _unreadable(name: str, label: str, reason: str, hint: str) -> SecretMissing:
    return SecretMissing(
        f"Secret {name} cannot be read from {label}: {reason}.",
        hint=hint,
        details={"unreadable": [name], "source": label, "reason": reason},
    )
