"""The network of one call of a confined program: the proxy that it uses, and the hosts it was refused."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolcrib.errors import HostNotAllowed, ManifestError, PermissionDenied, TimedOut, ToolFailed, ToolSignal
from toolcrib.manifest import load
from toolcrib.spec import Source, Tool
from toolcrib.spec.naming import printable

if TYPE_CHECKING:
    from toolcrib.egress import HostRefusal, Proxy, Resolver
    from toolcrib.sandbox import Outlet

_NEEDS_HOST = (
    "It did not use the proxy that leads to its hosts. If it tried to reach one: a program that speaks"
    " neither HTTP nor SOCKS5 needs `permissions.network: host`."
)
_MOST_REPORTED = 10
"""Refusals reported one by one; there may be a hundred."""


class CallNetwork:
    """The network permission of a tool in one call.

    Arguments:
        allowed_hosts: the only hosts that the project allows, whatever the tool's permission; None for any.
        resolver: turns names into addresses (default: the machine's own).
        on_check: called with host and port of each destination, and whether it is allowed.

    Raises:
        PermissionDenied: the project's list cannot be enforced.
        ManifestError: an entry is not a host.
    """

    def __init__(
        self,
        tool: Tool,
        *,
        allowed_hosts: tuple[str, ...] | None = None,
        resolver: Resolver | None = None,
        on_check: Callable[[str, int, bool], None] | None = None,
    ) -> None:
        self._tool = tool
        self.refused: list[HostRefusal] = []
        """The destinations that it asked for and was refused."""
        self._proxy: Proxy | None = None
        self.job: dict[str, Any] = {}
        """Fields of `Confinement`."""
        network = tool.permissions.network
        if network.mode == "none":
            return
        if network.mode == "host":
            if allowed_hosts is not None:
                raise PermissionDenied(
                    f"{tool.name} asks for the machine's network, but the project allows only some hosts",
                    hint="Name hosts in permissions.network, or remove security.allowed_hosts.",
                )
            self.job = {"network": "host"}
            return
        from toolcrib.egress import Proxy, program_policy

        try:
            policy = replace(program_policy(network, allowed_hosts=allowed_hosts), on_check=on_check)
        except ValueError as error:
            raise ManifestError(f"permissions.network of {tool.name}: {error}") from None

        def outlet(listener: socket.socket) -> Outlet:
            self._proxy = Proxy(listener, policy, on_refusal=self.refused.append, resolver=resolver)
            return self._proxy

        self.job = {"network": "proxy", "outlet": outlet}

    @property
    def is_bypassed(self) -> bool:
        """True if there is a proxy that nothing has used so far."""
        return self._proxy is not None and not self._proxy.used

    @property
    def warnings(self) -> tuple[str, ...]:
        """The hosts that a call which succeeded did not reach."""
        return tuple(f"not reached: {text}" for text in self._texts()) if self.refused else ()

    @contextmanager
    def explained(self, *, hint: bool = False) -> Iterator[None]:
        """Add the refused hosts to a failure of the tool; HostNotAllowed replaces ToolFailed.

        With `hint`, a failure without one points to `toolcrib trace`. The kernel does not report which
        refusal made a program fail, so this cannot be more specific.
        """
        try:
            yield
        except ToolFailed as error:
            if self.refused:
                raise self._host_not_allowed(error) from error
            # Nothing reached the proxy, so the program most likely knows no proxies.
            if self.is_bypassed and error.hint is None:
                error.hint = _NEEDS_HOST
            if hint and error.hint is None and "signal" not in error.details:
                given = " with the same arguments" if self._tool.input_schema.get("properties") else ""
                trace = f"`toolcrib trace {self._tool.name}`{given}"
                error.hint = f"If a permission is missing, {trace} shows which."
            raise
        except TimedOut as error:
            if self.refused:
                error.details["refused"] = self._facts()
                error.hint = "; ".join([*self._texts(), self._how_to_allow()])
            raise
        except ToolSignal as signal:
            if self.refused:
                signal.reason += f" ({'; '.join(self._texts())})"
            raise

    def _host_not_allowed(self, failure: ToolFailed) -> HostNotAllowed:
        facts = self._facts()
        first = {name: facts[0][name] for name in ("host", "port")}
        return HostNotAllowed(
            f"{'; '.join(self._texts())}: {failure.message}",
            hint=self._how_to_allow(),
            details={**failure.details, **first, "refused": facts},
        )

    def _texts(self) -> list[str]:
        texts = list(dict.fromkeys(printable(refusal.reason) for refusal in self.refused))
        more = len(texts) - _MOST_REPORTED
        return texts[:_MOST_REPORTED] + ([f"{more} more refusals"] if more > 0 else [])

    def _facts(self) -> list[dict[str, Any]]:
        return [
            {"host": printable(one.host), "port": one.port, "reason": printable(one.reason)}
            for one in self.refused
        ]

    def _how_to_allow(self) -> str:
        """Return the line of the manifest that would allow the refused hosts."""
        from toolcrib.egress import grant_line

        entries = dict.fromkeys(one.entry for one in self.refused if one.entry is not None)
        if not entries:
            return "no permission of the tool can allow that"
        wanted = dict.fromkeys((*self._tool.permissions.network.allow, *entries))
        return f"to allow it, write in {self._place()}: {grant_line(wanted)}"

    def _place(self) -> str:
        """Return the manifest, and the line in it for the permission."""
        if self._tool.source is None:
            return "the tool's manifest"
        line = manifest_line(self._tool.source, ("permissions", "network"))
        return self._tool.source.path + ("" if line is None else f":{line}")


def manifest_line(source: Source, keys: tuple[str, ...]) -> int | None:
    """Return the line of the nearest of these keys that a manifest has; None if it cannot be read."""
    try:
        return load(source.raw, source.path).locate(keys, key=True)[0]
    except ManifestError:
        return None
