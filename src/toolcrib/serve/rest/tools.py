"""The routes of single tools in bundles."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import Struct

from toolcrib.bundles import ToolBody, ToolRecord, read_manifest, require_one_name
from toolcrib.bundles.records import SCHEMA_VERSION, check_slug, check_tool_body, check_version
from toolcrib.errors import (
    BuiltInReadOnly,
    BundleDeleting,
    BundleDisabled,
    ConflictError,
    InvalidId,
    InvalidSlug,
    ManifestError,
    MissingField,
    NotFoundError,
    PreconditionFailed,
    ToolNotFound,
)
from toolcrib.manifest import check_tool, entries, failure
from toolcrib.serve.http import Answer, HttpRequest, Route, check_preconditions
from toolcrib.serve.rest.bundles import read_switch
from toolcrib.serve.rest.records import NativeTool, Switch, ToolPut, refuse_ours, tool_body
from toolcrib.serve.rest.services import Services

__all__ = ["ROUTES"]

_YAML = "application/yaml"
_TOOL = "/tools/bundles/{bundleID}/tools/{toolSlug}"
_ONE = f"{_TOOL}/version/{{v}}"


class Versions(Struct, frozen=True, kw_only=True):
    """Every version of a tool, the newest first."""

    versions: list[ToolRecord]


def get_tool(request: HttpRequest) -> Answer:
    """Return one version of a tool."""
    services: Services = request.services
    return Answer(services.store.tool(*_named(request)), etag=True)


def list_versions(request: HttpRequest) -> Answer:
    """List every version of a tool in a bundle, the newest first."""
    services: Services = request.services
    path = request.path
    return Answer(Versions(versions=services.store.versions(path["bundleID"], path["toolSlug"])))


def put_tool(request: HttpRequest) -> Answer:
    """Create a version of a tool, from a record or from a native manifest. One that exists stays as it is."""
    services: Services = request.services
    bundle_id, slug, version = _named(request)
    check_slug(slug)
    check_version(version)
    if request.media_type == _YAML:
        body = read_manifest(request.data, f"{slug}.yml", slug=slug, version=version).body
    else:
        body = _from_record(request.body(), bundle_id, slug, version)
    if body.type == "native":
        require_one_name(slug, body, services.store.tools(bundle_id))
    return Answer(services.store.put_tool(bundle_id, slug, version, body), 201, etag=True)


def _from_record(put: ToolPut, bundle_id: str, slug: str, version: str) -> ToolBody:
    ours = {"bundle_id": bundle_id, "slug": slug, "version": version}
    refuse_ours(put, {**ours, "is_built_in": False, "schema_version": SCHEMA_VERSION})
    if isinstance(put, NativeTool):
        body = read_manifest(put.impl.manifest.encode(), f"{slug}.yml", slug=slug, version=version).body
        return msgspec.structs.replace(body, is_enabled=put.is_enabled)
    body = tool_body(put)
    check_tool_body(body)
    value = msgspec.to_builtins(body) | {"slug": slug, "version": version}
    if value["outputSchema"] is None:
        del value["outputSchema"]
    entry = entries(f"{slug}.json", msgspec.json.encode(value), "flexigpt")[0]
    found = [*entry.found, *(() if entry.tool is None else check_tool(entry.tool, entry.document))]
    if errors := [one for one in found if one.is_error]:
        raise failure(errors)
    return body


def patch_tool(request: HttpRequest) -> Answer:
    """Turn a version of a tool on or off."""
    services: Services = request.services
    named = _named(request)
    enabled = read_switch(request, lambda: services.store.tool(*named).is_built_in)
    check = partial(check_preconditions, request.http.headers)
    return Answer(services.store.switch_tool(*named, enabled=enabled, check=check), etag=True)


def delete_tool(request: HttpRequest) -> Answer:
    """Remove a version of a tool for good."""
    services: Services = request.services
    services.store.delete_tool(*_named(request), partial(check_preconditions, request.http.headers))
    return Answer(status=204)


def _named(request: HttpRequest) -> tuple[str, str, str]:
    path = request.path
    return path["bundleID"], path["toolSlug"], path["v"]


_NO_TOOL = (InvalidId, NotFoundError, ToolNotFound, BundleDeleting)
ROUTES = (
    Route(
        method="GET",
        path=_ONE,
        handler=get_tool,
        scope="read",
        answers={200: ToolRecord, 304: None},
        errors=_NO_TOOL,
    ),
    Route(
        method="PUT",
        path=_ONE,
        handler=put_tool,
        scope="admin",
        body=ToolPut,
        raw={_YAML: "A native manifest, whose name gives the slug."},
        answers={201: ToolRecord},
        errors=(
            InvalidId,
            InvalidSlug,
            MissingField,
            ManifestError,
            BuiltInReadOnly,
            NotFoundError,
            BundleDeleting,
            ConflictError,
            BundleDisabled,
        ),
    ),
    Route(
        method="PATCH",
        path=_ONE,
        handler=patch_tool,
        scope="admin",
        body=Switch,
        answers={200: ToolRecord},
        errors=(*_NO_TOOL, MissingField, BuiltInReadOnly, BundleDisabled, PreconditionFailed),
    ),
    Route(
        method="DELETE",
        path=_ONE,
        handler=delete_tool,
        scope="admin",
        answers={204: None},
        errors=(*_NO_TOOL, BuiltInReadOnly, PreconditionFailed),
    ),
    Route(
        method="GET",
        path=f"{_TOOL}/versions",
        handler=list_versions,
        scope="read",
        answers={200: Versions},
        errors=_NO_TOOL,
    ),
)
