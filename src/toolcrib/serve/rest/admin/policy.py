"""The routes of the policy: its rules, and what they decide."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, convert, field

from toolcrib.bundles.records import Moment
from toolcrib.errors import (
    AuditUnavailable,
    ConfigError,
    ConflictError,
    DeniedError,
    InvalidInput,
    ManifestError,
    NotFoundError,
    NotTrusted,
    ToolNotFound,
    UsageError,
)
from toolcrib.guard import Effect, Tokens
from toolcrib.project.new_rule import NewRule, rehearse, rule_of
from toolcrib.project.reports import explain_call
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, location, require_person

ROUTES = Routes()


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
    matched: bool | None
    """Null if the arguments decide and are not known."""
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


class WrittenRule(Body, kw_only=True):
    """A rule to add."""

    rule: Annotated[dict[str, Any], Meta(examples=[{"effect": "ask", "tools": ["repo_*"]}])]
    """As in the settings; it counts as the last one."""


class TriedRule(WrittenRule, kw_only=True):
    """A rule to try."""

    days: Annotated[int, Meta(ge=1, le=366)] = 7
    """Days of calls to look at."""


class Effects(Struct, kw_only=True):
    """Numbers of calls by the decision about them."""

    allow: int
    ask: int
    deny: int


class RehearsedCall(Struct, kw_only=True, rename="camel"):
    """Calls of one caller with the same arguments, and the decisions about them."""

    tool: str
    caller: str
    arguments: dict[str, Any] | None
    """Null if the log does not have them whole: then the decisions are the strictest possible."""
    times: int
    last: Moment
    now: Effect
    """The decision of the policy in force."""
    then: Effect
    """The decision with the rule."""


class Rehearsal(Struct, kw_only=True):
    """The decisions about the calls of the audit log, if a rule had been in force."""

    since: Moment
    calls: int
    gone: int
    """Calls of tools that there are no longer: nothing can be said about them."""
    now: Effects
    """All calls by the decision of the policy in force."""
    then: Effects
    """All calls by the decision with the rule."""
    matching: list[RehearsedCall]
    """The calls that the rule matches, the latest first."""


class RuleAdded(Struct, kw_only=True, rename="camel"):
    """A rule that was added to the settings."""

    path: str
    """The file of the settings."""
    in_force: bool
    """False if something in the settings waits for trust, and the rule with it."""


@ROUTES.add("GET", "/policy", "admin", {200: PolicyState})
async def show_policy(request: RestRequest) -> Answer:
    """Return the rules of the policy, in their order."""
    policy = request.services.project.config.policy
    rules = [convert(rule.as_dict(), PolicyRule) for rule in policy.rules]
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
    return Answer(convert(explained, Explanation))


@ROUTES.add(
    "POST",
    "/policy/rules",
    "admin",
    {201: RuleAdded},
    ConfigError,
    UsageError,
    DeniedError,
    ConflictError,
    NotTrusted,
    body=WrittenRule,
    located=True,
)
def add_rule(request: RestRequest) -> Answer:
    """Add a rule to the settings, where it counts at once. Only the session of a person does, never a token.

    Settings stay trusted with it unless something in them waits for trust. Other servers and workers of the
    project take it when they start.
    """
    require_person(request, "trust", "toolcrib policy add EFFECT TOOL")
    body: WrittenRule = request.body()
    project = request.services.project
    new = NewRule.of(project.place, body.rule)
    in_force = new.add(project, "page")
    added = RuleAdded(path=str(new.path), in_force=in_force)
    return Answer(added, status=201, headers=location(request, "/policy"))


@ROUTES.add("POST", "/policy/try", "admin", {200: Rehearsal}, ConfigError, AuditUnavailable, body=TriedRule)
def try_rule(request: RestRequest) -> Answer:
    """Decide again about the calls of the audit log, with and without a new rule. Nothing runs or changes.

    Secrets are masked in the log, so a rule about their values matches none.
    """
    body: TriedRule = request.body()
    since = datetime.now(UTC) - timedelta(days=body.days)
    try:
        found = rehearse(request.services.project, rule_of(body.rule), since)
    except OSError as error:
        raise AuditUnavailable(f"the audit log cannot be read: {error.strerror}") from None
    return Answer(convert(found, Rehearsal))
