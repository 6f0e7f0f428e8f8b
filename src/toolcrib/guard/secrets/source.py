"""The secrets that a tool gets: what it declares, from the environment or wherever the project says."""

from __future__ import annotations

import os
from collections.abc import Mapping

from toolcrib.errors import SecretMissing
from toolcrib.spec import Permissions, SecretSource

__all__ = ["EnvironmentSecrets", "resolve"]


class EnvironmentSecrets:
    """A secret source over environment variables: those of this process, or a given mapping."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = os.environ if values is None else values

    def get(self, name: str) -> str | None:
        """The variable's value, or None when it is not set or empty."""
        return self._values.get(name) or None


def resolve(permissions: Permissions, source: SecretSource) -> dict[str, str]:
    """The declared secrets that have a value, by name; an optional one that has none is left out.

    Raises SecretMissing, naming every required secret without a value: nothing may run then.
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
        import shlex

        what = "Secrets {} are not set." if len(missing) > 1 else "Secret {} is not set."
        raise SecretMissing(
            what.format(", ".join(missing)),
            hint="Set it in the environment that Toolcrib runs in, and start it again: "
            + " ".join(f"export {shlex.quote(name)}=…" for name in missing)
            + " (`toolcrib secrets check` shows which are there)",
            details={"missing": missing},
        )
    return found
