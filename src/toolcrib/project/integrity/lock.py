"""`toolcrib.lock`: the digests of pinned tools. A tool that differs from its pin does not run.

The file is at the project's root and is meant to be committed. Paths in it start at the root, so the
project can be anywhere; programs and files outside of the project are pinned by their real path.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from toolcrib.errors import ConfigError, LockDrift
from toolcrib.guard import ToolDigest, changed_parts
from toolcrib.spec import Tool
from toolcrib.spec.record import record
from toolcrib.state.private import open_plain, put_file

FILE = "toolcrib.lock"
_VERSION = 1
_MAX_BYTES = 64 * 1024 * 1024
_SHOWN = 5


Pin = Mapping[str, str]
"""The parts of one tool, each with its digest."""


@record
class Drift:
    """One tool that differs from its pin."""

    tool: str
    changed: tuple[str, ...]
    """Names of the parts that were changed, added or removed; or the reason for the whole tool."""

    def __str__(self) -> str:
        return f"{self.tool}: {listed(self.changed)}"


@record
class Lock:
    """A lock file: pins of tools by name, and further pins by bundle (the tools of remote servers)."""

    tools: Mapping[str, Pin] = field(default_factory=dict)
    bundles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Bundle to the names of its tools, each with the digest of the definition from its server."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Bundle to the hosts that a person has allowed its server, as JSON."""
    started: Mapping[str, str] = field(default_factory=dict)
    """The code that the settings start: name of the setting and path, with the digest."""
    settings: str = ""
    """SHA-256 of the settings, in hex."""

    def drift(self, now: Lock) -> list[Drift]:
        """Return every difference between these pins and those of the project as it is now, by name."""
        found = []
        for name in sorted({*self.tools, *now.tools}):
            then, today = self.tools.get(name), now.tools.get(name)
            if then is None or today is None:
                found.append(Drift(name, ("not in the lock" if then is None else "gone",)))
            elif changed := changed_parts(then, today):
                found.append(Drift(name, changed))
        rest = [
            (f"{bundle}/", self.bundles.get(bundle, {}), now.bundles.get(bundle, {}))
            for bundle in sorted({*self.bundles, *now.bundles})
        ]
        rest += [("hosts of servers", self.hosts, now.hosts), ("settings", self.started, now.started)]
        return found + [Drift(name, parts) for name, *pins in rest if (parts := changed_parts(*pins))]


def pin_digest(pin: Pin) -> str:
    """Return the SHA-256 over all parts, in hex."""
    whole = json.dumps(sorted(pin.items()), separators=(",", ":"))
    return hashlib.sha256(whole.encode(errors="surrogateescape")).hexdigest()


def read_lock(path: Path) -> Lock | None:
    """Read the lock; None if there is none. Raises ConfigError for any other file."""
    raw = read_raw(path)
    return None if raw is None else parse_lock(raw, path)


def read_raw(path: Path) -> bytes | None:
    """Return the bytes of the lock; None if there is none. Raises ConfigError."""
    try:
        with open_plain(path) as file:
            return file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(path, error.strerror) from None


