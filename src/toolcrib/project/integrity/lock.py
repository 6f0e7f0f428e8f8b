"""`toolcrib.lock`: the digests of pinned tools. A tool that differs from its pin does not run.

The file is at the project's root and is meant to be committed. Paths in it start at the root, so the
project can be anywhere; programs and files outside of the project are pinned by their real path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from toolcrib.errors import ConfigError, LockDrift
from toolcrib.guard import ToolDigest, changed_parts
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


def pin_of(digest: ToolDigest, root: Path) -> Pin:
    """Return the pin of a tool's digest: the same parts, with paths from the project's root."""
    start = f"{root}/"

    def short(text: str) -> str:
        return "." if text == str(root) else text.replace(start, "./", 1)

    parts = {}
    for name, value in digest.parts.items():
        kind, slash, rest = name.partition("/")
        parts[f"{kind}{slash}{short(rest)}"] = short(value) if kind == "grants" else value
    return parts


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
