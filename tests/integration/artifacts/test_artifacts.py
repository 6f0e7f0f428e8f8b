"""Outputs that are too long, or not text: kept as artifacts, read by their own caller only."""

from __future__ import annotations

import base64
import time
from pathlib import Path, PosixPath
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib import Project
from toolcrib.errors import NotFoundError
from toolcrib.spec import Call, Caller
from toolcrib.spec.identifier import new_id
from toolcrib.spec.views import text_view
from toolcrib.state.artifacts import Artifacts

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
AGENT = Caller("agent", frozenset({"invoke"}))


class Wall:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_artifacts_expire_and_the_oldest_make_room(tmp_path: Path) -> None:
    wall = Wall()
    kept = Artifacts(tmp_path / "a", kept_s=60, quota_bytes=1_000, clock=wall)
    first = kept.put(b"x" * 600, "text/plain", tool="t", call_id=None, caller="local")
    assert kept.read(first.id, "local", 10, 5) == b"xxxxx"
    second = kept.put(b"y" * 600, "text/plain", tool="t", call_id=None, caller="local")
    assert [one.id for one in kept.all("local")] == [second.id]
    assert not Path(first.path).exists()
    wall.now += 61
    with pytest.raises(NotFoundError):
        kept.get(second.id, None)
    assert kept.all(None) == []
    assert (tmp_path / "a" / f"{second.id}.json").stat().st_mode & 0o777 == 0o600


def test_what_a_killed_process_has_left_is_removed_later(tmp_path: Path) -> None:
    wall = Wall()
    wall.now = time.time()
    kept = Artifacts(tmp_path, quota_bytes=1_000, clock=wall)

    def put() -> str:
        return kept.put(b"x" * 400, "text/plain", tool="t", call_id=None, caller="local").id

    first = put()
    killed = [tmp_path / f"{new_id()}.data", tmp_path / f".{new_id()}.data.0123456789abcdef"]
    for path in killed:
        path.write_bytes(b"left")
    (tmp_path / "folder").mkdir()
    for _ in range(4):
        put()
    assert all(path.exists() for path in killed)
    wall.now += 3_700
    last = [put() for _ in range(4)][-1]
    assert not any(path.exists() for path in killed)
    assert kept.read(last, "local") == b"x" * 400
    with pytest.raises(NotFoundError):
        kept.get(first, None)


class Folder(PosixPath):
    """A folder that counts how often all its files were looked at."""

    looks = 0

    def glob(self, *pattern: Any) -> Any:
        Folder.looks += 1
        return super().glob(*pattern)


def test_not_every_output_needs_a_look_at_all_others(tmp_path: Path) -> None:
    kept = Artifacts(Folder(tmp_path), quota_bytes=16_000)
    for _ in range(100):
        kept.put(b"x" * 100, "text/plain", tool="t", call_id=None, caller="local")
    assert Folder.looks == 10
    assert len(kept.all(None)) == 100
    for _ in range(100):
        kept.put(b"x" * 100, "text/plain", tool="t", call_id=None, caller="local")
    assert 145 <= len(kept.all(None)) <= 160


@pytest.mark.parametrize("id_", ["", "../x", "0" * 36, "a/b"])
def test_only_ids_of_artifacts_are_looked_for(tmp_path: Path, id_: str) -> None:
    with pytest.raises(NotFoundError):
        Artifacts(tmp_path).get(id_, None)


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def project_with(crib: Crib, value: Any) -> Project:
    project = Project.open(crib.root, accept="all")
    project.toolset.register("long", lambda: value, description="Returns much.")
    return project


async def test_a_long_output_is_cut_kept_and_read_on(crib: Crib) -> None:
    text = "".join(f"line {n} é\n" for n in range(10_000))
    async with project_with(crib, text) as project:
        assert "artifact_read" not in project.toolset.names
        result = await project.call("long")
        assert result.value == text
        assert result.details is not None
        artifact = result.details["artifact"]
        assert artifact["size"] == len(text.encode())
        assert read(artifact["path"]) == text.encode()
        shown = text_view(result)
        head, _, note = shown.rpartition("\n[cut: ")
        assert f"artifact_read with id={artifact['id']} and offset=" in note
        whole, offset = head, len(head.encode())
        while offset < artifact["size"]:
            part = (await project.call("artifact_read", {"id": artifact["id"], "offset": offset})).unwrap()
            part = part.rpartition("\n[cut: ")[0] or part
            whole, offset = whole + part, offset + len(part.encode())
        assert whole == text


async def test_only_its_own_caller_reads_an_artifact(crib: Crib) -> None:
    async with project_with(crib, {"rows": ["x" * 100] * 1_000}) as project:
        outputs = project.outputs
        result = await project.invoke(Call("long", {}, "mcp:one"))
        assert result.details is not None
        found = result.details["artifact"]["id"]
        assert outputs.store.get(found, outputs.readable("mcp:one", None)).media_type == "application/json"
        assert outputs.store.get(found, outputs.readable("cli", None)).id == found
        for other in (("mcp:two", None), ("mcp:one", AGENT)):
            with pytest.raises(NotFoundError):
                outputs.store.get(found, outputs.readable(*other))
        refused = await project.invoke(Call("artifact_read", {"id": found}, "mcp:two"))
        assert refused.error is not None
        assert refused.error.code == "not_found"


def test_secrets_are_masked_in_what_is_kept(crib: Crib) -> None:
    crib.secrets = {"TOKEN": "secret-token-0815"}
    crib.shell(permissions={"secrets": {"TOKEN": {"type": "string"}}}, limits={"output_bytes": 60_000})
    result = crib.call("sh", {"c": "yes $TOKEN | head -c 58000"})
    assert result.details is not None
    assert "artifact" not in result.details
    crib.shell("sh2", permissions={"secrets": {"TOKEN": {"type": "string"}}})
    kept = crib.call("sh2", {"c": "yes $TOKEN | head -c 200000"}).details
    assert kept is not None
    assert "secret-token" not in Path(kept["artifact"]["path"]).read_text()


async def test_images_and_binary_files_are_content_and_never_broken_text(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "builtins: [read_file]\n")
    crib.write("a.png", PNG)
    crib.write("b.bin", b"\0\xff" * 40_000)
    async with Project.open(crib.root, accept="all") as project:
        image = await project.call("read_file", {"path": "a.png"})
        assert image.blocks[0]["mimeType"] == "image/png"
        assert base64.b64decode(image.blocks[0]["data"]) == PNG
        assert text_view(image) == "[image image/png]"
        large = await project.call("read_file", {"path": "b.bin"})
        assert large.blocks[0]["type"] == "resource_link"
        assert large.details is not None
        (kept,) = large.details["artifacts"]
        assert large.blocks[0]["uri"] == kept["uri"] == f"toolcrib://artifacts/{kept['id']}"
        assert read(kept["path"]) == b"\0\xff" * 40_000
        again = await project.call("artifact_read", {"id": kept["id"]})
        assert again.ok
