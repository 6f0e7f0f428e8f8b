"""The routes of bundles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from toolcrib.bundles import BundleBody, BundleRecord
from toolcrib.bundles.records import SCHEMA_VERSION
from toolcrib.errors import BuiltInReadOnly, BundleNotEmpty, InvalidId, MissingField, UsageError
from toolcrib.serve.http import Answer, Routes, check_preconditions
from toolcrib.serve.rest.pages import PageQuery, page_of, page_start
from toolcrib.serve.rest.records import BundleId, BundlePut, Switch, refuse_ours
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

    bundles: list[BundleRecord]
    next_page_token: str | None


@ROUTES.add("GET", _PATH, "read", {200: BundlePage}, UsageError, query=BundlesQuery)
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
    return Answer(BundlePage(bundles=page, next_page_token=token))


@ROUTES.add("GET", _ONE, "read", {200: BundleRecord, 304: None}, *NO_BUNDLE)
def get_bundle(request: RestRequest) -> Answer:
    """Return one bundle."""
    return Answer(request.services.store.bundle(request.path["bundleID"]), etag=True)


@ROUTES.add("PUT", _ONE, "admin", {201: BundleRecord, 200: BundleRecord}, InvalidId, *PUT, body=BundlePut)
def put_bundle(request: RestRequest) -> Answer:
    """Create or replace a bundle; restore one that was deleted."""
    body: BundlePut = request.body()
    bundle_id = request.path["bundleID"]

    # The store calls this under its lock, so nobody changes the bundle between the check and the write.
    def check(before: object) -> None:
        check_preconditions(request.http.headers, before)
        ours = {
            "id": bundle_id,
            "is_built_in": False,
            "schema_version": SCHEMA_VERSION,
            "soft_deleted_at": None,
        }
        times = () if before is None else ("created_at", "modified_at")
        refuse_ours(body, ours | {name: getattr(before, name) for name in times})

    content = BundleBody(**{name: getattr(body, name) for name in BundleBody.__struct_fields__})
    bundle, new = request.services.store_for(request).put_bundle(bundle_id, content, check)
    return Answer(bundle, 201 if new else 200, etag=True)


@ROUTES.add("PATCH", _ONE, "admin", {200: BundleRecord}, *NO_BUNDLE, *CHANGE, MissingField, body=Switch)
def patch_bundle(request: RestRequest) -> Answer:
    """Turn a bundle on or off."""
    store, bundle_id = request.services.store_for(request), request.path["bundleID"]
    enabled = read_switch(request, lambda: store.bundle(bundle_id).is_built_in)
    check = partial(check_preconditions, request.http.headers)
    return Answer(store.switch_bundle(bundle_id, enabled=enabled, check=check), etag=True)


@ROUTES.add("DELETE", _ONE, "admin", {202: BundleRecord}, *NO_BUNDLE, *CHANGE, BundleNotEmpty)
def delete_bundle(request: RestRequest) -> Answer:
    """Delete an empty bundle. PUT restores it within 48 hours."""
    check = partial(check_preconditions, request.http.headers)
    return Answer(request.services.store_for(request).delete_bundle(request.path["bundleID"], check), 202)


def read_switch(request: RestRequest, built_in: Callable[[], bool]) -> bool:
    """Read a body that is a `Switch`. For something built in, other fields raise BuiltInReadOnly."""
    value = request.json()
    # Before the form is checked, which would only say that the field is unknown.
    if isinstance(value, dict) and value.keys() - {"isEnabled"} and built_in():
        raise BuiltInReadOnly(hint="Send isEnabled only.")
    switch: Switch = request.body()
    return switch.is_enabled
