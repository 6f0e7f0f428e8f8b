"""Bundles as folders of manifests, and folders of tools as bundles, with what is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bundles.archive.samples import MANIFEST, filled, native, tool
from toolcrib.bundles import BundleBody, Store
from toolcrib.bundles.archive import (
    ArchivedBundle,
    Contents,
    ToolLoss,
    apply,
    contents_of,
    read_folder,
    to_native,
)
from toolcrib.errors import ConflictError, ManifestError, NotFoundError
from toolcrib.manifest import load_tools
from toolcrib.spec.identifier import new_id

DATA = Path(__file__).parents[3] / "data"
MOMENT = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(text)
    return folder


def read(folder: Path, slug: str = "read") -> tuple[Contents, list[ToolLoss]]:
    return read_folder(folder, ArchivedBundle(id=new_id(), slug=slug), MOMENT)


def lost(losses: list[ToolLoss]) -> dict[str, Any]:
    return {f"{one.tool} {one.loss.path}": one.loss.was for one in losses}


def test_a_bundle_becomes_a_folder_of_tools(store: Store, tmp_path: Path) -> None:
    files, losses = to_native(store, filled(store))
    assert files["read_notes/tool.yml"] == MANIFEST.encode()
    loaded = load_tools(written(tmp_path / "tools", files))
    assert [one.name for one in loaded.tools] == ["forecast", "read_notes"]
    assert not any(finding.is_error for finding in loaded.diagnostics)
    forecast = loaded.tools[0]
    assert (forecast.version, forecast.tags) == ("v1", ("sky",))  # the only enabled one
    assert lost(losses)["forecast $.version"] == "v2"


def test_manifests_make_the_round_trip_byte_for_byte(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "tools"
    for name in ("weather", "web_search"):
        shutil.copytree(DATA / "glee" / name, source / name)
    contents, losses = read(source)
    assert losses == []
    made = apply(store, contents)
    files, losses = to_native(store, made.bundle_id)
    assert files == {
        f"{name}/tool.yml": (source / name / "tool.yml").read_bytes() for name in ("weather", "web_search")
    }
    assert lost(losses) == {"read $.isEnabled": False}  # it landed disabled
    again, _ = read(written(tmp_path / "again", files))
    assert again.tools == contents.tools


def test_records_of_flexigpt_stay_records(store: Store, tmp_path: Path) -> None:
    record = {
        "schemaVersion": "xyz", "bundleID": new_id(), "slug": "forecast", "version": "v2", "type": "http",
        "displayName": "Forecast", "description": "Says what comes", "isEnabled": True, "tags": ["sky"],
        "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "impl": {"urlTemplate": "https://example.com/${city}?k=${KEY}", "method": "GET"},
        "createdAt": "2024-05-14T13:44:00Z", "modifiedAt": "2024-05-14T13:44:00Z",
    }  # fmt: skip
    (tmp_path / "tools/forecast").mkdir(parents=True)
    (tmp_path / "tools/forecast/tool.json").write_text(json.dumps(record))
    contents, losses = read(tmp_path / "tools")
    assert losses == []
    (one,) = contents.tools
    assert (one.slug, one.version, one.type, one.display_name) == ("forecast", "v2", "http", "Forecast")
    assert (one.impl, one.arg_schema, one.tags) == (record["impl"], record["argSchema"], ("sky",))
    made = apply(store, contents)
    files, losses = to_native(store, made.bundle_id)
    again, _ = read(written(tmp_path / "again", files))
    assert again.tools[0].type == "native"
    assert again.tools[0].description == "Says what comes"


def test_files_beside_a_manifest_are_reported(tmp_path: Path) -> None:
    source = tmp_path / "tools"
    shutil.copytree(DATA / "glee" / "weather", source / "weather")
    (source / "weather" / "scripts").mkdir()
    (source / "weather" / "scripts" / "x.sh").write_text("")
    _, losses = read(source)
    assert lost(losses) == {"weather $.files": "scripts/x.sh"}


def test_folders_that_cannot_be_a_bundle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError):
        read(tmp_path / "empty")
    bad = written(tmp_path / "bad", {"a/tool.yml": b"name: a\n", "read_notes/tool.yml": MANIFEST.encode()})
    with pytest.raises(ManifestError) as caught:
        read(bad)
    assert "a/tool.yml" in caught.value.message
    dashed = MANIFEST.replace("read_notes", "read-notes").encode()
    same = {"read_notes/tool.yml": MANIFEST.encode(), "read-notes/tool.yml": dashed}
    with pytest.raises(ConflictError):
        read(written(tmp_path / "same", same))


def test_tools_that_cannot_be_manifests_are_refused(store: Store) -> None:
    bundle = new_id()
    store.put_bundle(bundle, BundleBody(slug="a"))
    store.put_tool(bundle, "x", "1", tool(impl={"urlTemplate": 7}))
    with pytest.raises(ManifestError):
        to_native(store, bundle)
    store.delete_tool(bundle, "x", "1")
    store.put_tool(bundle, "read-notes", "3", native())
    store.put_tool(bundle, "other", "3", native())
    with pytest.raises(ConflictError):
        to_native(store, bundle)
    assert len(contents_of(store, bundle).tools) == 2
