"""The secrets that a tool gets: what it declares, from the environment and other sources.

A source returns the value, or None if it has none of that name. A source that cannot be read raises
SecretMissing with the reason, and nothing runs: the source after it could have another value.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

from toolcrib.errors import SecretMissing
from toolcrib.spec import Permissions, SecretSource

MAX_VALUE = 65_536
"""Bytes of one secret."""


class EnvironmentSecrets:
    """A secret source over environment variables: those of this process, or a given mapping."""

    label = "env"

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = os.environ if values is None else values

    def get(self, name: str) -> str | None:
        """Return the variable's value, or None if it is not set or empty."""
        return self._values.get(name) or None

    def names(self) -> Collection[str]:
        """Return the names of all variables."""
        return self._values.keys()


class ChainedSecrets:
    """Several sources: the first that has a value provides it."""

    def __init__(self, sources: Sequence[SecretSource]) -> None:
        self.sources = tuple(sources)

    def get(self, name: str) -> str | None:
        """Return the value; SecretMissing if a source that comes first cannot be read."""
        for source in self.sources:
            if value := source.get(name):
                return value
        return None


class UnreadableError(Exception):
    """A source cannot be read: the reason, and what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


class LabelledSource:
    """A source with a label for people. It reports what it cannot read as SecretMissing."""

    access_hint = "Make it readable for this user."
    """The advice for an OSError."""

    def __init__(self, label: str) -> None:
        self.label = label

    def find(self, name: str) -> str | None:
        """Return the value, None if there is none of that name. Raises OSError or UnreadableError."""
        raise NotImplementedError

    def names(self) -> Collection[str] | None:
        """Return the names of all that it has; None if it must be asked for each. Raises as `find`."""
        return None

    def get(self, name: str) -> str | None:
        """Return the value, or None if there is none of that name; SecretMissing if it cannot be read."""
        try:
            return self.find(name)
        except UnreadableError as error:
            reason, hint = error.reason, error.hint
        except OSError as error:
            reason, hint = error.strerror or str(error), self.access_hint
        raise SecretMissing(
            f"Secret {name} cannot be read from {self.label}: {reason}.",
            hint=hint,
            details={"unreadable": [name], "source": self.label, "reason": reason},
        )


def among(source: SecretSource, names: AbstractSet[str]) -> AbstractSet[str]:
    """Return those of these names that a source may have a value of, without asking it for each."""
    if isinstance(source, ChainedSecrets):
        return {name for one in source.sources for name in among(one, names)}
    if not isinstance(source, EnvironmentSecrets | LabelledSource):
        return names
    try:
        known = source.names()
    except (OSError, UnreadableError):  # Reported where a value is needed.
        return names
    return names if known is None else names & set(known)


def require_length(data: bytes) -> None:
    """Raise UnreadableError for a value that is too long."""
    if len(data) > MAX_VALUE:
        hint = "A secret is a token or a key, not a file."
        raise UnreadableError(f"it is longer than {MAX_VALUE:,} bytes", hint)


def value_of(data: bytes) -> str | None:
    """Return a stored value as text without its last newline, or None if it is empty. UnreadableError."""
    require_length(data)
    if b"\0" in data:
        raise UnreadableError("it contains a NUL byte", "Store it as text, for example in base64.")
    return os.fsdecode(data).removesuffix("\n").removesuffix("\r") or None


_SHORT = 8


class SecretStatus(NamedTuple):
    """The state of a secret, without its value."""

    state: Literal["resolved", "missing", "unreadable"]
    source: str = ""
    """The source that has it, or that cannot be read."""
    reason: str = ""
    hint: str | None = None
    short: bool = False
    """True if the value has fewer than 8 characters: it can be guessed, also through masking."""


def look_up(source: SecretSource, name: str) -> SecretStatus:
    """Look for a secret without revealing its value; never raises."""
    for one in source.sources if isinstance(source, ChainedSecrets) else (source,):
        label = getattr(one, "label", type(one).__name__)
        try:
            if value := one.get(name):
                return SecretStatus("resolved", label, short=len(value) < _SHORT)
        except SecretMissing as error:
            reason = str(error.details.get("reason", error.message))
            return SecretStatus("unreadable", label, reason, error.hint)
    return SecretStatus("missing")


def resolve(permissions: Permissions, source: SecretSource) -> dict[str, str]:
    """Return the declared secrets that have a value, by name.

    Raises SecretMissing with the name of every required secret without a value: then nothing may run.
    """
    found: dict[str, str] = {}
    missing: list[str] = []
    for secret in permissions.secrets:
        value = source.get(secret.name)
        if value:
            found[secret.name] = value
        elif secret.required:
            missing.append(secret.name)
    if missing:
        many = len(missing) > 1
        what = "Secrets {} are not set." if many else "Secret {} is not set."
        sets = " && ".join(f"toolcrib secrets set {shlex.quote(name)}" for name in missing)
        exports = " ".join(f"export {shlex.quote(name)}=…" for name in missing)
        raise SecretMissing(
            what.format(", ".join(missing)),
            hint=f"Set {'them' if many else 'it'}: {sets}; or in Toolcrib's environment, and start it again:"
            f" {exports} (`toolcrib secrets check` shows which secrets are set)",
            details={"missing": missing},
        )
    return found
