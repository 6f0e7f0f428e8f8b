"""The routes about trust, and about the machine."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, convert

from toolcrib.bundles.records import Translations
from toolcrib.errors import ConflictError, DeniedError, ToolNotFound
from toolcrib.project.project import Project
from toolcrib.project.reports import describe_machine
from toolcrib.project.trust.sheets import TrustSheet
from toolcrib.serve.http import Answer, Problem, Routes
from toolcrib.serve.rest.pages import PageQuery, page_before, page_of
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, require_person
from toolcrib.spec import Tool
from toolcrib.state import user_name

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
    display_name: str
    """The name that people read; empty for a tool that is no record."""
    translations: Translations
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
    """Its manifest and its code, whole or as differences; empty if it is trusted."""


class TrustState(Struct, kw_only=True, rename="camel"):
    """The acceptance of the project by its user, with a page of its tools by name."""

    accepted: bool
    """False if none of its tools runs before `toolcrib trust`."""
    waiting: list[WaitingSetting]
    tools: list[ToolTrust]
    errors: list[Problem]
    """Tools of this page that cannot be shown."""
    next_page_token: str | None


class NewTrust(Body, kw_only=True):
    """Tools that a person trusts from now on."""

    tools: dict[str, str]
    """Full names, each with the `digest` that the person was shown."""


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


class TrustQuery(PageQuery, kw_only=True):
    """The tools to show."""

    waits: bool = False
    """Only those that wait, those of bundles and MCP servers included."""
    name: str = ""
    """Only this tool, also one of a bundle or of an MCP server."""


@ROUTES.add("GET", "/trust", "admin", {200: TrustState}, ToolNotFound, query=TrustQuery)
def show_trust(request: RestRequest) -> Answer:
    """Return what of the project its user trusts, and what waits."""
    project, query = request.services.project, request.query
    trust, question = project.trust, ("trust", query.waits)
    after = page_before(query, question) or ""
    if query.name:
        named = _named(project, query.name)
        found = [] if query.waits and trust.waits(named) is None else [named]
    elif query.waits:
        found = trust.waiting(everything=True, after=after, most=query.page_size + 1)
    else:
        found = trust.tools(after=after)
    page, token = page_of(found, query, question, lambda tool: [tool.name])
    sheets, errors = trust.sheets(page)
    return Answer(
        TrustState(
            accepted=project.trust.given,
            waiting=[WaitingSetting(key=weak.name, allows=weak.allows) for weak in project.waiting],
            tools=list(map(_shown, sheets)),
            errors=[convert(error.as_dict(), Problem) for error in errors],
            next_page_token=token,
        )
    )


def _named(project: Project, name: str) -> Tool:
    return project.files_as_tools().get(name) or project.get(name)


def _shown(sheet: TrustSheet) -> ToolTrust:
    texts = {"displayName": sheet.tool.display_name, "translations": sheet.tool.translations}
    return convert({"waits": sheet.waits, **texts, **sheet.as_dict()}, ToolTrust)


@ROUTES.add("POST", "/trust", "admin", {204: None}, DeniedError, ToolNotFound, ConflictError, body=NewTrust)
def give_trust(request: RestRequest) -> Answer:
    """Trust tools as they were shown: all of them, or none. Only the session of a person does, never a token.

    Settings are trusted on the command line: `toolcrib trust`.
    """
    require_person(request, "trust", "toolcrib trust")
    project, body = request.services.project, request.body()
    trust = project.trust
    sheets = [trust.sheet(_named(project, name)) for name in body.tools]
    for sheet, digest in zip(sheets, body.tools.values(), strict=True):
        if sheet.digest.digest != digest:
            raise ConflictError(f"{sheet.tool.name} has changed since it was shown", hint="Look at it again.")
    trust.accept(user_name(), sheets, channel="page")
    return Answer(status=204)


@ROUTES.add("GET", "/doctor", "admin", {200: Machine})
def show_machine(request: RestRequest) -> Answer:  # noqa: ARG001 - the signature of a handler
    """Return how well this machine can confine tools."""
    return Answer(convert(describe_machine(), Machine))
