"""What of a project's settings counts only once a person trusts them, and whether somebody did.

A project is a folder that others may have made. Its settings may narrow what tools can do at once. What
weakens a guard, names a secret's source or starts a process waits.
"""

from __future__ import annotations

import copy
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from toolcrib.errors import StateUnavailable
from toolcrib.state import Vault, read_private, write_private

__all__ = ["NARROWING", "WEAKENING", "Trust", "Trusted", "Weakening", "narrowed", "weakening"]

_FILE = "trust.json"
_GONE: Any = object()
"""Instead of a value: the setting is left out, so that its default holds."""


@dataclass(frozen=True, slots=True)
class Weakening:
    """One setting that waits for trust."""

    key: tuple[str, ...]
    """The keys down to it."""
    allows: str
    """What it would allow, in words."""

    @property
    def name(self) -> str:
        """The setting as it is written of: `sandbox.minimum`."""
        return ".".join(self.key)


class _Guarded(NamedTuple):
    """A setting that can weaken."""

    allows: Callable[[Any], str | None]
    """What a value would allow, in words; None for one that weakens nothing."""
    safe: Callable[[Any], Any] = lambda _: _GONE
    """What holds instead until the settings are trusted."""


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _names(value: Any) -> str:
    """In full, and so that nothing in it passes for a line of ours."""
    return ", ".join(
        item if isinstance(item, str) and item.isprintable() else json.dumps(item) for item in _listed(value)
    )


def _sandbox(value: Any) -> str | None:
    if value == "full":
        return None
    held = "no confinement at all" if value == "none" else f"the confinement of level {value}"
    return f"tools run with {held} where the kernel cannot do more"


def _channels(value: Any) -> str | None:
    if {"cli", "page"}.issuperset(_listed(value)):
        return None
    return "a person is asked through the calling client, which could answer by itself"


def _ttl(value: Any) -> str | None:
    return f"calls may wait for approval for {value:g} hours" if value > DEFAULT_TTL_HOURS else None


def _ceiling(value: Any) -> str | None:
    parts = []
    if (network := value.get("network", False)) is not False:
        parts.append(f"network {'any host' if network is True else json.dumps(network)}")
    files = value.get("fs") or {}
    parts += [f"{way} {_names(files[way])}" for way in ("read", "write") if files.get(way)]
    if value.get("secrets"):
        parts.append(f"secrets {_names(value['secrets'])}")
    if value.get("env"):
        parts.append(f"environment variables {_names(value['env'])}")
    return f"tools that agents make may have: {'; '.join(parts)}" if parts else None


def _sources(value: Any) -> str | None:
    if all(
        source == "env" or (isinstance(source, Mapping) and list(source) == ["env"])
        for source in _listed(value)
    ):
        return None
    return f"secrets are read from: {_names(value)}"


def _servers(value: Any) -> str | None:
    if not value:
        return None
    named = value.items() if isinstance(value, Mapping) else ()
    told = [_names([name, one]) for name, one in named]
    return f"these MCP servers are started or called: {'; '.join(told) or _names(value)}"


def _leads_out(source: Any) -> bool:
    place = source.get("dir", source.get("file")) if isinstance(source, Mapping) else None
    if not isinstance(place, str):
        return True
    plain = os.path.normpath(place)
    return os.path.isabs(plain) or plain == os.pardir or plain.startswith(os.pardir + os.sep)  # noqa: PTH117


def _inside(value: Any) -> Any:
    return [one for one in value if not _leads_out(one)] if isinstance(value, list) else _GONE


def _outside(value: Any) -> str | None:
    out = [
        source.get("dir", source.get("file", source)) if isinstance(source, Mapping) else source
        for source in _listed(value)
        if _leads_out(source)
    ]
    return f"tools come from outside of the project: {_names(out)}" if out else None


def _any(words: str) -> Callable[[Any], str | None]:
    return lambda value: f"{words}: {_names(value)}"


def _when(weak: Any, words: str) -> Callable[[Any], str | None]:
    return lambda value: words if value == weak else None


