"""The rules of bundles and their tools."""

from __future__ import annotations

import codecs
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.sources import MOMENT, MemorySource
from toolcrib.bundles import BundleBody, Store, ToolBody, ToolRecord, log_of, read_manifest, read_record
from toolcrib.bundles.files import StoreLock
from toolcrib.bundles.history import MOST_REVISIONS
from toolcrib.bundles.listing import Listing
from toolcrib.bundles.records import MIGRATIONS, SCHEMA_VERSION, DamagedBundle, DamagedTool, NotARecord
from toolcrib.bundles.store import REAP_AFTER_S
from toolcrib.errors import (
    AuditUnavailable,
    BuiltInReadOnly,
    BundleDeleting,
    BundleDisabled,
    BundleNotEmpty,
    BundleReadOnly,
    ConflictError,
    InvalidId,
    InvalidInput,
    InvalidSlug,
    MissingField,
    NotFoundError,
    StateUnavailable,
    ToolcribError,
    ToolNotFound,
)
from toolcrib.guard.audit.check import verify
from toolcrib.spec.identifier import new_id

A, B, C = new_id(1000.0), new_id(2000.0), new_id(3000.0)
HTTP: dict[str, Any] = {"urlTemplate": "https://example.com/${city}"}
TOOL = ToolBody(display_name="Weather", type="http", impl=HTTP)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Store:
    return Store(tmp_path, clock=clock)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.json") if path.is_file())


def refused(expected: type[ToolcribError], action: Callable[[], object]) -> None:
    with pytest.raises(expected) as caught:
        action()
    assert type(caught.value) is expected


def test_a_bundle_is_made_replaced_and_keeps_when_it_was_made(store: Store, clock: Clock) -> None:
    made, new = store.put_bundle(A, BundleBody(slug="mine", display_name="Mine"))
    assert new
    clock.now += 5
    replaced, new = store.put_bundle(A, BundleBody(slug="yours"))
    assert not new
    assert replaced.slug == "yours"
    assert replaced.display_name == ""
    assert replaced.created_at == made.created_at
    assert replaced.modified_at > made.modified_at
    assert store.bundle(A) == replaced


def test_bundles_are_listed_newest_first_and_ids_break_ties(store: Store, clock: Clock) -> None:
    ids = [new_id(float(number)) for number in range(3)]
    for one in ids[:2]:
        store.put_bundle(one, BundleBody(slug="x"))
    clock.now += 1
    store.put_bundle(ids[2], BundleBody(slug="x"))
    assert [bundle.id for bundle in store.bundles()] == [ids[2], *sorted(ids[:2], reverse=True)]


def test_ids_slugs_and_fields_are_checked(store: Store) -> None:
    body = BundleBody(slug="x")
    for wrong in ("", "x", A.upper(), "0190163d-8694-4a01-9a05-a22a6e0af101", f"../{A}", f"{A}\n"):
        refused(InvalidId, lambda wrong=wrong: store.put_bundle(wrong, body))  # type: ignore[misc]
        refused(InvalidId, lambda wrong=wrong: store.bundle(wrong))  # type: ignore[misc]
    store.put_bundle(A, body)
    refused(MissingField, lambda: store.put_bundle(A, BundleBody(slug="")))
    for wrong in ("a_b", "a b", "a.b", "a/b", "a\0", "x" * 65, "e\u0301", "½", ""):
        refused(InvalidSlug, lambda wrong=wrong: store.put_tool(A, wrong, "1", TOOL))  # type: ignore[misc]
    for wrong in ("a_b", "", "1/2", "x" * 65):
        refused(InvalidSlug, lambda wrong=wrong: store.put_tool(A, "a", wrong, TOOL))  # type: ignore[misc]
    refused(MissingField, lambda: store.put_tool(A, "a", "1", ToolBody(type="http", impl=HTTP)))
    for tags in (("a", "a"), ("1",), ("a" * 65,)):
        body_with = ToolBody(display_name="x", type="http", impl=HTTP, tags=tags)
        refused(InvalidInput, lambda body_with=body_with: store.put_tool(A, "a", "1", body_with))  # type: ignore[misc]
    assert store.tools(A) == []


