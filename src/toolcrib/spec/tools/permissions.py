"""Permissions of a tool. Pure data; effective = tool ∩ bundle ∩ project maximum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal

from toolcrib.spec.record import record

NetworkMode = Literal["none", "any", "hosts", "host"]


@record
class Network:
    """Network permission: `none`, `any` public host, `hosts` (a list) or `host` (the machine's network)."""

    mode: NetworkMode = "none"
    allow: tuple[str, ...] = ()
    """For `hosts`: names, `*.name` or `name:port`, lower case."""

    @classmethod
    def parse(cls, value: Any) -> Network:
        """Read the manifest's `false | true | host | {allow: [hosts]}`; ValueError for anything else."""
        if value is False or value is None:
            return cls()
        if value is True:
            return cls("any")
        if value == "host":
            return cls("host")
        if isinstance(value, dict) and set(value) == {"allow"} and isinstance(value["allow"], list):
            return cls("hosts", tuple(str(host).lower() for host in value["allow"]))
        raise ValueError("network must be false, true, host or {allow: [hosts]}")

    def as_json(self) -> Any:
        """Return the form that a manifest has."""
        if self.mode == "hosts":
            return {"allow": list(self.allow)}
        return {"none": False, "any": True, "host": "host"}[self.mode]


@record
class SecretSpec:
    """One declared secret; its value comes from the project's secret sources."""

    name: str
    type: str = "string"
    required: bool = True


@record
class Permissions:
    """The permissions that a tool declares; nothing else is granted."""

    network: Network = field(default_factory=Network)
    read: tuple[str, ...] = ()
    """Paths as written; relative ones resolve from the project root."""
    write: tuple[str, ...] = ()
    secrets: tuple[SecretSpec, ...] = ()
    env: tuple[str, ...] = ()
    """Names of environment variables (not secret) handed to the tool."""

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the tool may read and that are set."""
        return {name: environ[name] for name in self.env if name in environ}

    def union(self, *others: Permissions) -> Permissions:
        """Return the permissions that allow all that any of these allow."""
        every = (self, *others)
        modes = {one.network.mode for one in every}
        # The widest mode first: the union must allow all that any of them allows.
        mode = next(mode for mode in ("host", "any", "hosts", "none") if mode in modes)
        hosts = _once(host for one in every for host in one.network.allow) if mode == "hosts" else ()
        secrets = {secret.name: secret for one in every for secret in one.secrets}
        return Permissions(
            Network(mode, hosts),
            _once(path for one in every for path in one.read),
            _once(path for one in every for path in one.write),
            tuple(secrets.values()),
            _once(name for one in every for name in one.env),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the manifest's `permissions` block, as the audit log records it."""
        block: dict[str, Any] = {
            "network": self.network.as_json(),
            "fs": {"read": list(self.read), "write": list(self.write)},
            "secrets": [secret.name for secret in self.secrets],
        }
        if self.env:
            block["env"] = list(self.env)
        return block


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
