"""Bundles as ZIP files: the same bytes again, and every refusal with a real hostile file."""

from __future__ import annotations

import json
import os
import stat
import struct
import tempfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.bundles.archive.samples import files_in, filled, tool, with_manifest, zipped
from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.bundles.archive import apply, export_bundle, read_zip
from toolcrib.bundles.archive.zip_file import MAX_FILES
from toolcrib.bundles.records import file_of
from toolcrib.errors import InvalidArchive, StateUnavailable
from toolcrib.guard import EnvironmentSecrets
from toolcrib.spec.identifier import new_id


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "here")


@pytest.fixture
def data(store: Store) -> bytes:
    return export_bundle(store, filled(store))


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "there")


def refused(store: Store, data: bytes, reason: str, file: str | None = None) -> None:
    """The archive is refused for this reason, and nothing is written."""
    folder = store._folder
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(InvalidArchive) as caught:
        apply(store, read_zip(data))
    assert caught.value.details["reason"] == reason, caught.value.message
    assert file is None or caught.value.details["file"] == file
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_an_export_is_the_same_bytes_each_time_and_holds_no_ids_of_tools(store: Store) -> None:
    bundle = filled(store)
    data = export_bundle(store, bundle)
    assert export_bundle(store, bundle) == data
    store.switch_bundle(bundle, enabled=False)
    assert export_bundle(store, bundle) == data  # the switch belongs to this store
    files = files_in(data)
    assert list(files)[:2] == ["manifest.json", "bundle.json"]
    assert sorted(list(files)[1:]) == list(files)[1:]
    for one in store.tools(bundle):
        assert one.id.encode() not in data
    assert json.loads(files["bundle.json"]) == {
        "id": bundle,
        "slug": "weather",
        "displayName": "Wetter ☂",
        "description": "Two\nlines",
        "schemaVersion": "2026-11-01",
    }


def test_an_import_and_its_export_are_the_same_bytes(data: bytes, other: Store) -> None:
    made = apply(other, read_zip(data))
    assert export_bundle(other, made.bundle_id) == data
    assert {(one.slug, one.version, one.is_enabled) for one in other.tools(made.bundle_id)} == {
        ("forecast", "v1", True), ("forecast", "v2", False), ("read-notes", "3", True),
    }  # fmt: skip
    assert not other.bundle(made.bundle_id).is_enabled


def test_a_file_that_another_program_compressed_is_read_too(data: bytes, other: Store) -> None:
    made = apply(other, read_zip(zipped(files_in(data), compress=zipfile.ZIP_DEFLATED)))
    assert export_bundle(other, made.bundle_id) == data


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
LABEL = st.text("abcxyzÄ漢字7٣-", min_size=1, max_size=8)
TOOLS = st.dictionaries(
    st.tuples(LABEL, LABEL),
    st.builds(
        tool,
        display_name=st.text(min_size=1),
        description=st.text(),
        tags=st.lists(
            st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,9}", fullmatch=True), unique=True, max_size=3
        ).map(tuple),
        is_enabled=st.booleans(),
        arg_schema=st.dictionaries(st.text(), JSON, max_size=3),
        output_schema=st.none() | st.dictionaries(st.text(), JSON, max_size=2),
        impl=st.dictionaries(st.text(), JSON, max_size=3),
    ),
    max_size=4,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tools=TOOLS, name=st.text(), description=st.text())
