"""The routes that export and import bundles as ZIP files."""

from __future__ import annotations

from contextlib import AbstractContextManager
from urllib.parse import quote

from msgspec import Struct
from starlette.responses import Response

from toolcrib.bundles.archive import MAX_ARCHIVE, ImportPlan, OnConflict, apply, export_bundle, plan, read_zip
from toolcrib.errors import (
    BundleDisabled,
    BundleFull,
    ConflictError,
    InvalidArchive,
)
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.refusals import NO_BUNDLE, READ_ONLY
from toolcrib.serve.rest.services import RestRequest, noting_makers, require_all
from toolcrib.spec.naming import stored_name

ROUTES = Routes()
_ZIP = "application/zip"


class ImportQuery(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The query of an import."""

    on_conflict: OnConflict = "refuse"
    """For what is here and differs: keep it (`skip`), replace it, or make a new bundle (`new-id`)."""
    enable: bool = False
    """Switched on at once. Otherwise a new bundle is disabled."""
    dry_run: bool = False
    """Only say what would be done."""


@ROUTES.add(
    "GET",
    "/tools/bundles/{bundleID}/export",
    "read",
    {200: _ZIP},
    *NO_BUNDLE,
)
def export_to_zip(request: RestRequest) -> Response:
    """Return a bundle as a ZIP file. One that contains the value of a secret is refused."""
    services = request.services
    require_all(request)
    bundle = services.store.bundle(request.path["bundleID"])
    data = export_bundle(services.store, bundle.id, services.project.secrets)
    # A slug may have letters that a header can only have by their codes (RFC 6266, 4.3).
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(bundle.slug)}.zip"}
    return Response(data, headers=headers, media_type=_ZIP)


@ROUTES.add(
    "POST",
    "/tools/import",
    "admin",
    {200: ImportPlan},
    *(InvalidArchive, ConflictError, BundleDisabled, BundleFull, *READ_ONLY),
    query=ImportQuery,
    raw={_ZIP: ("A ZIP file of an export.", "PK…")},
    max_body=MAX_ARCHIVE,
)
def import_from_zip(request: RestRequest) -> Answer:
    """Import a bundle from a ZIP file, all of it or nothing, and return what was done for each tool."""
    query: ImportQuery = request.query
    require_all(request)
    store, contents = request.services.store_for(request), read_zip(request.data)
    if query.dry_run:
        return Answer(plan(store, contents, query.on_conflict, enable=query.enable))

    def noting(made: ImportPlan) -> AbstractContextManager[None]:
        stored = request.services.project.bundles.stored
        stored.catch_up()  # Another process may have made the bundle, or changed its name, a moment ago.
        bundle = stored.bundle_name(made.bundle_id, made.slug)
        new = [one for one in made.tools if one.action in ("add", "replace")]
        names = [stored_name(bundle, one.slug, one.version) for one in new]
        return noting_makers(request, dict.fromkeys(names, request.data))

    return Answer(apply(store, contents, query.on_conflict, enable=query.enable, around=noting))
