"""The routes of drafts: a tool is checked and tried before it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, convert, field
from starlette.concurrency import run_in_threadpool

from toolcrib.bundles.answers import ExampleCall
from toolcrib.bundles.forms import slug_of
from toolcrib.core.context import Context
from toolcrib.errors import (
    ApprovalRequired,
    DeniedError,
    ManifestError,
    ToolcribError,
    ToolNotFound,
    UsageError,
)
from toolcrib.manifest import Diagnostic, failure, load, report
from toolcrib.project.authoring.drafts import read_draft, touches_of
from toolcrib.project.project import Project
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.admin.manifests import Findings
from toolcrib.serve.rest.calls.routes import INVOKED, REFUSALS, Grant, call_answer
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.running import Path
from toolcrib.serve.rest.services import RestRequest
from toolcrib.spec import Tool
from toolcrib.spec.naming import short_name
from toolcrib.state import user_name

ROUTES = Routes()
_WAIT_S = 1.0
"""Seconds until a call is answered with its id."""


class Draft(Body, kw_only=True):
    """A tool that is written and not stored, or to be tried as if it were: `text` or `tool`."""

    text: str | UnsetType = UNSET
    """A native manifest, or FlexiGPT's record as JSON."""
    tool: str | UnsetType = UNSET
    """The full name of a tool, as it is stored."""


class DraftCall(Draft, kw_only=True):
    """A call of a draft."""

    args: dict[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    """Run nothing; the value is what the call would do."""
    watch: bool = False
    """Observe the run: the result has the smallest permissions for it under `watched`."""
    trust: str | UnsetType = UNSET
    """`digest` of the draft: a person has seen what it may touch. Needed unless it is a dry run."""


class DraftTool(Struct, frozen=True, kw_only=True, rename="camel"):
    """The tool that a draft would be."""

    slug: str
    version: str
    kind: str
    description: str
    arg_schema: dict[str, Any]
    examples: list[ExampleCall]
    touches: list[str]
    """Everything that it may touch, in words, also by the tools that it calls."""
    digest: str | None
    """SHA-256 of all that would run. Null if something that it needs is missing."""
    unavailable_because: str | None


class TakenGrants(Body, kw_only=True):
    """Permissions for a draft."""

    text: str
    """A native manifest in YAML."""
    grants: list[Grant]
    """All that it may touch from now on, by `permission` and `value`; `why` becomes a comment."""


class DraftText(Struct, frozen=True, kw_only=True):
    """The text of a draft."""

    text: str


class CheckedDraft(Findings, kw_only=True):
    """The findings about a draft."""

    tool: DraftTool | None
    """Null if there is an error."""
    manifest: Any
    """The data of `text`. Null if there is an error, or none was sent."""


@ROUTES.add("POST", "/tools/draft", "admin", {200: CheckedDraft}, UsageError, ToolNotFound, body=Draft)
def check_draft(request: RestRequest) -> Answer:
    """Check a draft, and say what it would take and touch. Nothing is stored."""
    body: Draft = request.body()
    tool, found = _read(request, body)
    shown = None if tool is None else _shown(request.services.project, tool)
    manifest = None if tool is None or body.text is UNSET else load(body.text.encode(), "draft.yml").data
    return Answer(convert({**report(found), "tool": shown, "manifest": manifest}, CheckedDraft))


def _shown(project: Project, tool: Tool) -> DraftTool:
    touches, digest, why = list[str](), None, None
    try:
        touches, digest = touches_of(project, tool), project.fingerprint(tool).digest
    except ToolcribError as error:  # A step's tool, or a file that it runs, is missing.
        why = error.message
    return DraftTool(
        slug=slug_of(short_name(tool.name)),
        version=str(tool.version),
        kind=tool.kind,
        description=tool.description,
        arg_schema=dict(tool.input_schema),
        examples=[
            ExampleCall(description=one.description, params=one.params, expected_output=one.expected_output)
            for one in tool.examples
        ],
        touches=touches,
        digest=digest,
        unavailable_because=why,
    )


@ROUTES.add(
    "POST",
    "/tools/draft/invoke",
    "admin",
    INVOKED,
    *REFUSALS,
    *(ApprovalRequired, DeniedError, ManifestError, UsageError),
    body=DraftCall,
    located=True,
)
async def invoke_draft(request: RestRequest) -> Any:
    """Call a draft by the path of every call; only the session of a person lets it run.

    202 has the id of a call that takes longer than a second: `/tools/calls` has its events and its result.
    It ends with this server.
    """
    body: DraftCall = request.body()
    tool, found = await run_in_threadpool(_read, request, body)
    if tool is None:
        raise _wrong(found)
    if body.dry_run and body.watch:
        raise UsageError(
            "a dry run touches nothing that could be observed", hint="Leave out dryRun or watch."
        )
    ctx = Context(tool.name, body.args, request.client.caller, identity=request.client.identity, wait="block")
    ctx.dry_run = body.dry_run
    if not body.dry_run:
        if request.client.identity is not None:
            raise DeniedError("a token cannot run a draft", hint="A dry run is possible: dryRun.")
        project = request.services.project
        digest = (await run_in_threadpool(project.fingerprint, tool)).digest
        if body.trust != digest:
            raise ApprovalRequired(
                "nobody has trusted this draft as it is now",
                hint="Once a person has seen what it may touch, send its `digest` as `trust`.",
            )
        # Whoever lets it run answers each question about this call, as at an approval.
        ctx.approved_by, ctx.approval_channel, ctx.approved_digest = user_name(), "page", digest
    path = _path(request.services.project, tool, watch=body.watch)
    calls = request.services.calls
    call = calls.start(ctx, request.client, path)
    call.kept = True
    await calls.settle(call, request.http.receive, _WAIT_S)
    return call_answer(call, request.http.scope)


@ROUTES.add(
    "POST", "/tools/draft/permissions", "admin", {200: DraftText}, UsageError, ManifestError, body=TakenGrants
)
def permit_draft(request: RestRequest) -> Answer:
    """Return the text of a draft with these permissions in place of its own. Nothing is stored."""
    from toolcrib.executors.trace.block import Block, Line
    from toolcrib.project.trace import applied

    body: TakenGrants = request.body()
    tool, found = read_draft(body.text)
    if tool is None:
        raise _wrong(found)
    block = Block.taken([Line(one.permission, one.value, " ".join(one.why.split())) for one in body.grants])
    return Answer(DraftText(text=applied(block, load(body.text.encode(), "draft.yml"), tool)))


def _read(request: RestRequest, body: Draft) -> tuple[Tool | None, Sequence[Diagnostic]]:
    if (body.text is UNSET) == (body.tool is UNSET):
        raise UsageError("a draft is a text or the name of a tool", hint="Send `text` or `tool`.")
    if body.text is UNSET:
        return request.services.project.get(str(body.tool)), ()
    return read_draft(body.text)


def _path(project: Project, tool: Tool, *, watch: bool) -> Path:
    if not watch:
        return project.catalog.path_of_draft(tool).invoke
    from toolcrib.project.trace import Trace

    return Trace.of(tool).path(project)


def _wrong(found: Sequence[Diagnostic]) -> ManifestError:
    errors = [one for one in found if one.is_error]
    return failure(errors) if errors else ManifestError("the text is not one tool")