def parse_lock(raw: bytes, path: Path) -> Lock:
    """Return the lock that these bytes are. Raises ConfigError for any other text."""
    try:
        data = json.loads(raw)
        if data["version"] != _VERSION:
            raise unusable(path, f"its version is {data['version']!r}, not {_VERSION}")
        tools = {name: _texts(entry["parts"]) for name, entry in data["tools"].items()}
        bundles = {name: _texts(entry) for name, entry in data["bundles"].items()}
        hosts = _texts(data["hosts"])
        started, settings = _texts(data["started"]), str(data["settings"])
        wrong = [name for name, pin in tools.items() if data["tools"][name]["digest"] != pin_digest(pin)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise unusable(path, "it is not what `toolcrib trust --lock` writes") from None
    if wrong:
        raise unusable(path, f"the digest of {wrong[0]!r} is not that of its parts")
    return Lock(tools, bundles, hosts, started, settings)


def write_lock(path: Path, lock: Lock) -> None:
    """Write the lock, sorted and atomically. A link in its place is replaced."""
    data: dict[str, Any] = {
        "version": _VERSION,
        "tools": {name: {"digest": pin_digest(pin), "parts": dict(pin)} for name, pin in lock.tools.items()},
        "bundles": {name: dict(pins) for name, pins in lock.bundles.items()},
        "hosts": dict(lock.hosts),
        "started": dict(lock.started),
        "settings": lock.settings,
    }
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    try:
        put_file(path, text.encode(), mode=0o666)
    except OSError as error:
        raise unusable(path, f"it cannot be written: {error.strerror}") from None


def require_started(root: Path, setting: str, parts: Mapping[str, str]) -> None:
    """Raise LockDrift if there is a lock and the code that a setting starts differs from its pin."""
    lock = read_lock(root / FILE)
    if lock is None:
        return
    pinned = {name: value for name, value in lock.started.items() if name.startswith(f"{setting}/")}
    if changed := changed_parts(pinned, parts):
        raise LockDrift(
            f"{setting} starts code that is not what {FILE} pins: {listed(changed)}",
            hint="To see it and accept it: toolcrib trust, then toolcrib trust --lock",
            details={"changed": list(changed)},
        )


def listed(changed: tuple[str, ...]) -> str:
    """Return the names of the first parts that have changed, and how many more there are."""
    more = len(changed) - _SHOWN
    return ", ".join(changed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _texts(data: Any) -> dict[str, str]:
    if not all(isinstance(value, str) for value in data.values()):
        raise TypeError
    return dict(data)


def unusable(path: Path, why: str | None) -> ConfigError:
    """Return the error of a lock that cannot be used."""
    return ConfigError(
        f"{path} cannot be used: {why}",
        hint="Restore it from version control, or write it again: toolcrib trust --lock",
        details={"path": str(path)},
    )


class Pins:
    """Compares the tools of one project with its lock.

    `digest_of` returns a tool's digest as it is now; `started` is the code that the settings start.
    """

    def __init__(
        self, root: Path, digest_of: Callable[[Tool], ToolDigest], started: Mapping[str, str] | None = None
    ) -> None:
        self.path = root / FILE
        self._digest_of, self._started = digest_of, started or {}
        self._read: tuple[tuple[int, ...], Lock] | None = None
        self.remote: Callable[[], Mapping[str, Mapping[str, str]]] = dict
        """Returns by bundle the digest of each tool's definition from a remote server."""
        self.hosts: Callable[[], Mapping[str, str]] = dict
        """Returns by bundle the hosts that a person has allowed a server, as JSON."""

    def require(self, tool: Tool, digest: Callable[[], ToolDigest] | None = None) -> None:
        """Raise LockDrift if there is a lock and its pin is not the tool, with this digest or as it is now.

        Tools without a manifest, which a program has registered itself, are not pinned.
        """
        lock = self._lock()
        if lock is not None and (changed := self._drift(tool, lock, digest)):
            raise LockDrift(
                f"{tool.name} is not what {FILE} pins: {listed(changed)}",
                hint="A person accepts the change (toolcrib trust), then locks it: toolcrib trust --lock",
                details={"changed": list(changed)},
            )

    def holds(self, tool: Tool) -> bool:
        """Return True if there is a lock and the tool is as it pins it."""
        lock = self._lock()
        return lock is not None and not self._drift(tool, lock)

    def _drift(
        self, tool: Tool, lock: Lock, digest: Callable[[], ToolDigest] | None = None
    ) -> tuple[str, ...]:
        """Return the parts of a tool that differ from its pin."""
        defined = self.remote().get(tool.bundle) if tool.source is None else None
        if defined is not None:
            pinned, now = lock.bundles.get(tool.bundle, {}).get(tool.name), defined.get(tool.name)
            if pinned is None or pinned != now:
                return ("definition",)
            return () if lock.hosts.get(tool.bundle) == self.hosts().get(tool.bundle) else ("hosts",)
        if tool.source is None:
            return ()
        pin = lock.tools.get(tool.name)
        if pin is None:
            return ("not in the lock",)
        found = self._digest_of(tool) if digest is None else digest()
        return changed_parts(pin, found.parts)

    def now(self, tools: Iterable[Tool], settings: str) -> Lock:
        """Return the lock of these tools as they are now, and of the code that the settings start.

        `settings` is the digest of the settings.

        Only tools of the project's manifests are pinned.
        """
        pinned = (tool for tool in tools if tool.source is not None and not tool.is_stored)
        pins = {tool.name: dict(self._digest_of(tool).parts) for tool in pinned}
        return Lock(pins, self.remote(), self.hosts(), self._started, settings)

    def _lock(self) -> Lock | None:
        """Return the lock as it is now; it is read again only if the file has changed."""
        try:
            # Looked at before the file is read: a change between the two is seen at the next call.
            found = os.lstat(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(self.path, error.strerror) from None
        # A link in place of the file has an inode of its own, and `read_lock` refuses it.
        state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if self._read is None or self._read[0] != state:
            # None if it is gone by now. It may come back in the same state, so that is not kept.
            lock = read_lock(self.path)
            self._read = None if lock is None else (state, lock)
        return None if self._read is None else self._read[1]
