"""The routes about trust, and about the machine."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from toolcrib.project.reports import describe_machine
from toolcrib.serve.http import Answer, Problem, Routes
from toolcrib.serve.rest.services import RestRequest
from toolcrib.serve.rest.shaping import shaped

ROUTES = Routes()


class Files(Struct, kw_only=True):
    """The paths that a tool may read and write."""

    read: list[str]
    write: list[str]


class Hosts(Struct, kw_only=True):
    """The hosts that a tool may reach."""

    allow: list[str]


class PermissionsAnswer(Struct, kw_only=True, omit_defaults=True):
    """The permissions of a tool, as its manifest has them."""

    network: bool | Literal["host"] | Hosts
    fs: Files
    secrets: list[str]
    env: list[str] | UnsetType = UNSET


class WaitingSetting(Struct, kw_only=True):
    """A setting without effect until it is trusted."""

    key: str
    allows: str
    """Its effect then, in words."""


class ToolTrust(Struct, kw_only=True, rename="camel"):
    """One tool, agent or workflow of the project, as it is shown to the person who trusts it."""

    name: str
    status: str
    """`trusted`, `changed` or `new`."""
    waits: bool
    """True if it does not run before a person trusts it."""
    digest: str
    permissions: PermissionsAnswer
    touches: list[str]
    """The things that it may access, in words."""
    reasons: list[str]
    """The things that it may change or reach, in words."""
    maker: str | None
    """The agent that made it."""
    trusted_by: str | None
    last_digest: str | None
    changed: list[str]
    """Parts that have changed since it was trusted."""
    diff: str


class TrustState(Struct, kw_only=True):
    """The acceptance of the project by its user."""

    accepted: bool
    """False if none of its tools runs before `toolcrib trust`."""
    waiting: list[WaitingSetting]
    tools: list[ToolTrust]
    errors: list[Problem]
    """Tools that cannot be shown."""


class Mechanism(Struct, kw_only=True):
    """A mechanism of the kernel that was tried."""

    name: str
    ok: bool
    required: bool
    detail: str
    cost: str
    """The effect of its absence."""


class Decider(Struct, kw_only=True):
    """Decisions that programs may make without a terminal."""

    what: list[str]
    """`trust`, `approve`, `token`."""
    where: list[str]
    """The projects."""


class Enforcement(Struct, kw_only=True, omit_defaults=True):
    """The mechanism that holds each guard."""

    level: str
    fs: str | UnsetType = UNSET
    net: str | UnsetType = UNSET
    proc: str | UnsetType = UNSET
    ipc: str | UnsetType = UNSET
    privileges: str | UnsetType = UNSET
    limits: dict[str, str] | UnsetType = UNSET


class Machine(Struct, kw_only=True, rename="camel"):
    """This machine: how well it can confine tools."""

    toolcrib: str
    python: str
    kernel: str
    level: str
    """`full+cgroup`, `full`, `landlock` or `none`."""
    enforcement: Enforcement
    decide_without_terminal: list[Decider]
    mechanisms: list[Mechanism]


@ROUTES.add("GET", "/trust", "admin", {200: TrustState})
def show_trust(request: RestRequest) -> Answer:
    """Return what of the project its user trusts, and what waits.

    Trust is given on the command line: `toolcrib trust`.
    """
    project = request.services.project
    sheets, errors = project.trust.sheets()
    return Answer(
        TrustState(
            accepted=project.trust.given,
            waiting=[WaitingSetting(key=weak.name, allows=weak.allows) for weak in project.waiting],
            tools=[shaped(ToolTrust, {"waits": sheet.waits, **sheet.as_dict()}) for sheet in sheets],
            errors=[shaped(Problem, error.as_dict()) for error in errors],
        )
    )


@ROUTES.add("GET", "/doctor", "admin", {200: Machine})
def show_machine(request: RestRequest) -> Answer:  # noqa: ARG001 - the signature of a handler
    """Return how well this machine can confine tools."""
    return Answer(shaped(Machine, describe_machine()))
