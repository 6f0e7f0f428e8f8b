"""The routes that check, convert and import manifests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from toolcrib.errors import (
    ConflictError,
    HostNotAllowed,
    HttpFailed,
    InvalidInput,
    ManifestError,
    NotFoundError,
    TimedOut,
    Violation,
)
from toolcrib.manifest import DIALECTS, Diagnostic, check_tool, diagnostics_of, dump, entries, report
from toolcrib.manifest.convert import convert, read_all, targets
from toolcrib.manifest.curl import read_curl
from toolcrib.manifest.openapi import (
    fetch_document,
    import_document,
    new_manifests,
    read_document,
    write_manifests,
)
from toolcrib.project.authoring.lint import project_findings
from toolcrib.project.root import require_inside
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, noting_makers
from toolcrib.spec.naming import suggestion

ROUTES = Routes()
_FILE = Annotated[str, Meta(min_length=1, max_length=256)]


class Text(Body, kw_only=True):
    """The text of a file of tools."""

    text: str
    name: _FILE = "manifest.yml"
    """The name of the file, as findings show it. It helps to detect the format."""
    format: str | UnsetType = UNSET
    """`native`, `flexigpt`, `vega`, `sympozium`, … (default: detected)."""


class Convert(Text, kw_only=True):
    """A file of tools to convert."""

    to: str
    """`native`, `flexigpt` or `sympozium`."""
    only: str | UnsetType = UNSET
    """The name of one tool."""


class Finding(Struct, kw_only=True, omit_defaults=True):
    """One finding, with its place in the file."""

    path: str
    line: int
    column: int
    severity: Literal["error", "warning"]
    rule: str
    message: str
    hint: str | None
    where: str
    """The place as JSONPath."""
    source: str
    """The line."""
    cut: int | UnsetType = UNSET
    """Characters that are left out before `source`."""


class Findings(Struct, kw_only=True):
    """The findings of a check."""

    diagnostics: list[Finding]
    errors: int
    warnings: int


class LossAnswer(Struct, kw_only=True, omit_defaults=True):
    """A fact about a tool that the other format does not keep."""

    path: str
    was: Any = UNSET
    """Left out if there was none."""
    becomes: Any = UNSET
    """Left out if there is none."""
    means: str


class ConvertedTool(Struct, kw_only=True):
    """One tool in another format."""

    name: str
    text: str
    losses: list[LossAnswer]


class Converted(Struct, kw_only=True):
    """Tools in another format."""

    to: str
    tools: list[ConvertedTool]


class ImportOpenApi(Body, kw_only=True):
    """An OpenAPI document to make tools of."""

    text: str = ""
    """JSON or YAML. Its references must be in it."""
    url: str | UnsetType = UNSET
    """Its address, in place of `text`."""
    prefix: str = ""
    """Begins the name of every tool."""
    only: tuple[str, ...] = ()
    """Patterns of names, such as `get_*`."""
    server: str | UnsetType = UNSET
    """Call this server instead of the document's."""
    slim: Annotated[int, Meta(ge=200)] = 100_000
    """The largest size of a schema in bytes. What is left out is reported."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Security scheme to the name of a secret."""
    write: bool = False
    """Write the manifests into the project; otherwise only report."""
    replace: bool = False
    """Replace the manifests of existing tools."""


