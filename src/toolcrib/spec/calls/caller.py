"""The caller of a tool, and its rights. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, get_args

from toolcrib.errors import DeniedError
from toolcrib.spec.naming import fits
from toolcrib.spec.record import record

Scope = Literal["read", "invoke", "approve", "admin"]
OWN_CALLERS = ("local", "cli")
"""This machine's own user, in Python and on the command line."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""`read`: list and show. `invoke`: call. `approve`: decide on waiting calls. `admin`: all, and settings."""
_TEXTS = ("name", "owner", "client", "digest")


@record
class Caller:
    """A caller that has shown a token."""

    name: str
    """Unique among the project's tokens, also those of earlier: `NAME#2` is the second one of a name."""
    scopes: frozenset[Scope]
    tools: tuple[str, ...] | None = None
    """Names it may see and call, with `*` and `?` as wildcards; None for all."""
    owner: str = ""
    """The person it acts for. They may not approve its calls, unless the project allows that."""
    client: str = field(default="", compare=False)
    """The client that uses the token, as `Call.caller` names one without a token: `mcp:<client name>`."""
    digest: str = field(default="", repr=False)
    """SHA-256 of the token, to verify each call; empty for a caller that the program itself vouches for."""

    @property
    def given_name(self) -> str:
        """The name that a person gave the token."""
        return self.name.partition("#")[0]

    def may(self, scope: Scope) -> bool:
        """Return True if it has this right. `admin` has all rights, and `invoke` includes `read`."""
        own = self.scopes
        return scope in own or "admin" in own or (scope == "read" and "invoke" in own)

    def covers(self, tool: str) -> bool:
        """Return True if this tool is among those it may see and call."""
        return self.tools is None or any(fits(pattern, tool) for pattern in self.tools)

    def require_made(self, what: str, caller: str) -> None:
        """Raise `DeniedError` for a call or run of another caller: run again, it would act as that one."""
        if caller != f"token:{self.name}":
            raise DeniedError(
                f"{what} is one of {caller}, and a token runs only its own again",
                hint="A person can retry it. A run can be forked: the new one is yours.",
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, to be kept with a call that runs later. It has no token."""
        tools = None if self.tools is None else list(self.tools)
        return {
            **{name: getattr(self, name) for name in _TEXTS},
            "scopes": sorted(self.scopes),
            "tools": tools,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Caller:
        """Return the caller that `as_dict` has written. Its token is verified again at each call."""
        tools = None if data["tools"] is None else tuple(data["tools"])
        return cls(scopes=frozenset(data["scopes"]), tools=tools, **{name: data[name] for name in _TEXTS})


def seen_by(caller: str, identity: Caller | None) -> str | None:
    """Return the caller whose calls, runs and sessions this one may see; None for those of all callers."""
    return None if identity is None or identity.may("admin") else caller
