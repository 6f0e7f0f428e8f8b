"""The routes about the state of a project: secrets, policy, trust, the machine."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field
from starlette.concurrency import run_in_threadpool

from toolcrib.errors import InvalidInput, ManifestError, NotFoundError, ToolcribError, ToolNotFound
from toolcrib.guard import Effect, Tokens
from toolcrib.project.reports import describe_machine, explain_call, secret_needs
from toolcrib.serve.http import Answer, Problem, Routes
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest
from toolcrib.serve.rest.shaping import shaped

ROUTES = Routes()


class UsedBy(Struct, kw_only=True):
    """A tool that declares a secret."""

    name: str
    required: bool
    """True if it cannot run without the secret."""


class SecretState(Struct, kw_only=True):
    """One secret that tools declare. Its value is never shown."""

    name: str
    state: Literal["resolved", "missing", "unreadable"]
    source: str | None
    reason: str | None
    hint: str | None
    short: bool
    """True for fewer than 8 characters: such a value can be guessed."""
    tools: list[UsedBy]
    hosts: list[str]
    """The hosts that HTTP tools may send it to."""


class Secrets(Struct, kw_only=True):
    """Every secret that tools declare."""

    ok: bool
    """False if a tool cannot run without one of them."""
    secrets: list[SecretState]


class PolicyRule(Struct, kw_only=True, omit_defaults=True):
    """A rule, as it is in the settings. It matches a call if all of its conditions do."""

    name: str
    effect: Effect
    tools: list[str] | UnsetType = UNSET
    """Patterns of names, as are `bundles`, `tags` and `callers`."""
    bundles: list[str] | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    annotations: dict[str, bool] | UnsetType = UNSET
    callers: list[str] | UnsetType = UNSET
    when: dict[str, Any] | UnsetType = UNSET
    """JSON Schema of the arguments."""
    reason: str | UnsetType = UNSET


class PolicyState(Struct, kw_only=True, rename="camel"):
    """The policy in force."""

    default: Effect
    """The decision where no rule matches."""
    self_approval: bool
    rules: list[PolicyRule]
    """In their order. The first that matches decides."""


class Explain(Body, kw_only=True):
    """A call to explain."""

    tool: str
    caller: str = "cli"
    """`cli`, `local`, `mcp:CLIENT` or `token:NAME`."""
    client: str | UnsetType = UNSET
    """The client that uses the token: `mcp:CLIENT`."""
    arguments: dict[str, Any] = field(default_factory=dict)


class Step(Struct, kw_only=True):
    """A rule that was looked at."""

    rule: str
    effect: Effect
    matched: bool
    condition: str | None
    """The condition that the call does not meet."""
    why: str


class Explanation(Struct, kw_only=True):
    """The decision about a call. Nothing has run."""

    tool: str
    bundle: str
    caller: str
    arguments: dict[str, Any] | None
    """Null if some are required and none were given: then this is the strictest decision possible."""
    effect: Effect
    rule: str | None
    why: str
    listed: bool
    """True if this caller sees the tool in lists."""
    steps: list[Step]


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


@ROUTES.add("GET", "/secrets", "admin", {200: Secrets})
async def list_secrets(request: RestRequest) -> Answer:
    """List every secret that a tool declares, and its state."""
    services = request.services
    for name in services.project.bundles.names():
        with suppress(ToolcribError):
            services.project.get(name)
        await asyncio.sleep(0)  # Other requests continue while many tools are made ready.
    tools = services.project.catalog.every()
    needs = await run_in_threadpool(secret_needs, tools, services.project.secrets)
    found = [shaped(SecretState, need.as_dict()) for need in needs]
    return Answer(Secrets(ok=not any(need.blocks for need in needs), secrets=found))


@ROUTES.add("GET", "/policy", "admin", {200: PolicyState})
async def show_policy(request: RestRequest) -> Answer:
    """Return the rules of the policy, in their order."""
    policy = request.services.project.config.policy
    rules = [shaped(PolicyRule, rule.as_dict()) for rule in policy.rules]
    return Answer(PolicyState(default=policy.default, self_approval=policy.self_approval, rules=rules))


@ROUTES.add(
    "POST",
    "/policy/explain",
    "admin",
    {200: Explanation},
    InvalidInput,
    ManifestError,
    NotFoundError,
    ToolNotFound,
    body=Explain,
)
async def explain_policy(request: RestRequest) -> Answer:
    """Explain the decision about a call. Nothing runs."""
    services = request.services
    body: Explain = request.body()
    identity = None
    if body.caller.startswith("token:"):
        identity = Tokens(services.project.vault).get(body.caller.removeprefix("token:")).caller
        identity = replace(identity, client="" if body.client is UNSET else body.client)
    tool = services.project.get(body.tool)
    explained = explain_call(services.project, tool, body.arguments, body.caller, identity)
    return Answer(shaped(Explanation, explained))


@ROUTES.add("GET", "/trust", "admin", {200: TrustState})
async def show_trust(request: RestRequest) -> Answer:
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
