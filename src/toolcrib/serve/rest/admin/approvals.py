"""The routes of calls that wait for a person, and of the decisions that are in force."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType, convert

from toolcrib.bundles.records import Moment, Translations, Uuid
from toolcrib.errors import ConflictError, DeniedError, InvalidInput, NotFoundError, UsageError
from toolcrib.guard import Approval, Grant
from toolcrib.project.control.approvals import ApprovalService
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.pages import PageQuery, page_before, page_of
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, covers, shown
from toolcrib.spec import Caller
from toolcrib.state import user_name

ROUTES = Routes()
_PATH = "/approvals"
_ONE = f"{_PATH}/{{approvalId}}"
_REFUSED = (NotFoundError, ConflictError, DeniedError, UsageError)
_CHANNEL = "page"
_Status = Literal["pending", "approved", "denied", "used", "expired", "void"]
_Scope = Literal["once", "session", "arguments", "rule"]
_Listed = TypeVar("_Listed")


class ApprovalsQuery(PageQuery, kw_only=True):
    """The query of a list of approvals."""

    status: _Status | UnsetType = UNSET


class ApprovalAnswer(Struct, kw_only=True, frozen=True, rename="camel"):
    """A call that waits for a person, or the decision about it. Secrets are masked."""

    id: Uuid
    status: _Status
    tool: str
    bundle: str
    tool_digest: str
    arguments: dict[str, Any]
    arguments_digest: str
    caller: str
    owner: str
    token: str | None
    """Name of the caller's token."""
    session_id: str | None
    rule: str
    """The rule that asks; empty if scope `rule` is not possible."""
    reason: str
    touches: list[str]
    """The things that the call may access, in words."""
    call_id: Uuid | None
    asked_at: Moment
    expires_at: Moment
    scope: _Scope | None
    decided_by: str | None
    decided_at: Moment | None
    edited: dict[str, Any] | None
    """Arguments that run instead, if the person who approved has changed them."""
    note: str
    seal: str
    """Digest of all that is decided about. Send it with the decision."""


class TrustedBy(Struct, kw_only=True, frozen=True, rename="camel"):
    """The person who trusted a tool last."""

    by: str
    at: Moment


class LastApproved(Struct, kw_only=True, frozen=True):
    """The call of a tool that was approved last."""

    arguments: dict[str, Any]
    """As they ran."""
    by: str
    at: Moment


class Facts(Struct, kw_only=True, frozen=True, rename="camel"):
    """The facts of a tool that a person should know before a decision."""

    description: str
    translations: Translations = UNSET
    would: dict[str, Any] | None
    """The command line, request or other block as it would run; null where that cannot be said."""
    made_by: str
    trusted: TrustedBy | None
    ran: int
    """The number of its calls, up to 1,000."""
    last_ran: Moment | None
    reason_by: str | None
    """The agent that wrote the reason."""
    doubts: list[str]
    """Doubts about a reason that an agent wrote."""
    untrusted: list[str]
    """Lines of the manifest and the code that nobody has trusted."""
    last_approved: LastApproved | None
    """To compare this call with; null if none of the last 500 approvals is of this tool."""


class ApprovalDetails(ApprovalAnswer, kw_only=True, frozen=True, rename="camel"):
    """One approval, with what else a person should know before a decision."""

    facts: Facts | None
    """Null if the tool is gone."""


class ApprovalPage(Struct, kw_only=True, rename="camel"):
    """A page of approvals, the newest first."""

    approvals: list[ApprovalAnswer]
    next_page_token: str | None


class GrantAnswer(Struct, kw_only=True, frozen=True, rename="camel"):
    """A decision about calls. While it is in force, they run, or are refused, without another question."""

    id: Uuid
    """The id of the approval that it decides."""
    answer: Literal["approved", "denied"]
    state: Literal["live", "revoked"]
    scope: _Scope
    tool: str
    bundle: str
    tool_digest: str
    arguments_digest: str
    caller: str
    session_id: str | None
    rule: str
    decided_by: str
    decided_at: Moment
    ends_at: Moment | None
    """Null for one that lasts until it is revoked or the tool changes."""
    note: str


class GrantPage(Struct, kw_only=True, rename="camel"):
    """A page of decisions, the newest first."""

    grants: list[GrantAnswer]
    next_page_token: str | None


class Approve(Body, kw_only=True):
    """A decision to let a call run."""

    seal: str
    """The seal of the approval as it was shown: a decision about something else is refused."""
    scope: _Scope = "once"
    """`once`; these arguments in this `session`, or always (`arguments`); all that this `rule` asks for."""
    arguments: dict[str, Any] | UnsetType = UNSET
    """Run with these arguments instead."""
    note: str = ""


class Deny(Body, kw_only=True):
    """A decision to refuse a call."""

    seal: str
    """As in `Approve`."""
    note: str = ""
    """The reason. The caller gets it."""


