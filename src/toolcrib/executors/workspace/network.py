"""The network of one call of a confined program: what leads it out, and what it was refused on the way."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolcrib.errors import (
    HostNotAllowed,
    ManifestError,
    PermissionDenied,
    TimedOut,
    ToolFailed,
    ToolSignal,
)
from toolcrib.spec import Tool

if TYPE_CHECKING:
    from toolcrib.egress import Proxy, Refusal, Resolver
    from toolcrib.sandbox import Outlet

__all__ = ["CallNetwork"]

_NO_NETWORK = re.compile(
    r"connect|network|resol|unreachable|name or service|socket|EAI_|ENOTFOUND", re.IGNORECASE
)
_NEEDS_HOST = (
    "it did not use the proxy that leads to its hosts: a program that speaks neither HTTP nor SOCKS5 needs "
    "`permissions.network: host`"
)
_TOLD = 10
"""Refusals told one by one; there may be a hundred."""


class CallNetwork:
    """The network permission of a tool at work in one call.

    `allowed_hosts` is the project's list, if it has one, and binds beside the tool's own. `resolver` turns
    names into addresses (default: the machine's own). `tell` is told host and port of each destination, and
    whether it may be reached.

    Raises PermissionDenied where the project's list cannot be held, ManifestError for an entry that is no
    host.
    """

    def __init__(
        self,
        tool: Tool,
        *,
        allowed_hosts: tuple[str, ...] | None = None,
        resolver: Resolver | None = None,
        tell: Callable[[str, int, bool], None] | None = None,
    ) -> None:
        self._tool = tool
        self._refused: list[Refusal] = []
        self._proxy: Proxy | None = None
        self.job: dict[str, Any] = {}
        """What the sandbox is told of it: fields of `Confinement`."""
        network = tool.permissions.network
        if network.mode == "none":
            return
        if network.mode == "host":
            if allowed_hosts is not None:
                raise PermissionDenied(
                    f"{tool.name} asks for this machine's network, where the project's hosts cannot be held",
                    hint="Name hosts in permissions.network, or take security.allowed_hosts away.",
                )
            self.job = {"network": "host"}
            return
        from toolcrib.egress import Proxy, program_policy

        try:
            policy = replace(program_policy(network, allowed_hosts=allowed_hosts), tell=tell)
        except ValueError as error:
            raise ManifestError(f"permissions.network of {tool.name}: {error}") from None

        def outlet(listener: socket.socket) -> Outlet:
            self._proxy = Proxy(listener, policy, on_refusal=self._refused.append, resolver=resolver)
            return self._proxy

        self.job = {"network": "proxy", "outlet": outlet}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a call that succeeded all the same did without."""
        return tuple(f"not reached: {text}" for text in self._texts())

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Let a failure of the tool say what it was refused: HostNotAllowed takes the place of ToolFailed."""
        try:
            yield
        except ToolFailed as error:
            if not self._refused:
                unused = self._proxy is not None and not self._proxy.used
                if unused and error.hint is None and _NO_NETWORK.search(error.message):
                    error.hint = _NEEDS_HOST
                raise
            raise self._error(error) from error
        except TimedOut as error:
            if self._refused:
                error.details["refused"] = self._facts()
                error.hint = "; ".join([*self._texts(), self._grant()])
            raise
        except ToolSignal as signal:
            if self._refused:
                signal.reason += f" ({'; '.join(self._texts())})"
            raise

    def _error(self, failure: ToolFailed) -> HostNotAllowed:
        return HostNotAllowed(
            f"{'; '.join(self._texts())}: {failure.message}",
            hint=self._grant(),
            details={
                **failure.details,
                "host": _plain(self._refused[0].host),
                "port": self._refused[0].port,
                "refused": self._facts(),
            },
        )

    def _texts(self) -> list[str]:
        texts = list(dict.fromkeys(_plain(refusal.reason) for refusal in self._refused))
        more = len(texts) - _TOLD
        return texts[:_TOLD] + ([f"{more} more of the kind"] if more > 0 else [])

    def _facts(self) -> list[dict[str, Any]]:
        return [
            {"host": _plain(one.host), "port": one.port, "reason": _plain(one.reason)}
            for one in self._refused
        ]

    def _grant(self) -> str:
        """Where and how the manifest would grant what was refused."""
        from toolcrib.egress import grant_line

        entries = dict.fromkeys(one.entry for one in self._refused if one.entry is not None)
        if not entries:
            return "no permission of the tool can allow that"
        wanted = dict.fromkeys((*self._tool.permissions.network.allow, *entries))
        return f"if that is meant, write in {self._place()}: {grant_line(wanted)}"

    def _place(self) -> str:
        """The manifest and the line in it where the permission stands, or is to stand."""
        source = self._tool.source
        if source is None:
            return "the tool's manifest"
        from toolcrib.manifest import load

        try:
            line, _ = load(source.raw, source.path).locate(("permissions", "network"), key=True)
        except ManifestError:
            return source.path
        return f"{source.path}:{line}"


def _plain(text: str) -> str:
    """Text that the program had a say in, without characters that are not seen or move the cursor."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)
