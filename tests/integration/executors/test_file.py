"""File tools: one file read or written beneath the granted paths."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest

from tests.crib import Crib, failed
from tests.descriptors import reads_from_memory
from toolcrib.project import Project

PATH = {"p": {"type": "string"}, "content": {}}


def reader(crib: Crib, *grants: str, **more: Any) -> None:
    config = {"action": "read", "path": "${p}", **more.pop("config", {})}
    crib.tool("read", "file", config, PATH, permissions={"fs": {"read": list(grants)}}, **more)


def writer(crib: Crib, *grants: str, read: tuple[str, ...] = (), **config: Any) -> None:
    config = {"action": "write", "path": "${p}", "content": "${content}", **config}
    crib.tool("write", "file", config, PATH, permissions={"fs": {"write": list(grants), "read": list(read)}})


def test_reading(crib: Crib) -> None:
    crib.write("docs/a.txt", "Grüße")
    crib.write("data.bin", b"\xffx")
    reader(crib, "docs", "data.bin")
    assert crib.call("read", {"p": "docs/a.txt"}).value == "Grüße"
    assert crib.call("read", {"p": str(crib.root / "docs/a.txt")}).value == "Grüße"
    result = crib.call("read", {"p": "data.bin"})
    assert result.value == "\ufffdx"
    assert "not UTF-8" in result.warnings[0]
    reader(crib, ".", config={"encoding": "base64"})
    assert base64.b64decode(crib.call("read", {"p": "data.bin"}).unwrap()) == b"\xffx"


def without_waiting(project: Project, path: str) -> object:
    """What a call gives that never gives the event loop away; None if it does."""
    call = project.call("read", {"p": path})
    try:
        call.send(None)
    except StopIteration as ended:
        return ended.value.unwrap()
    call.close()
    return None


async def test_a_small_file_is_read_at_once_and_a_large_one_in_a_thread(crib: Crib) -> None:
    reader(crib, "docs")
    crib.write("docs/large.txt", "x" * 70_000)
    async with crib.open() as project:
        for content in ("one", "other"):
            crib.write("docs/a.txt", content)
            assert (await project.call("read", {"p": "docs/a.txt"})).unwrap() == content
            if reads_from_memory(crib.root / "docs/a.txt"):
                # Somebody who renames a folder makes the kernel refuse it for a moment.
                assert any(without_waiting(project, "docs/a.txt") == content for _ in range(100))
        assert without_waiting(project, "docs/large.txt") is None
        assert len((await project.call("read", {"p": "docs/large.txt"})).unwrap()) == 70_000


def test_a_long_file_is_cut_and_says_so(crib: Crib) -> None:
    crib.write("long", "x" * 500)
    reader(crib, ".", limits={"output_bytes": 100})
    result = crib.call("read", {"p": "long"})
    assert result.value == "x" * 100
    assert result.warnings[0] == (
        "the file is cut at the tool's limit: 100 of 500 bytes are returned;"
        " to get all, raise limits.output_bytes in the manifest"
    )


@pytest.mark.parametrize("kept", range(8, 30))
def test_a_file_that_is_cut_within_a_secret_shows_no_part_of_it(crib: Crib, kept: int) -> None:
    crib.secrets = {"TOKEN": "sk-live-4711-abcdefgh"}
    crib.write("notes", "before sk-live-4711-abcdefgh and after")
    more: dict[str, Any] = {"limits": {"output_bytes": kept}}
    crib.tool("owner", "command", {"entrypoint": "true"}, permissions={"secrets": {"TOKEN": {}}})
    reader(crib, ".", **more)
    shown = "before " + "***TOKEN***" * (kept > 27) + " "[: kept - 28]

    assert crib.call("read", {"p": "notes"}).value == shown
    reader(crib, ".", config={"encoding": "base64"}, **more)
    assert base64.b64decode(crib.call("read", {"p": "notes"}).unwrap()).decode() == shown


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "secret/f", "docs/../secret/f", "docs/out", "docs/up/f"]
)
def test_nothing_outside_of_the_grants_is_read(crib: Crib, path: str) -> None:
    crib.write("secret/f", "canary")
    crib.write("docs/f", "")
    (crib.root / "docs/out").symlink_to("/etc/passwd")
    (crib.root / "docs/up").symlink_to("../secret")
    reader(crib, "docs")
    assert "path escapes sandbox" in failed(crib.call("read", {"p": path}), "permission_denied")
    assert crib.last().event == "TOOL_REFUSED"


def test_a_grant_of_one_file_is_for_that_file(crib: Crib) -> None:
    crib.write("a.txt", "a")
    crib.write("b.txt", "b")
    reader(crib, "a.txt")
    assert crib.call("read", {"p": "a.txt"}).value == "a"
    failed(crib.call("read", {"p": "b.txt"}), "permission_denied")


def test_what_is_hidden_and_what_is_not_a_file(crib: Crib) -> None:
    crib.write(".env", "canary")
    crib.write(".toolcrib/state.db", "canary")
    os.link(crib.root / ".env", crib.root / "hard")
    (crib.root / "soft").symlink_to(".env")
    os.mkfifo(crib.root / "pipe")
    reader(crib, ".")
    for path in (".env", ".toolcrib/state.db", "hard", "soft", "pipe"):
        failed(crib.call("read", {"p": path}), "permission_denied")
    failed(crib.call("read", {"p": ".toolcrib"}), "invalid_input")
    for path in ("gone", "gone/f"):
        failed(crib.call("read", {"p": path}), "not_found")
    for path in ("", "a\0b"):
        failed(crib.call("read", {"p": path}), "invalid_input")


@pytest.mark.parametrize("grant", ["/", "/proc", "/proc/self"])
def test_our_own_environment_is_not_read_through_proc(crib: Crib, grant: str) -> None:
    reader(crib, grant, approval={"required": True, "reason": "it is wide"})
    failed(crib.call("read", {"p": "/proc/self/environ"}, approved_by="me"), "permission_denied")


def test_a_tool_without_grants_has_nothing(crib: Crib) -> None:
    crib.write("f", "")
    crib.tool("read", "file", {"action": "read", "path": "${p}"}, PATH)
    result = crib.call("read", {"p": "f"})
    assert "no fs.read permission" in failed(result, "permission_denied")
    # Not even its own folder.
    failed(crib.call("read", {"p": ".toolcrib/tools/read/tool.yml"}), "permission_denied")


def test_writing(crib: Crib) -> None:
    (crib.root / "out").mkdir()
    writer(crib, "out", mkdir=True, mode="0600")
    result = crib.call("write", {"p": "out/new/f", "content": "Grüße"})
    assert result.value == {"path": str(crib.root / "out/new/f"), "bytes": 7}
    assert (crib.root / "out/new/f").read_text() == "Grüße"
    assert (crib.root / "out/new/f").stat().st_mode & 0o777 == 0o600
    for content in (5, None, ["a"], "\ud800"):
        failed(crib.call("write", {"p": "out/f", "content": content}), "invalid_input")
    refused = crib.call("write", {"p": "out/f"}).error
    assert refused is not None
    assert "text around the placeholder" in str(refused.hint)
    assert not (crib.root / "out/f").exists()
    writer(crib, "out", encoding="base64")
    assert crib.call("write", {"p": "out/b", "content": "/wA="}).ok
    assert (crib.root / "out/b").read_bytes() == b"\xff\x00"
    failed(crib.call("write", {"p": "out/b", "content": "%%%"}), "invalid_input")


@pytest.mark.parametrize(
    "path",
    [
        "../x", "/tmp/x", ".env", ".toolcrib/config.yml", ".toolcrib/tools/write/tool.yml", ".glee/x",
        ".git/config", ".git/hooks/x", ".toolcrib/scratch/../config.yml", "docs/f", "link/x",
    ],
)  # fmt: skip
def test_special_places_are_never_written(crib: Crib, path: str) -> None:
    crib.write("docs/f", "old")
    crib.write(".git/config", "old")
    (crib.root / "link").symlink_to(crib.root.parent)
    writer(crib, ".", read=("docs",), mkdir=True)
    failed(crib.call("write", {"p": path, "content": "new"}), "permission_denied")
    assert (crib.root / "docs/f").read_text() == "old"
    assert not (crib.home / "config.yml").exists()


@pytest.mark.parametrize("grant", [".", ".toolcrib/scratch", ".toolcrib"])
def test_scratch_is_written_when_granted(crib: Crib, grant: str) -> None:
    writer(crib, grant)
    assert crib.call("write", {"p": ".toolcrib/scratch/f", "content": "x"}).ok
    assert (crib.home / "scratch/f").read_text() == "x"


def test_what_is_closed_inside_scratch_stays_so(crib: Crib) -> None:
    crib.write(".toolcrib/scratch/t.sh", "#!/bin/sh\necho honest", 0o755)
    crib.write(".toolcrib/scratch/env", "TOKEN=x")
    crib.write(".toolcrib/config.yml", "secrets: {sources: [{env_file: {path: .toolcrib/scratch/env}}]}")
    crib.tool("a", "command", {"entrypoint": ".toolcrib/scratch/t.sh"}, outputs={"format": "text"})
    writer(crib, ".toolcrib/scratch")
    for name in ("t.sh", "env"):
        failed(crib.call("write", {"p": f".toolcrib/scratch/{name}", "content": "x"}), "permission_denied")
    assert crib.call("write", {"p": ".toolcrib/scratch/free", "content": "x"}).ok
    assert crib.call("a").value == "honest\n"


def test_a_scratch_folder_that_is_a_link_is_refused(crib: Crib) -> None:
    (crib.root.parent / "victim").mkdir()
    (crib.home / "scratch").symlink_to(crib.root.parent / "victim")
    for grant in (".", ".toolcrib/scratch"):
        writer(crib, grant)
        failed(crib.call("write", {"p": ".toolcrib/scratch/f", "content": "x"}), "permission_denied")
    assert not (crib.root.parent / "victim/f").exists()


def test_a_grant_by_a_link_inside_the_project(crib: Crib) -> None:
    crib.write("real/f", "content")
    (crib.root / "link").symlink_to("real")
    reader(crib, "link")
    crib.trust_tools("read")
    assert crib.call("read", {"p": "link/f"}).value == "content"
    assert crib.call("read", {"p": "real/f"}).value == "content"