def test_slugs_of_any_script_and_64_characters_are_kept(store: Store, tmp_path: Path) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    for slug, version in (("天" * 64, "版" * 64), ("a", "v1.2-β"), ("A", "v1.2-β"), ("9", ".")):
        store.put_tool(A, slug, version, TOOL)
        assert store.tool(A, slug, version).slug == slug
    assert len(store.tools(A)) == 4
    assert all(len(path.name.encode()) < 64 for path in files(tmp_path))


def test_a_tool_is_stored_as_flexigpt_writes_it(store: Store, tmp_path: Path) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    made = store.put_tool(A, "weather", "v2", TOOL)
    (file,) = [path for path in files(tmp_path) if path.parent.name == "tools"]
    record = json.loads(file.read_text())
    assert record["toolID"] == made.id
    assert record["bundleID"] == A
    assert record["impl"] == HTTP
    assert record["schemaVersion"] == SCHEMA_VERSION
    assert record["isEnabled"] is True
    assert record["isBuiltIn"] is False
    assert record["createdAt"] == record["modifiedAt"] == made.created_at
    assert file.stat().st_mode & 0o777 == 0o600
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in tmp_path.rglob("*") if folder.is_dir())


def test_a_pair_that_is_there_is_a_conflict_and_stays_byte_for_byte(store: Store, tmp_path: Path) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_bundle(B, BundleBody(slug="y"))
    first = store.put_tool(A, "a", "1", TOOL)
    (file,) = [path for path in files(tmp_path) if path.parent.name == "tools"]
    before = file.read_bytes()
    refused(
        ConflictError, lambda: store.put_tool(A, "a", "1", ToolBody(display_name="b", type="go", impl={}))
    )
    assert file.read_bytes() == before
    store.put_tool(B, "a", "1", TOOL)  # the same pair in another bundle
    store.put_tool(A, "a", "2", TOOL)
    store.delete_tool(A, "a", "1")
    refused(ToolNotFound, lambda: store.tool(A, "a", "1"))
    refused(ToolNotFound, lambda: store.delete_tool(A, "a", "1"))
    assert store.put_tool(A, "a", "1", TOOL).id != first.id
    listing = Listing(store, None)
    listing.refresh()
    assert [tool.version for tool in listing.versions("a", [A])] == ["1", "2"]
    assert listing.versions("b", [A]) == []


def test_the_switch_of_a_tool_changes_nothing_else(store: Store, clock: Clock) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    made = store.put_tool(A, "a", "1", TOOL)
    clock.now += 60
    assert store.switch_tool(A, "a", "1", enabled=False) == msgspec.structs.replace(made, is_enabled=False)
    assert store.switch_tool(A, "a", "1", enabled=True) == store.tool(A, "a", "1") == made
    refused(ToolNotFound, lambda: store.switch_tool(A, "a", "2", enabled=True))


def test_nothing_is_put_or_switched_in_a_disabled_bundle(store: Store) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_tool(A, "a", "1", TOOL)
    assert not store.switch_bundle(A, enabled=False).is_enabled
    refused(BundleDisabled, lambda: store.put_tool(A, "b", "1", TOOL))
    refused(BundleDisabled, lambda: store.switch_tool(A, "a", "1", enabled=False))
    assert store.tool(A, "a", "1").is_enabled
    store.delete_tool(A, "a", "1")
    assert store.switch_bundle(A, enabled=True).is_enabled


def test_a_deleted_bundle_is_hidden_restored_or_reaped(store: Store, clock: Clock, tmp_path: Path) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_tool(A, "a", "1", TOOL)
    refused(BundleNotEmpty, lambda: store.delete_bundle(A))
    store.delete_tool(A, "a", "1")
    store.delete_bundle(A)
    for action in (
        lambda: store.bundle(A),
        lambda: store.delete_bundle(A),
        lambda: store.switch_bundle(A, enabled=True),
        lambda: store.put_tool(A, "a", "1", TOOL),
        lambda: store.tools(A),
    ):
        refused(BundleDeleting, action)
    assert store.bundles()[0].soft_deleted_at is not None
    assert not store.put_bundle(A, BundleBody(slug="x"))[1]
    assert store.bundle(A).soft_deleted_at is None
    store.delete_bundle(A)
    clock.now += 48 * 3600 - 1
    assert store.reap() == []
    clock.now += 2
    assert store.reap() == [A]
    refused(NotFoundError, lambda: store.bundle(A))
    assert not (tmp_path / "bundles" / A).exists()