DEFAULT_TTL_HOURS = 168.0
WEAKENING: Mapping[str, _Guarded] = {
    ".mcp.json": _Guarded(_servers),
    "approvals.channels": _Guarded(
        _channels, lambda value: [one for one in _listed(value) if one in ("cli", "page")]
    ),
    "approvals.ttl_hours": _Guarded(_ttl, lambda value: min(value, DEFAULT_TTL_HOURS)),
    "mcp_servers": _Guarded(_servers),
    "policy.self_approval": _Guarded(
        _when(True, "who owns an agent's token may approve its calls by another token of theirs")
    ),
    "review": _Guarded(_when("off", "tools run without that a person has looked at them first")),
    "sandbox.minimum": _Guarded(_sandbox),
    "secrets.sources": _Guarded(_sources),
    "security.max_permissions": _Guarded(_ceiling, lambda _: {}),
    "sources": _Guarded(_outside, _inside),
}
"""Every setting that can weaken something. A new one has its line here, or in `NARROWING`."""

NARROWING = frozenset(
    {
        "audit.max_bytes",
        "inputs.lenient",
        "limits.calls_per_minute",
        "limits.concurrency",
        "limits.created_tools",
        "limits.timeout_ms",
        "mcp.max_listed",
        "mcp.pinned",
        "policy.default",
        "policy.rules",
        "retry.jitter",
        "retry.max_attempts",
        "security.allowed_hosts",
    }
)
"""Settings that hold at once: whatever they say, less is allowed than without them, or as much."""


def weakening(settings: Any) -> list[Weakening]:
    """Every setting that weakens something, in the order of their names. The settings have been checked.

    A setting that neither table knows is taken for one that weakens.
    """
    found = []
    for key, value in _waiting(settings, ()):
        name = ".".join(key)
        guarded = WEAKENING.get(name)
        words = guarded.allows(value) if guarded is not None else f"what {name} sets: {_names(value)}"
        if words is not None:
            found.append(Weakening(key, words))
    return sorted(found, key=lambda weak: weak.key)


def narrowed(settings: Any) -> Any:
    """The settings with every weakening one at what is safe; the others as they are."""
    found = weakening(settings)
    if not found:
        return settings
    safe = copy.deepcopy(settings)
    for weak in found:
        *above, last = weak.key
        block = safe
        for key in above:
            block = block[key]
        guarded = WEAKENING.get(weak.name)
        block[last] = _GONE if guarded is None else guarded.safe(block[last])
        if block[last] is _GONE:
            del block[last]
    return safe


def _waiting(settings: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The settings that do not hold at once: the keys down to each, and its value."""
    for part, value in settings.items() if isinstance(settings, Mapping) else ():
        key = (*above, part)
        name = ".".join(key)
        if value is None or name in NARROWING:
            continue
        if isinstance(value, Mapping) and not above and name not in WEAKENING:
            yield from _waiting(value, key)
        else:
            yield key, value


class Trusted(NamedTuple):
    """The settings that were trusted last."""

    digest: str
    """SHA-256 of the file, in hex."""
    by: str
    at: str
    """When, UTC, ISO 8601."""


class Trust:
    """What a person has trusted of one project, kept in the user's own folder. One digest at a time."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def is_trusted(self, digest: str) -> bool:
        """Whether these very settings are trusted; one byte more or less makes them others."""
        trusted = self.current()
        return trusted is not None and secrets.compare_digest(trusted.digest, digest)

    def current(self) -> Trusted | None:
        """What is trusted now. A file that is damaged trusts nothing."""
        if not os.path.lexists(self._vault.path):
            return None
        said = read_private(self._vault.folder / _FILE)
        try:
            found = Trusted(said["config_sha256"], said["by"], said["at"])
        except (TypeError, KeyError):
            return None
        return found if all(isinstance(part, str) for part in found) else None

    def accept(self, digest: str, by: str) -> Trusted:
        """Trust these settings, and no others any more. `StateUnavailable` where that cannot be kept."""
        trusted = Trusted(digest, by, datetime.now(UTC).isoformat(timespec="seconds"))
        said = {"config_sha256": trusted.digest, "by": trusted.by, "at": trusted.at}
        write_private(self._vault.folder / _FILE, said)
        return trusted

    def revoke(self) -> bool:
        """Trust nothing any more; whether something was trusted."""
        if not os.path.lexists(self._vault.path):
            return False
        path = self._vault.folder / _FILE
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StateUnavailable(
                f"{path} cannot be removed: {error.strerror}",
                hint="Remove it by hand.",
                details={"path": str(path)},
            ) from None
        return True
