"""The routes of single tools in bundles."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from toolcrib.bundles import (
    RecordedChange,
    Revision,
    ToolBody,
    ToolRecord,
    keep_translations,
    read_manifest,
    require_one_name,
)
from toolcrib.bundles.answers import ToolAnswer
from toolcrib.bundles.forms import PutTool, native_tool, require_usable
from toolcrib.bundles.records import check_slug, check_tool_body, check_version
from toolcrib.errors import (
    AuditUnavailable,
    BundleDisabled,
    BundleFull,
    ConflictError,
    ManifestError,
    MissingField,
    ToolNotFound,
)
from toolcrib.serve.http import Answer, Routes, check_preconditions
from toolcrib.serve.rest.bundles.bundles import read_switch
from toolcrib.serve.rest.once import once
from toolcrib.serve.rest.records import (
    TOOL_PUT,
    GoTool,
    HttpTool,
    NativeTool,
    Switch,
    require_same,
    tool_body,
)
from toolcrib.serve.rest.refusals import CHANGE, NO_BUNDLE, NO_TOOL, PUT
from toolcrib.serve.rest.services import RestRequest, Services, covers, covers_all, noting_makers

ROUTES = Routes()
_YAML = "application/yaml"
_MANIFEST = """\
name: count_lines
description: Count the lines of a file.
kind: command
version: 1
inputs:
  schema:
    type: object
    properties: {path: {type: string, description: The file.}}
    required: [path]