def test_what_a_killed_removal_leaves_is_removed_later_and_tools_without_a_record_stay(
    store: Store, tmp_path: Path
) -> None:
    for one in (A, B):
        store.put_bundle(one, BundleBody(slug="x"))
        store.put_tool(one, "a", "1", TOOL)
        store.switch_tool(one, "a", "1", enabled=False)  # This keeps a revision.
    store.delete_tool(A, "a", "1")
    folders = [tmp_path / "bundles" / one for one in (A, B)]
    for folder in folders:
        (folder / "bundle.json").unlink()  # the first step of a removal
    assert store.bundles() == []
    assert store.reap() == []
    assert [folder.exists() for folder in folders] == [False, True]
    assert not store.put_bundle(B, BundleBody(slug="x"))[0].soft_deleted_at
    assert [tool.slug for tool in store.tools(B)] == ["a"]


def test_a_clock_that_goes_back_reaps_nothing_early(store: Store, clock: Clock) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.delete_bundle(A)
    clock.now -= 10 * 24 * 3600
    assert store.reap() == []
    clock.now += 9 * 24 * 3600
    assert store.reap() == []


@pytest.mark.parametrize(
    ("source", "error"),
    [("builtin", BuiltInReadOnly), ("project", BundleReadOnly), ("server", BundleReadOnly)],
)
def test_the_tools_of_a_source_can_only_be_switched(tmp_path: Path, source: Any, error: Any) -> None:
    facts = {"bundle_id": A, "slug": "now", "type": "go", "impl": {"goFunc": "now"}}
    tool = ToolRecord(id=B, version="1", created_at=MOMENT, modified_at=MOMENT, **facts)  # type: ignore[arg-type]
    store = Store(tmp_path, sources=[MemorySource(A, "now", [tool], source)])
    assert store.bundle(A).slug == "now"
    assert (store.tool(A, "now", "1"), store.tools(A)) == (tool, [tool])
    for action in (
        lambda: store.put_bundle(A, BundleBody(slug="x")),
        lambda: store.delete_bundle(A),
        lambda: store.put_tool(A, "x", "1", TOOL),
        lambda: store.delete_tool(A, "now", "1"),
        lambda: store.snapshot(A),
    ):
        refused(error, action)
    assert not store.switch_tool(A, "now", "1", enabled=False).is_enabled
    assert not store.switch_bundle(A, enabled=False).is_enabled
    refused(BundleDisabled, lambda: store.switch_tool(A, "now", "1", enabled=True))
    refused(ToolNotFound, lambda: store.tool(A, "now", "2"))
    assert [bundle.id for bundle in store.bundles()] == [A]
    assert list(tmp_path.iterdir()) == []  # Nothing of a source is kept here.


def test_a_damaged_record_is_shown_in_its_place_can_be_replaced_and_deleted(
    store: Store, clock: Clock, tmp_path: Path
) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_tool(A, "a", "1", TOOL)
    good = set(files(tmp_path))
    store.put_tool(A, "b", "1", TOOL)
    (bad,) = set(files(tmp_path)) - good
    bad.write_bytes(codecs.BOM_UTF8 + bad.read_bytes())
    assert store.tool(A, "b", "1").impl == HTTP
    slog = bad.read_bytes().replace(b'"slug"', b'"slog"')
    for damage in (b"", b"{", b"[]", b"{}", slog, b"\xff", b'{"a":' * 9000):
        bad.write_bytes(damage)
        found = store.tool(A, "b", "1")
        assert isinstance(found, DamagedTool)
        assert found.unavailable_because.startswith("its record cannot be read: ")
        assert str(tmp_path) not in found.unavailable_because
        assert sorted(tool.slug for tool in store.tools(A)) == ["a", "b"]
        refused(NotARecord, lambda: store.switch_tool(A, "b", "1", enabled=True))
        refused(NotARecord, lambda: store.snapshot(A))
        assert bad.read_bytes() == damage
        assert store.put_tool(A, "b", "1", TOOL) == store.tool(A, "b", "1")
        clock.now += 1
        kept = store.revisions(A, "b", "1")[0]
        assert (kept.change, kept.tool.impl) == ("replaced", {"text": damage.decode(errors="replace")})
        refused(ConflictError, lambda: store.put_tool(A, "b", "1", TOOL))
    bad.write_bytes(b"")
    store.delete_tool(A, "b", "1")
    assert [tool.slug for tool in store.tools(A)] == ["a"]