@ROUTES.add("GET", _PATH, "approve", {200: ApprovalPage}, NotFoundError, query=ApprovalsQuery)
def list_approvals(request: RestRequest) -> Answer:
    """List calls that wait for a person, and decisions, the newest first.

    A token sees those of the tools that it covers.
    """
    query: ApprovalsQuery = request.query
    status = None if query.status is UNSET else query.status
    service = _service(request)
    page, token = _page(
        request,
        ("approvals", status),
        lambda count, before: service.list(status, count, before=before),
        lambda sheet: sheet.approval,
    )
    return Answer(
        ApprovalPage(approvals=[convert(one.document, ApprovalAnswer) for one in page], next_page_token=token)
    )


def _page(
    request: RestRequest,
    question: tuple[object, ...],
    fetch: Callable[[int, str | None], Sequence[_Listed]],
    of: Callable[[_Listed], Approval | Grant],
) -> tuple[list[_Listed], str | None]:
    """Return what the client may see of the next page, and the token of the page after it."""
    query: PageQuery = request.query
    before = page_before(query, question)
    found: list[_Listed] = []
    # Those that a token may not see are left out, so one fetch may not fill the page.
    while len(found) <= query.page_size:
        listed = fetch(query.page_size + 1, before)
        found += [one for one in listed if covers(request, of(one).tool)]
        if len(listed) <= query.page_size:
            break
        before = of(listed[-1]).id
    return page_of(found, query, question, lambda one: [of(one).id])


@ROUTES.add("GET", _ONE, "approve", {200: ApprovalDetails}, NotFoundError)
def show_approval(request: RestRequest) -> Answer:
    """Return one call that waits for a person, or the decision about it."""
    service = _service(request)
    sheet = service.show(request.path["approvalId"])
    # As if there were none: a token does not learn of calls of tools that it does not cover.
    if not covers(request, sheet.approval.tool):
        raise NotFoundError(f"there is no approval {request.path['approvalId']!r}")
    facts = service.facts(sheet)
    facts |= {"madeBy": shown(request, made_by)} if (made_by := facts.get("madeBy")) else {}
    return Answer(convert({**sheet.document, "facts": facts or None}, ApprovalDetails))


@ROUTES.add(
    "POST", f"{_ONE}/approve", "approve", {200: ApprovalAnswer}, *_REFUSED, InvalidInput, body=Approve
)
def approve_call(request: RestRequest) -> Answer:
    """Approve a call: it runs now if its caller still waits, else when it is made again.

    A token never decides on its own calls, nor on those of its owner.
    """
    body: Approve = request.body()
    by, decider = _decider(request)
    sheet = _service(request).approve(
        request.path["approvalId"],
        by,
        body.scope,
        None if body.arguments is UNSET else body.arguments,
        body.note,
        seal=body.seal,
        decider=decider,
        channel=_CHANNEL,
    )
    return Answer(convert(sheet.document, ApprovalAnswer))


@ROUTES.add("POST", f"{_ONE}/deny", "approve", {200: ApprovalAnswer}, *_REFUSED, body=Deny)
def deny_call(request: RestRequest) -> Answer:
    """Deny a call. Its caller gets the note."""
    body: Deny = request.body()
    by, decider = _decider(request)
    sheet = _service(request).deny(
        request.path["approvalId"], by, body.note, seal=body.seal, decider=decider, channel=_CHANNEL
    )
    return Answer(convert(sheet.document, ApprovalAnswer))


@ROUTES.add("GET", "/grants", "approve", {200: GrantPage}, query=PageQuery)
def list_grants(request: RestRequest) -> Answer:
    """List the decisions that are in force, the newest first.

    A token sees those about the tools that it covers.
    """
    service = _service(request)
    page, token = _page(request, ("grants",), service.grants, lambda grant: grant)
    return Answer(
        GrantPage(grants=[convert(one.as_dict(), GrantAnswer) for one in page], next_page_token=token)
    )


@ROUTES.add("DELETE", "/grants/{approvalId}", "approve", {200: GrantAnswer}, NotFoundError, ConflictError)
def revoke_grant(request: RestRequest) -> Answer:
    """Revoke a decision: the next such call asks again.

    A token revokes approvals only: a denial is the person's to take back.
    """
    service, id_ = _service(request), request.path["approvalId"]
    grant = service.approvals.grant(id_)
    if not covers(request, grant.tool):
        raise NotFoundError(f"no valid decision has the id {id_!r}")
    by, decider = _decider(request)
    # Else an agent with a token could make way for a call that a person has refused.
    if decider is not None and grant.answer == "denied":
        raise DeniedError("a token cannot revoke a denial", hint="A person can: toolcrib approvals revoke ID")
    revoked = service.revoke(id_, by, channel=_CHANNEL)
    return Answer(convert(revoked.as_dict(), GrantAnswer))


def _service(request: RestRequest) -> ApprovalService:
    return request.services.project.approval_service


def _decider(request: RestRequest) -> tuple[str, Caller | None]:
    """Return who decides: the person at the session, or a token for its owner."""
    identity = request.client.identity
    return (user_name(), None) if identity is None else (identity.owner or identity.name, identity)