class Operation(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One operation of the document."""

    method: str
    path: str
    operation_id: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    """The name of its tool."""
    reason: str | UnsetType = UNSET
    """The reason why there is none."""
    notes: list[str] | UnsetType = UNSET


class LeftOut(Struct, kw_only=True):
    """A part of a schema that was left out."""

    at: str
    lost: str


class ImportedTools(Struct, kw_only=True):
    """The report of an import."""

    source: str
    title: str
    openapi: str
    operations: list[Operation]
    tools: int
    skipped: int
    reasons: dict[str, int]
    losses: list[LeftOut]
    notes: list[str]
    written: list[str]
    """Paths of the manifests."""


class Curl(Body, kw_only=True):
    """A command of curl."""

    text: str
    """The command, as a shell takes it."""


class ImportedCurl(Struct, kw_only=True):
    """The tool that sends the same request."""

    manifest: str
    """YAML. Secret values are left out of it."""
    notes: list[str]


@ROUTES.add("GET", "/lint", "admin", {200: Findings})
def lint_project(request: RestRequest) -> Answer:
    """Check the project: its settings, manifests, sources and agents."""
    return Answer(msgspec.convert(report(project_findings(request.services.project.place)), Findings))


@ROUTES.add("POST", "/lint", "read", {200: Findings}, body=Text)
def lint_text(request: RestRequest) -> Answer:
    """Check the text of a file of tools. Nothing is stored."""
    body: Text = request.body()
    found: list[Diagnostic] = []
    try:
        for entry in entries(body.name, body.text.encode(), _format(body)):
            found += entry.found
            if entry.tool is not None:
                found += check_tool(entry.tool, entry.document)
    except ManifestError as error:
        found += diagnostics_of(error)
    found.sort(key=lambda one: (one.line, one.column))
    return Answer(msgspec.convert(report(found), Findings))


@ROUTES.add("POST", "/convert", "read", {200: Converted}, ManifestError, NotFoundError, body=Convert)
def convert_text(request: RestRequest) -> Answer:
    """Convert the tools of a file to another format, with the losses. Nothing is stored."""
    body: Convert = request.body()
    tools = read_all(body.name, body.text.encode(), _format(body))
    tools = [tool for tool in tools if body.only is UNSET or tool.name == body.only]
    if not tools:
        raise NotFoundError("there is no such tool in the text")
    to = _known("to", body.to, targets())
    written = [convert(tool, to) for tool in tools]
    made = [
        ConvertedTool(
            name=one.tool.name,
            text=one.text.decode(),
            losses=[msgspec.convert(loss.as_dict(), LossAnswer) for loss in one.losses],
        )
        for one in written
    ]
    return Answer(Converted(to=body.to, tools=made))


@ROUTES.add(
    "POST",
    "/import/openapi",
    "admin",
    {200: ImportedTools},
    *(ManifestError, ConflictError, HttpFailed, HostNotAllowed, TimedOut),
    body=ImportOpenApi,
)
def import_openapi(request: RestRequest) -> Answer:
    """Make tools of the operations of an OpenAPI document: report them, or write their manifests."""
    body: ImportOpenApi = request.body()
    document = (
        read_document(body.text.encode(), "openapi")
        if body.url is UNSET
        else asyncio.run(fetch_document(body.url))
    )
    found = import_document(
        document,
        server=None if body.server is UNSET else body.server,
        prefix=body.prefix,
        only=body.only,
        slim=body.slim,
        secrets=body.secrets,
    )
    drafts = new_manifests(found, "openapi")
    written = []
    if body.write:
        place = request.services.project.place
        place.require_folder()
        tools = require_inside(place.root, place.tools)
        with noting_makers(request, {one.name: one.text for one in drafts}):
            written = write_manifests(drafts, tools, replace=body.replace)
    return Answer(
        msgspec.convert({**found.as_json(), "written": [str(path) for path in written]}, ImportedTools)
    )


@ROUTES.add("POST", "/import/curl", "read", {200: ImportedCurl}, ManifestError, body=Curl)
def import_curl(request: RestRequest) -> Answer:
    """Make the manifest of an HTTP tool of a command of curl. Nothing is stored."""
    body: Curl = request.body()
    manifest, notes = read_curl(body.text)
    return Answer(ImportedCurl(manifest=dump(manifest), notes=notes))


def _format(body: Text) -> str | None:
    return None if body.format is UNSET else _known("format", body.format, DIALECTS.names())


def _known(field: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise InvalidInput(
            f"there is no format {name!r}",
            hint=suggestion(name, known, f"Known: {', '.join(known)}."),
            violations=[Violation(f"$.{field}", "is not the name of a format")],
        )
    return name