def test_a_damaged_record_that_no_line_names_has_the_name_of_its_file(store: Store, tmp_path: Path) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    other = tmp_path / "bundles" / A / "tools"
    for name in ("0123-copy.json", "notes"):
        (other / name).write_text("{}")
    named = {(tool.slug, tool.version) for tool in store.tools(A)}
    assert named == {("0123-copy", "1"), ("notes", "1")}
    for slug, version in named:
        assert store.tool(A, slug, version).slug == slug
        refused(ToolNotFound, lambda: store.tool(A, slug, "2"))  # noqa: B023 - called at once
        store.delete_tool(A, slug, version)
    refused(ToolNotFound, lambda: store.tool(A, "../bundle", "1"))
    assert list(other.iterdir()) == []


def test_an_unreadable_record_is_neither_replaced_nor_deleted(store: Store, tmp_path: Path) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_tool(A, "a", "1", TOOL)
    (file,) = tmp_path.glob("bundles/*/tools/*.json")
    whole = file.rename(tmp_path / "elsewhere")
    file.symlink_to(whole)  # O_NOFOLLOW: it cannot be read here, and may be whole
    assert isinstance(store.tool(A, "a", "1"), DamagedTool)
    refused(NotARecord, lambda: store.put_tool(A, "a", "1", TOOL))
    refused(NotARecord, lambda: store.delete_tool(A, "a", "1"))
    assert file.is_symlink()


def test_a_damaged_bundle_counts_as_disabled_until_it_is_put_again(store: Store, tmp_path: Path) -> None:
    for id_, slug in ((A, "x"), (B, "y")):
        store.put_bundle(id_, BundleBody(slug=slug))
        (tmp_path / "bundles" / id_ / "bundle.json").write_text("{")
    shutil.copytree(tmp_path / "bundles" / A, tmp_path / "bundles" / C)
    found = {bundle.id: (bundle.slug, bundle.is_enabled, type(bundle)) for bundle in store.bundles()}
    assert found == {
        A: ("x", False, DamagedBundle),
        B: ("y", False, DamagedBundle),
        C: (C, False, DamagedBundle),
    }
    refused(NotARecord, lambda: store.switch_bundle(A, enabled=True))
    refused(BundleDisabled, lambda: store.put_tool(A, "a", "1", TOOL))
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_tool(A, "a", "1", TOOL)
    store.delete_bundle(B)
    refused(BundleDeleting, lambda: store.bundle(B))


@pytest.mark.parametrize("edited", ["", "bundleID", "slug", "toolID", "createdAt", "modifiedAt"])
def test_a_record_that_was_copied_or_edited_by_hand_is_damaged(
    store: Store, tmp_path: Path, edited: str
) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_tool(A, "a", "1", TOOL)
    (record,) = tmp_path.glob("bundles/*/tools/*.json")
    if edited:
        record.write_text(json.dumps(json.loads(record.read_text()) | {edited: "b"}))
    else:
        shutil.copytree(tmp_path / "bundles" / A, tmp_path / "bundles" / B)
    listing = Listing(store, None)
    listing.refresh()
    for _ in range(2):
        store.put_tool(A, "c", "1", TOOL)
        store.switch_bundle(A, enabled=True)
        store.delete_tool(A, "c", "1")
        listing.refresh()
    (damaged,) = (tool for tool in listing.tools() if tool.fault)
    assert (damaged.bundle, damaged.slug) == (A, "a") if edited else (B, record.stem)
    assert not listing.is_on(damaged)
    assert len(listing) == (1 if edited else 2)


def test_a_record_of_an_earlier_version_is_migrated_and_one_of_a_later_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_bundle(A, BundleBody(slug="x", display_name="Mine"))
    file = tmp_path / "bundles" / A / "bundle.json"
    new = json.loads(file.read_text())
    old = {key: value for key, value in new.items() if key != "displayName"} | {"title": "Mine"}
    file.write_text(json.dumps(old | {"schemaVersion": "2020-01-01"}))
    assert isinstance(store.bundle(A), DamagedBundle)

    def rename(value: dict[str, Any]) -> dict[str, Any]:
        return value | {"displayName": value["title"], "schemaVersion": SCHEMA_VERSION}

    monkeypatch.setitem(MIGRATIONS, "2020-01-01", rename)
    assert store.bundle(A).display_name == "Mine"
    assert "2020-01-01" in file.read_text()
    file.write_text(json.dumps(new | {"schemaVersion": "2999-01-01"}))
    assert isinstance(store.bundle(A), DamagedBundle)


