"""The routes of deleted bundles and tools."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, field

from toolcrib.bundles import BundleBody, ToolBody
from toolcrib.bundles.answers import BundleAnswer, ToolAnswer
from toolcrib.bundles.records import Moment, Translations, Uuid
from toolcrib.errors import BundleDisabled, BundleFull, BundleReadOnly, ConflictError, NotFoundError
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.bundles.tools import named_tool
from toolcrib.serve.rest.refusals import NO_TOOL
from toolcrib.serve.rest.services import RestRequest, covers, noting_makers, require_all

ROUTES = Routes()


class DeletedBundle(Struct, frozen=True, kw_only=True, rename="camel"):
    """A bundle that was deleted less than 48 hours ago."""

    id: Uuid
    slug: str
    display_name: str
    translations: Translations = UNSET
    soft_deleted_at: Moment


class DeletedTool(Struct, frozen=True, kw_only=True, rename="camel"):
    """A version of a tool that was deleted."""

    bundle_id: Uuid = field(name="bundleID")
    slug: str
    version: str
    display_name: str
    translations: Translations = UNSET
    deleted_at: Moment
    deleted_by: str
    """The caller: `cli`, `local` for a program, `page`, or `token:NAME`."""


class Trash(Struct, frozen=True, kw_only=True):
    """All that was deleted and can be restored, the latest first."""

    bundles: list[DeletedBundle]
    tools: list[DeletedTool]


@ROUTES.add("GET", "/tools/trash", "read", {200: Trash})
def list_trash(request: RestRequest) -> Answer:
    """List the bundles and the versions of tools that were deleted and can be restored."""
    bundles, tools = request.services.store.trash()
    named = request.services.name
    return Answer(
        Trash(
            bundles=[
                DeletedBundle(
                    id=one.id,
                    slug=one.slug,
                    display_name=one.display_name,
                    translations=one.translations,
                    soft_deleted_at=one.soft_deleted_at or one.modified_at,
                )
                for one in bundles
            ],
            tools=[
                DeletedTool(
                    bundle_id=one.tool.bundle_id,
                    slug=one.tool.slug,
                    version=one.tool.version,
                    display_name=one.tool.display_name,
                    translations=one.tool.translations,
                    deleted_at=one.changed_at,
                    deleted_by=one.changed_by,
                )
                for one in tools
                if covers(request, named(one.tool.bundle_id, one.tool.slug, one.tool.version))
            ],
        )
    )


@ROUTES.add(
    "POST",
    "/tools/bundles/{bundleID}/restore",
    "admin",
    {200: BundleAnswer},
    *(NotFoundError, ConflictError, BundleReadOnly),
)
def restore_bundle(request: RestRequest) -> Answer:
    """Restore a bundle that was deleted less than 48 hours ago."""
    require_all(request)
    store, bundle_id = request.services.store_for(request), request.path["bundleID"]
    deleted = next((one for one in store.trash()[0] if one.id == bundle_id), None)
    if deleted is None:
        raise NotFoundError(
            f"no deleted bundle has the id {bundle_id!r}", hint="To see them: GET /tools/trash"
        )
    body = BundleBody(**{name: getattr(deleted, name) for name in BundleBody.__struct_fields__})
    (answer,) = request.services.project.bundles.bundle_answers([store.put_bundle(bundle_id, body)[0]])
    return Answer(answer)


@ROUTES.add(
    "POST",
    "/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}/restore",
    "admin",
    {200: ToolAnswer},
    *NO_TOOL,
    *(ConflictError, BundleReadOnly, BundleDisabled, BundleFull),
)
def restore_tool(request: RestRequest) -> Answer:
    """Put a version of a tool that was deleted back as it was."""
    named, services, client = named_tool(request), request.services, request.client
    store = services.store_for(request)
    was = next((one for one in store.revisions(*named) if one.change == "deleted"), None)
    body = was and ToolBody(**{name: getattr(was.tool, name) for name in ToolBody.__struct_fields__})
    # By a token, it counts as made by an agent, as `PUT` does.
    with noting_makers(request, {services.name(*named): msgspec.json.encode(body, order="deterministic")}):
        restored = store.restore_tool(*named)
    return Answer(services.project.bundles.answer(restored, client.caller, client.identity), etag=restored)
