"""The routes of bundles."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from toolcrib.bundles import BundleBody, BundleRecord
from toolcrib.bundles.answers import BundleAnswer
from toolcrib.errors import BundleNotEmpty, InvalidId, MissingField
from toolcrib.serve.http import Answer, Routes, check_preconditions
from toolcrib.serve.rest.once import once
from toolcrib.serve.rest.pages import PageQuery, page_of, page_start
from toolcrib.serve.rest.records import BUNDLE_PUT, BundleId, BundlePut, Switch, require_same
from toolcrib.serve.rest.refusals import CHANGE, NO_BUNDLE, PUT
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()
_PATH = "/tools/bundles"
_ONE = f"{_PATH}/{{bundleID}}"


class BundlesQuery(PageQuery, kw_only=True):
    """The query of a list of bundles."""

    bundle_ids: tuple[BundleId, ...] = field(default=(), name="bundleIDs")
    """Only the bundles with these ids."""
    include_disabled: bool = False


class BundlePage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of bundles, the newest first."""

    bundles: list[BundleAnswer]
    next_page_token: str | None


@ROUTES.add("GET", _PATH, "read", {200: BundlePage}, query=BundlesQuery)
def list_bundles(request: RestRequest) -> Answer:
    """List the bundles, the newest first. Deleted ones are left out."""
    query: BundlesQuery = request.query
    question = ("bundles", sorted(query.bundle_ids), query.include_disabled)
    before = page_start(query, question, str, str)
    found = [
        bundle
        for bundle in request.services.store.bundles()
        if bundle.soft_deleted_at is None
        and (not query.bundle_ids or bundle.id in query.bundle_ids)
        and (query.include_disabled or bundle.is_enabled)
        and (before is None or (bundle.created_at, bundle.id) < before)
    ]
    page, token = page_of(found, query, question, lambda one: [one.created_at, one.id])
    client = request.client
    bundles = request.services.project.bundles.bundle_answers(page, client.caller, client.identity)
    return Answer(BundlePage(bundles=bundles, next_page_token=token))


@ROUTES.add("GET", _ONE, "read", {200: BundleAnswer, 304: None}, *NO_BUNDLE)
def get_bundle(request: RestRequest) -> Answer:
    """Return one bundle."""
    return _answer(request, request.services.store.bundle(request.path["bundleID"]))


@ROUTES.add(
    "PUT",
    _ONE,
    "admin",
    {201: BundleAnswer, 200: BundleAnswer},
    InvalidId,
    *PUT,
    body=BUNDLE_PUT,
    headers=("Idempotency-Key",),
)
@once
def put_bundle(request: RestRequest) -> Answer:
    """Create or replace a bundle; restore one that was deleted."""
    body: BundlePut = request.body()
    bundle_id = request.path["bundleID"]

    require_same(body, id=bundle_id)
    content = BundleBody(**{name: getattr(body, name) for name in BundleBody.__struct_fields__})
    bundle, new = request.services.store_for(request).put_bundle(bundle_id, content, _check(request))
    return _answer(request, bundle, 201 if new else 200)


@ROUTES.add("PATCH", _ONE, "admin", {200: BundleAnswer}, *NO_BUNDLE, *CHANGE, MissingField, body=Switch)
def patch_bundle(request: RestRequest) -> Answer:
    """Turn a bundle on or off."""
    store, bundle_id = request.services.store_for(request), request.path["bundleID"]
    enabled = read_switch(request, bundle_id)
    return _answer(request, store.switch_bundle(bundle_id, enabled=enabled, check=_check(request)))


@ROUTES.add("DELETE", _ONE, "admin", {202: BundleAnswer}, *NO_BUNDLE, *CHANGE, BundleNotEmpty)
def delete_bundle(request: RestRequest) -> Answer:
    """Delete an empty bundle. PUT restores it within 48 hours."""
    store = request.services.store_for(request)
    return _answer(request, store.delete_bundle(request.path["bundleID"], _check(request)), 202)


def _answer(request: RestRequest, bundle: BundleRecord, status: int = 200) -> Answer:
    client = request.client
    (answer,) = request.services.project.bundles.bundle_answers([bundle], client.caller, client.identity)
    return Answer(answer, status, etag=bundle)


def _check(request: RestRequest) -> Callable[[object], None]:
    """Return the check of the preconditions against a bundle as GET answers it.

    The store calls it under its lock, so nobody changes the bundle between the check and the write.
    """

    def check(bundle: object) -> None:
        check_preconditions(request.http.headers, bundle)

    return check


def read_switch(request: RestRequest, bundle_id: str) -> bool:
    """Read a body that is a `Switch`. In a source other fields raise BundleReadOnly or BuiltInReadOnly."""
    value = request.json()
    # Before the form is checked, which would only say that the field is unknown.
    if isinstance(value, dict) and value.keys() - {"isEnabled"}:
        request.services.store.require_own(bundle_id)
    switch: Switch = request.body()
    return switch.is_enabled