def test_each_replaced_record_is_kept_and_each_change_is_recorded(
    store: Store, clock: Clock, tmp_path: Path
) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    first = store.put_tool(A, "a", "1", TOOL)
    assert store.revisions(A, "a", "1") == []
    clock.now += 1
    store.acting("cli").switch_tool(A, "a", "1", enabled=False)
    store.switch_tool(A, "a", "1", enabled=False)  # it was off: nothing is replaced
    clock.now += 1
    store.acting("token:ci").delete_tool(A, "a", "1")
    second = store.put_tool(A, "a", "1", TOOL)
    found = store.revisions(A, "a", "1")
    assert [(one.change, one.changed_by, one.tool.is_enabled) for one in found] == [
        ("deleted", "token:ci", False),
        ("disabled", "cli", True),
    ]
    assert found[1].tool == first
    assert [(one.event, one.by, one.tool_id) for one in store.history(A, "a")] == [
        ("TOOL_PUT", "local", second.id),
        ("TOOL_DELETED", "token:ci", first.id),
        ("TOOL_DISABLED", "local", first.id),
        ("TOOL_DISABLED", "cli", first.id),
        ("TOOL_PUT", "local", first.id),
    ]
    refused(ToolNotFound, lambda: store.revisions(A, "a", "2"))
    path, anchor = log_of(tmp_path)
    assert verify(path, anchor=anchor).ok


def test_the_oldest_revisions_go_first(store: Store) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_tool(A, "a", "1", TOOL)
    for number in range(MOST_REVISIONS + 4):
        store.switch_tool(A, "a", "1", enabled=bool(number % 2))
    kept = store.revisions(A, "a", "1")
    assert len(kept) == MOST_REVISIONS
    assert kept[0].change == "enabled"


def test_the_revisions_go_with_their_bundle(store: Store, clock: Clock, tmp_path: Path) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    store.put_tool(A, "a", "1", TOOL)
    store.delete_tool(A, "a", "1")
    store.delete_bundle(A)
    store.put_bundle(A, BundleBody(slug="x"))
    assert [one.change for one in store.revisions(A, "a", "1")] == ["deleted"]
    store.delete_bundle(A)
    clock.now += REAP_AFTER_S
    assert store.reap() == [A]
    assert not (tmp_path / "bundles" / A).exists()


def test_a_process_that_keeps_the_lock_is_reported(tmp_path: Path) -> None:
    late = StoreLock(tmp_path, wait_s=0.05)
    with StoreLock(tmp_path).alone(), pytest.raises(StateUnavailable, match="another process"), late.shared():
        pass
    with StoreLock(tmp_path).shared(), late.shared():
        pass


def test_a_change_that_cannot_be_recorded_is_refused(store: Store, tmp_path: Path) -> None:
    store.put_bundle(A, BundleBody(slug="x"))
    path, _ = log_of(tmp_path)
    path.unlink()
    path.mkdir()
    refused(AuditUnavailable, lambda: store.put_tool(A, "a", "1", TOOL))
    refused(AuditUnavailable, lambda: store.switch_bundle(A, enabled=False))
    assert (store.tools(A), store.bundle(A).is_enabled) == ([], True)


def test_a_native_record_changes_in_its_manifest() -> None:
    """What was read is put as a new version: its other fields only repeat the manifest."""
    text = "name: n\ndescription: N\ntags: [a]\nkind: command\nversion: {}\n"
    text += "exec: {{command: {{entrypoint: ls}}}}\n"
    read = msgspec.to_builtins(read_manifest(text.format(1).encode(), "n.yml").body) | {"slug": "n"}

    def put(version: str, manifest: str, **changed: Any) -> ToolBody:
        record = read | {"version": version, "impl": {"manifest": manifest}} | changed
        return read_record(json.dumps(record).encode(), new_id()).body

    assert put("2", text.format(2), isEnabled=False).is_enabled is False
    with pytest.raises(InvalidInput) as raised:
        put("2", text.format(1))
    assert raised.value.hint == "Change `version` in the manifest too."
    with pytest.raises(InvalidInput) as raised:
        put("2", text.format(2), tags=["b"], description="Other")
    assert [one.path for one in raised.value.violations] == ["$.description", "$.tags"]