exec: {command: {entrypoint: wc, args: [-l, "${path}"]}}
permissions: {fs: {read: [.]}}
"""
_TOOL = "/tools/bundles/{bundleID}/tools/{toolSlug}"
_ONE = f"{_TOOL}/version/{{v}}"


class Versions(Struct, frozen=True, kw_only=True):
    """Every version of a tool, the newest first."""

    versions: list[ToolAnswer]


class Revisions(Struct, frozen=True, kw_only=True):
    """A version of a tool as it was before each change."""

    revisions: list[Revision]


class History(Struct, frozen=True, kw_only=True):
    """The changes of a tool."""

    changes: list[RecordedChange]


@ROUTES.add("GET", _ONE, "read", {200: ToolAnswer, 304: None}, *NO_TOOL)
def get_tool(request: RestRequest) -> Answer:
    """Return one version of a tool."""
    record = request.services.store.tool(*named_tool(request))
    return Answer(_answer(request, record), etag=record)


@ROUTES.add("GET", f"{_TOOL}/versions", "read", {200: Versions}, *NO_TOOL)
def list_versions(request: RestRequest) -> Answer:
    """List every version of a tool in a bundle, the newest first."""
    bundle_id, slug = request.path["bundleID"], request.path["toolSlug"]
    services = request.services
    found = [
        _answer(request, one)
        for one in _versions(services, bundle_id, slug)
        if _covers(request, bundle_id, slug, one.version)
    ]
    if not found:
        raise ToolNotFound(f"the bundle {bundle_id} has no tool {slug!r}")
    return Answer(Versions(versions=found))


def _versions(services: Services, bundle_id: str, slug: str) -> list[ToolRecord]:
    """Return every version of a tool, the newest first, by the list in memory: bundles may be large."""
    services.store.bundle(bundle_id)
    stored = services.project.bundles.stored
    with stored.lock:
        return stored.listing.versions(slug, [bundle_id])


@ROUTES.add("GET", f"{_ONE}/revisions", "read", {200: Revisions}, *NO_TOOL)
def list_revisions(request: RestRequest) -> Answer:
    """List a version of a tool as it was before each change, the latest change first; a deleted one too.

    At most 50 are kept.
    """
    return Answer(Revisions(revisions=request.services.store.revisions(*named_tool(request))))


@ROUTES.add("GET", f"{_TOOL}/history", "read", {200: History}, *NO_TOOL, AuditUnavailable)
def list_changes(request: RestRequest) -> Answer:
    """List who changed a tool in any of its versions, and when: the latest 256 changes, the newest first."""
    bundle_id, slug = request.path["bundleID"], request.path["toolSlug"]
    try:
        found = request.services.store.history(bundle_id, slug)
    except OSError as error:
        raise AuditUnavailable(f"the log of the bundles cannot be read: {error.strerror}") from None
    seen = [one for one in found if _covers(request, bundle_id, slug, one.version)]
    present = _versions(request.services, bundle_id, slug)
    if not seen and not any(_covers(request, bundle_id, slug, one.version) for one in present):
        raise ToolNotFound(f"the bundle {bundle_id} has no tool {slug!r}")
    return Answer(History(changes=seen))


@ROUTES.add(
    "PUT",
    _ONE,
    "admin",
    {201: ToolAnswer},
    *NO_BUNDLE,
    *PUT,
    *(ManifestError, ConflictError, BundleDisabled, BundleFull),
    body=TOOL_PUT,
    raw={_YAML: ("A native manifest, whose name gives the slug.", _MANIFEST)},
    headers=("Idempotency-Key",),
)
@once
def put_tool(request: RestRequest) -> Answer:
    """Create a version of a tool, from a record or from a native manifest. One that exists stays as it is.

    From a manifest it has the `translations` of the newest version.
    """
    bundle_id, slug, version = named_tool(request)
    check_slug(slug)
    check_version(version)
    check_preconditions(request.http.headers, None)  # A version that exists is never replaced.
    is_manifest = request.media_type == _YAML
    if is_manifest:
        body = read_manifest(request.data, f"{slug}.yml", slug=slug, version=version).body
    else:
        body = _from_record(request.body(), bundle_id, slug, version)
    if body.type == "native":
        versions = _versions(request.services, bundle_id, slug)
        require_one_name(slug, body, versions)
        body = keep_translations(body, versions) if is_manifest else body
    text = msgspec.json.encode(body, order="deterministic")
    # By a token, it counts as made by an agent: a person has to see it before it runs.
    with noting_makers(request, {request.services.name(bundle_id, slug, version): text}):
        made = request.services.store_for(request).put_tool(bundle_id, slug, version, body)
    return Answer(_answer(request, made), 201, etag=made)


def _from_record(put: GoTool | HttpTool | NativeTool, bundle_id: str, slug: str, version: str) -> ToolBody:
    require_same(put, bundle_id=bundle_id, slug=slug, version=version)
    if isinstance(put, NativeTool):
        return native_tool(put, put.impl.manifest, slug, version).body
    body = tool_body(put)
    check_tool_body(body)
    require_usable(PutTool(slug, version, body))
    return body


@ROUTES.add(
    "PATCH", _ONE, "admin", {200: ToolAnswer}, *NO_TOOL, *CHANGE, MissingField, BundleDisabled, body=Switch
)
def patch_tool(request: RestRequest) -> Answer:
    """Turn a version of a tool on or off."""
    services = request.services
    named = named_tool(request)
    enabled = read_switch(request, named[0])
    tool = services.store_for(request).switch_tool(*named, enabled=enabled, check=_check(request))
    return Answer(_answer(request, tool), etag=tool)


@ROUTES.add("DELETE", _ONE, "admin", {204: None}, *NO_TOOL, *CHANGE)
def delete_tool(request: RestRequest) -> Answer:
    """Remove a version of a tool for good."""
    request.services.store_for(request).delete_tool(*named_tool(request), _check(request))
    return Answer(status=204)


def named_tool(request: RestRequest) -> tuple[str, str, str]:
    """Return bundle, slug and version of the path. Raises ToolNotFound if the token covers no such tool."""
    path = request.path
    bundle_id, slug, version = path["bundleID"], path["toolSlug"], path["v"]
    # As if there were none: a token does not learn of tools that it does not cover.
    if not _covers(request, bundle_id, slug, version):
        raise ToolNotFound(f"the bundle {bundle_id} has no version {version!r} of a tool {slug!r}")
    return bundle_id, slug, version


def _covers(request: RestRequest, bundle_id: str, slug: str, version: str) -> bool:
    return covers_all(request) or covers(request, request.services.name(bundle_id, slug, version))


def _answer(request: RestRequest, tool: ToolRecord) -> ToolAnswer:
    return request.services.project.bundles.answer(tool, request.client.caller, request.client.identity)


def _check(request: RestRequest) -> Callable[[object], None]:
    """Return the check of `If-Match` against the record of a tool."""

    def check(tool: object) -> None:
        if "if-match" in request.http.headers and isinstance(tool, ToolRecord):
            check_preconditions(request.http.headers, tool)

    return check