def test_any_bundle_makes_the_round_trip(
    tools: dict[tuple[str, str], ToolBody], name: str, description: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here, there = Store(Path(folder, "a")), Store(Path(folder, "b"))
        bundle = new_id()
        here.put_bundle(bundle, BundleBody(slug="any", display_name=name, description=description))
        for (slug, version), body in tools.items():
            here.put_tool(bundle, slug, version, body)
        data = export_bundle(here, bundle, EnvironmentSecrets({}))
        apply(there, read_zip(data))
        assert export_bundle(there, bundle) == data
        first, second = (
            {
                (one.slug, one.version): (one.created_at, one.arg_schema, one.impl)
                for one in store.tools(bundle)
            }
            for store in (here, there)
        )
        assert first == second


def test_a_damaged_record_is_never_left_out_of_an_export(store: Store, tmp_path: Path) -> None:
    bundle = filled(store)
    path = tmp_path / "here/bundles" / bundle / "tools" / file_of("forecast", "v1")
    path.write_text("{")
    with pytest.raises(StateUnavailable):
        export_bundle(store, bundle)


# -- refusals ------------------------------------------------------------------------------------------


def test_names_that_lead_elsewhere_are_refused(data: bytes, other: Store) -> None:
    files = files_in(data)
    one = next(key for key in files if key.startswith("tools/"))
    for name in (
        "../../x.json", "tools/../../x.json", "..\\x.json", "/etc/x.json", "C:/x.json", "\\\\server\\x.json",
        "tools/", "tools\\x.json", "tools/\x07.json", "tools/x.json", f"{one}.json", "TOOLS/x.json",
    ):  # fmt: skip
        refused(other, zipped(with_manifest({**files, name: files[one]})), "odd_name")
    swapped = "tools/0e1c0de5-0000-8000-8000-000000000000.json"
    refused(other, zipped(with_manifest({**files, swapped: files[one]})), "wrong_name")


def test_a_name_cut_off_by_a_null_is_refused(data: bytes, other: Store) -> None:
    hostile = zipped(with_manifest({**files_in(data), "tools/xxx.json": b"{}"}))
    refused(other, hostile.replace(b"tools/xxx.json", b"tools/x\0x.json"), "odd_name")


def test_links_folders_and_devices_are_refused(data: bytes, other: Store) -> None:
    for kind, reason in ((stat.S_IFLNK, "link"), (stat.S_IFDIR, "no_file"), (stat.S_IFCHR, "no_file")):
        refused(other, zipped(files_in(data), mode=kind | 0o777), reason)


def test_a_name_that_is_there_twice_is_refused(data: bytes, other: Store) -> None:
    hostile = zipped(with_manifest({**files_in(data), "bundle.jsom": files_in(data)["bundle.json"]}))
    refused(other, hostile.replace(b"bundle.jsom", b"bundle.json"), "duplicate", "bundle.json")


def test_bombs_are_refused_before_they_are_unpacked(data: bytes, other: Store) -> None:
    files = files_in(data)
    one = next(key for key in files if key.startswith("tools/"))
    small = {**files, one: b" " * 1_000_000 + files[one]}
    refused(other, zipped(with_manifest(small), compress=zipfile.ZIP_DEFLATED), "bomb", one)
    large = {**files, one: b" " * 5_000_000 + files[one]}
    refused(other, zipped(with_manifest(large)), "too_large", one)
    together = {f"tools/{number}.json": os.urandom(300_000) + b" " * 3_700_000 for number in range(35)}
    refused(other, zipped({**files, **together}, compress=zipfile.ZIP_DEFLATED), "too_large")
    refused(other, b"PK" + b" " * (64 * 1024 * 1024), "too_large")


def test_more_bytes_than_the_directory_says_are_refused(data: bytes, other: Store) -> None:
    files = files_in(data)
    packed = zipped(with_manifest({**files, "bundle.json": files["bundle.json"] + b" " * 60_000}),
                    compress=zipfile.ZIP_DEFLATED)  # fmt: skip
    size = struct.pack("<I", len(files["bundle.json"]) + 60_000)
    assert packed.count(size) == 2  # in front of the file and in the directory
    refused(other, packed.replace(size, struct.pack("<I", 100)), "damaged")


@pytest.mark.parametrize("compress", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_that_claims_to_be_small_is_not_unpacked(compress: int, other: Store) -> None:
    packed = zipped({"bundle.json": b" " * 64_000_000}, compress=compress)
    claims = packed.replace(struct.pack("<I", 64_000_000), struct.pack("<I", 1_000))
    tracemalloc.start()
    try:
        refused(other, claims, "damaged" if compress == zipfile.ZIP_DEFLATED else "compression")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_too_many_files_are_refused_before_the_directory_is_read(data: bytes, other: Store) -> None:
    files = {f"tools/{number}": b"" for number in range(MAX_FILES + 1)}
    refused(other, zipped(files), "too_many")
    end = zipped(files)
    refused(other, end[:-12] + struct.pack("<H", 3) + end[-10:], "too_many")  # a directory that lies


def test_files_that_share_bytes_are_refused(data: bytes, other: Store) -> None:
    changed = bytearray(zipped(files_in(data), compress=zipfile.ZIP_DEFLATED))
    directory = int.from_bytes(changed[-6:-2], "little")
    size = slice(directory + 20, directory + 24)
    # What follows the end of the first file's data is not read, so both files have the right contents.
    changed[size] = struct.pack("<I", int.from_bytes(changed[size], "little") + 100)
    refused(other, bytes(changed), "overlap", "manifest.json")


def test_encrypted_and_oddly_compressed_files_are_refused(data: bytes, other: Store) -> None:
    start = data.rindex(b"PK\x05\x06")
    directory = int.from_bytes(data[start + 16 : start + 20], "little")
    for offset, value, reason in (
        (8, 1, "encrypted"), (8, 0x40, "encrypted"), (8, 0x2000, "encrypted"), (10, 12, "compression"),
        (10, 99, "compression"),
    ):  # fmt: skip
        changed = bytearray(data)
        changed[directory + offset : directory + offset + 2] = struct.pack("<H", value)
        refused(other, bytes(changed), reason, "manifest.json")


def test_fewer_bytes_than_the_directory_says_are_refused(data: bytes, other: Store) -> None:
    changed = bytearray(data)
    size = slice(*(int.from_bytes(data[-6:-2], "little") + at for at in (24, 28)))
    changed[size] = struct.pack("<I", int.from_bytes(changed[size], "little") + 1)
    refused(other, bytes(changed), "damaged", "manifest.json")


def test_other_files_are_refused(data: bytes, other: Store) -> None:
    refused(other, b"", "no_zip")
    refused(other, b"slug: weather\n" * 10, "no_zip")
    refused(other, data[:-1], "no_zip")
    refused(other, data + b"\0", "no_zip")
    refused(other, b"#!/bin/sh\n" + data, "odd_layout")
    refused(other, data[:40] + data[41:], "odd_layout")
    refused(other, zipped({"a.txt": b"hello"}), "odd_name")
    refused(other, zipped({"bundle.json": b"{}"}), "no_manifest")


def test_a_checksum_that_differs_is_refused(data: bytes, other: Store) -> None:
    files = files_in(data)
    changed = {**files, "bundle.json": files["bundle.json"].replace(b"weather", b"whether")}
    refused(other, zipped(changed), "checksum", "bundle.json")
    refused(other, data.replace(b"Two\\n", b"Tow\\n"), "damaged")  # the CRC of the ZIP file


def test_files_that_the_manifest_lacks_or_invents_are_refused(data: bytes, other: Store) -> None:
    files = files_in(data)
    refused(other, zipped({**files, "tools/0a.json": b"{}"}), "unlisted", "tools/0a.json")
    one = next(key for key in files if key.startswith("tools/"))
    refused(other, zipped({key: text for key, text in files.items() if key != one}), "unlisted", one)
    bare = {key: text for key, text in files.items() if key != "bundle.json"}
    refused(other, zipped(with_manifest(bare)), "no_bundle")


def test_json_that_is_nested_too_deeply_is_refused(data: bytes, other: Store) -> None:
    for file, reason in (("manifest.json", "bad_manifest"), ("bundle.json", "bad_record")):
        files = {**files_in(data), file: b'{"a":' * 9000}
        refused(other, zipped(files if file == "manifest.json" else with_manifest(files)), reason, file)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ({"formatVersion": 2}, "unknown_version"),
        ({"formatVersion": 2, "more": 1}, "unknown_version"),
        ({"formatVersion": "1"}, "bad_manifest"),
        ({"format": "other"}, "bad_manifest"),
        ({"more": 1}, "bad_manifest"),
    ],
)
def test_other_formats_are_refused(data: bytes, other: Store, head: dict[str, Any], reason: str) -> None:
    refused(other, zipped(with_manifest(files_in(data), **head)), reason, "manifest.json")


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("bundle.json", {"id": "7"}),
        ("bundle.json", {"id": "../../../etc"}),
        ("bundle.json", {"slug": "a_b"}),
        ("bundle.json", {"isEnabled": True}),
        ("bundle.json", {"createdAt": "1970-01-01T00:00:00.000Z"}),
        ("bundle.json", {"schemaVersion": "2099-01-01"}),
        ("tool", {"id": new_id()}),
        ("tool", {"isBuiltIn": True}),
        ("tool", {"createdAt": "yesterday"}),
        ("tool", {"modifiedAt": "9999-99-99"}),
        ("tool", {"tags": ["1"]}),
        ("tool", {"type": "grpc"}),
        ("tool", {"impl": None}),
    ],
)
def test_records_that_break_a_rule_are_refused(
    data: bytes, other: Store, file: str, changes: dict[str, Any]
) -> None:
    files = files_in(data)
    name = f"tools/{file_of('forecast', 'v1')}" if file == "tool" else file
    changed = json.dumps({**json.loads(files[name]), **changes}).encode()
    refused(other, zipped(with_manifest({**files, name: changed})), "bad_record", name)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 8), packed=st.booleans())
def test_damage_anywhere_is_refused_or_without_effect(
    data: bytes, at: int, value: int, cut: int, packed: bool
) -> None:
    whole = zipped(files_in(data), compress=zipfile.ZIP_DEFLATED) if packed else data
    at %= len(whole)
    damaged = whole[:at] + (bytes([value]) if cut == 0 else b"") + whole[at + max(1, cut) :]
    try:
        found = read_zip(damaged)
    except InvalidArchive:
        return
    assert found == read_zip(data)


def test_times_in_the_future_become_now(data: bytes, other: Store) -> None:
    files = files_in(data)
    name = f"tools/{file_of('forecast', 'v1')}"
    future = {"createdAt": "9000-01-01T00:00:00.000Z", "modifiedAt": "9000-01-01T00:00:00.000Z"}
    changed = json.dumps({**json.loads(files[name]), **future}).encode()
    made = apply(other, read_zip(zipped(with_manifest({**files, name: changed}))))
    bundle, found = other.bundle(made.bundle_id), other.tool(made.bundle_id, "forecast", "v1")
    assert found.created_at == found.modified_at == bundle.created_at
