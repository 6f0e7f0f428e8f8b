"""Imports beside what is here: the matrix of conflicts, and each choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sources import MemorySource
from tests.unit.bundles.archive.samples import filled, native, tool
from toolcrib.bundles import BundleBody, BundleRecord, Store
from toolcrib.bundles.archive import ImportPlan, OnConflict, apply, export_bundle, plan, read_zip
from toolcrib.errors import BundleDisabled, BundleReadOnly, ConflictError, NotFoundError, ToolcribError
from toolcrib.spec.identifier import new_id


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def bundle(store: Store) -> str:
    return filled(store)


@pytest.fixture
def data(store: Store, bundle: str) -> bytes:
    """The bundle as it was; now one tool is gone, one differs, and one is added."""
    data = export_bundle(store, bundle)
    store.delete_tool(bundle, "forecast", "v1")
    store.delete_tool(bundle, "forecast", "v2")
    store.put_tool(bundle, "forecast", "v2", tool(description="Another one"))
    store.put_tool(bundle, "mine", "1", tool())
    return data


def texts(store: Store, bundle: str) -> dict[str, str]:
    return {f"{one.slug}@{one.version}": one.description for one in store.tools(bundle)}


def refused(expected: type[ToolcribError], action: Callable[[], object]) -> ToolcribError:
    with pytest.raises(expected) as caught:
        action()
    assert type(caught.value) is expected
    assert caught.value.hint
    return caught.value


def test_what_has_to_be_noted_is_noted_before_the_import(store: Store, bundle: str, data: bytes) -> None:
    seen: list[tuple[bool, dict[str, str]]] = []
    before = texts(store, bundle)

    @contextmanager
    def noting(made: ImportPlan) -> Iterator[None]:
        seen.append((made.changes, texts(store, bundle)))
        yield

    apply(store, read_zip(data), "replace", around=noting)
    assert seen == [(True, before)]
    assert texts(store, bundle) != before


def test_the_matrix_names_each_choice(store: Store, bundle: str, data: bytes) -> None:
    before = texts(store, bundle)
    made = plan(store, read_zip(data))
    assert (made.state, made.action) == ("same", "keep")
    rows = {f"{one.slug}@{one.version}": (one.state, one.actions) for one in made.tools}
    assert rows == {
        "forecast@v1": ("new", dict.fromkeys(("refuse", "skip", "replace", "new-id"), "add")),
        "forecast@v2": (
            "differs",
            {"refuse": "conflict", "skip": "keep", "replace": "replace", "new-id": "add"},
        ),
        "read-notes@3": ("same", {"refuse": "keep", "skip": "keep", "replace": "keep", "new-id": "add"}),
    }
    assert made.refused is not None
    assert made.refused["code"] == "conflict"
    assert texts(store, bundle) == before


def test_a_conflict_is_refused_and_changes_nothing(store: Store, bundle: str, data: bytes) -> None:
    before = store.tools(bundle)
    error = refused(ConflictError, lambda: apply(store, read_zip(data)))
    assert "forecast@v2" in error.message
    assert error.details["plan"]["tools"]
    assert store.tools(bundle) == before


def test_skip_keeps_what_is_here_and_adds_the_rest_disabled(store: Store, bundle: str, data: bytes) -> None:
    kept = {one.id for one in store.tools(bundle)}
    made = apply(store, read_zip(data), "skip")
    assert made.bundle_id == bundle
    assert texts(store, bundle) == {
        "forecast@v1": "", "forecast@v2": "Another one", "read-notes@3": "Read the notes", "mine@1": "",
    }  # fmt: skip
    assert kept < {one.id for one in store.tools(bundle)}
    assert store.bundle(bundle).is_enabled
    assert not store.tool(bundle, "forecast", "v1").is_enabled  # nobody has looked at it
    assert store.tool(bundle, "mine", "1").is_enabled


def test_replace_takes_the_imported_one_under_a_new_id(store: Store, bundle: str, data: bytes) -> None:
    old = store.tool(bundle, "forecast", "v2")
    apply(store, read_zip(data), "replace", enable=True)
    new = store.tool(bundle, "forecast", "v2")
    assert (new.description, new.is_enabled) == ("", False)  # as in the archive
    assert new.id != old.id
    assert store.tool(bundle, "forecast", "v1").is_enabled
    assert "mine@1" in texts(store, bundle)


def test_a_new_id_makes_a_disabled_bundle_beside_the_other(store: Store, bundle: str, data: bytes) -> None:
    before = store.tools(bundle)
    made = apply(store, read_zip(data), "new-id")
    assert made.bundle_id != bundle
    assert store.tools(bundle) == before
    imported = store.tools(made.bundle_id)
    assert {f"{one.slug}@{one.version}" for one in imported} == {"forecast@v1", "forecast@v2", "read-notes@3"}
    assert not {one.id for one in imported} & {one.id for one in before}
    assert not store.bundle(made.bundle_id).is_enabled
    assert apply(store, read_zip(data), "new-id", enable=True).is_enabled
    assert len(store.bundles()) == 3


def test_texts_of_the_bundle_are_a_conflict_too(store: Store, bundle: str) -> None:
    data = export_bundle(store, bundle)
    store.put_bundle(bundle, BundleBody(slug="climate"))
    assert "texts of the bundle" in refused(ConflictError, lambda: apply(store, read_zip(data))).message
    apply(store, read_zip(data), "skip")
    assert store.bundle(bundle).slug == "climate"
    apply(store, read_zip(data), "replace")
    assert store.bundle(bundle).slug == "weather"


def test_the_same_import_again_changes_nothing(store: Store, tmp_path: Path, bundle: str) -> None:
    other = Store(tmp_path / "other")
    data = export_bundle(store, bundle)
    assert apply(other, read_zip(data)).changes
    records = [path.stat().st_mtime_ns for path in sorted((tmp_path / "other/bundles").rglob("*.json"))]
    assert not apply(other, read_zip(data)).changes
    assert [
        path.stat().st_mtime_ns for path in sorted((tmp_path / "other/bundles").rglob("*.json"))
    ] == records
    assert apply(other, read_zip(data), enable=True).changes
    assert other.bundle(bundle).is_enabled


def test_a_disabled_bundle_takes_no_tools_unless_it_is_enabled(
    store: Store, bundle: str, data: bytes
) -> None:
    store.switch_bundle(bundle, enabled=False)
    refused(BundleDisabled, lambda: apply(store, read_zip(data), "skip"))
    apply(store, read_zip(data), "skip", enable=True)
    assert "forecast@v1" in texts(store, bundle)


def test_a_deleted_bundle_is_restored(store: Store, bundle: str) -> None:
    data = export_bundle(store, bundle)
    created = store.bundle(bundle).created_at
    for one in store.tools(bundle):
        store.delete_tool(bundle, one.slug, one.version)
    store.delete_bundle(bundle)
    apply(store, read_zip(data))
    restored = store.bundle(bundle)
    assert (restored.created_at, restored.is_enabled, len(store.tools(bundle))) == (created, False, 3)
    assert store.tool(bundle, "forecast", "v1").is_enabled
    assert export_bundle(store, bundle) == data


def test_the_tools_of_a_source_are_neither_exported_nor_changed(
    tmp_path: Path, bundle: str, store: Store
) -> None:
    shop = Store(
        tmp_path / "other", sources=[MemorySource(bundle, "weather", store.tools(bundle), "project")]
    )
    own = export_bundle(store, bundle)
    refused(BundleReadOnly, lambda: export_bundle(shop, bundle))
    refused(BundleReadOnly, lambda: apply(shop, read_zip(own), "replace"))
    assert apply(shop, read_zip(own), "new-id").bundle_id != bundle


def test_two_names_of_one_slug_are_a_conflict(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    bundle = new_id()
    other.put_bundle(bundle, BundleBody(slug="a"))
    other.put_tool(bundle, "read-notes", "3", native())
    other.put_tool(bundle, "read-notes", "4", native("name: read-notes\n"))
    data = export_bundle(other, bundle)
    error = refused(ConflictError, lambda: apply(store, read_zip(data)))
    assert "'read_notes'" in error.message
    assert "'read-notes'" in error.message


def test_a_change_during_the_import_is_planned_again(
    store: Store, bundle: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_together, others = store.put_together, iter(range(3))

    def late(*arguments: Any) -> bool:
        if next(others, None) is not None:  # another writer comes first
            store.switch_bundle(bundle, enabled=not store.bundle(bundle).is_enabled)
        return put_together(*arguments)

    monkeypatch.setattr(store, "put_together", late)
    choice: OnConflict = "skip"
    with pytest.raises(BundleDisabled):
        apply(store, read_zip(data), choice)
    assert "forecast@v1" not in texts(store, bundle)


def test_another_import_while_this_one_looks_at_the_store_is_a_conflict(
    store: Store, bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = export_bundle(store, bundle)
    store.delete_tool(bundle, "forecast", "v1")
    store.put_tool(bundle, "forecast", "v1", tool(description="Another one"))
    theirs, into = export_bundle(store, bundle), tmp_path / "into"
    other, looked = Store(into), iter(range(1))
    find = other.bundle

    def late(asked: str) -> BundleRecord:
        try:
            return find(asked)
        except NotFoundError:
            if next(looked, None) is not None:
                apply(Store(into), read_zip(theirs))
            raise

    monkeypatch.setattr(other, "bundle", late)
    refused(ConflictError, lambda: apply(other, read_zip(mine)))
    assert export_bundle(Store(into), bundle) == theirs
