"""The built-in file tools, on a real disk."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Forked
from toolcrib import Toolset
from toolcrib.errors import ToolNotFound, UnavailableError, UsageError
from toolcrib.sandbox import Root, Roots


class Disk:
    def __init__(self, folder: Path) -> None:
        self.work, self.data, self.outside = folder / "work", folder / "data", folder / "outside"
        for one in (self.work, self.data, self.outside):
            one.mkdir()
        (self.outside / "secret.txt").write_text("secret")
        self.tools = Toolset()
        self.tools.register_builtins(roots={"work": self.work, "data": self.data}, read_only=["data"])

    async def value(self, name: str, **arguments: Any) -> Any:
        return (await self.tools.call(name, arguments)).unwrap()

    async def refused(self, name: str, **arguments: Any) -> str:
        result = await self.tools.call(name, arguments)
        assert result.error is not None, result.value
        return f"{result.error.code}: {result.error.message}"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def test_files_are_written_read_appended_and_edited(disk: Disk) -> None:
    assert await disk.value("write_file", path="a/b/c.txt", content="één\n") == (
        "Successfully wrote 6 bytes to a/b/c.txt"
    )
    assert await disk.value("append_file", path="a/b/c.txt", content="two\n") == (
        "Successfully appended 4 bytes to a/b/c.txt"
    )
    edits = [{"old": "two", "new": "three"}, {"old": "e", "new": "E", "all": True}]
    assert await disk.value("edit_file", path="a/b/c.txt", edits=edits) == "Made 3 replacements in a/b/c.txt"
    assert await disk.value("read_file", path="a/b/c.txt") == "één\nthrEE\n"
    assert await disk.value("read_file", path=str(disk.work / "a/b/c.txt")) == "één\nthrEE\n"


async def test_a_folder_is_listed_in_both_forms(disk: Disk) -> None:
    (disk.work / "sub").mkdir()
    (disk.work / "f.txt").write_bytes(b"12345")
    (disk.work / "link").symlink_to("f.txt")
    assert await disk.value("list_files") == ["f.txt", "link", "sub/"]
    lines = (await disk.value("list_directory", path=".")).splitlines()
    assert lines[0] == "file          5  f.txt"
    assert [line.split()[0] for line in lines] == ["file", "link", "dir"]


async def test_edits_are_made_all_or_not_at_all(disk: Disk) -> None:
    (disk.work / "f").write_text("a b b")
    for edits in (
        [{"old": "a", "new": "x"}, {"old": "nowhere", "new": "x"}],
        [{"old": "a", "new": "x"}, {"old": "b", "new": "x"}],
    ):
        assert "nothing was changed: $.edits[1].old" in await disk.refused("edit_file", path="f", edits=edits)
        assert (disk.work / "f").read_text() == "a b b"


EDITOR = """\
import sys
from toolcrib import Toolset

tools = Toolset()
tools.register_builtins("edit_file", "append_file", roots=sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    word = f"{sys.argv[2]}{number}."
    edits = [{"old": word, "new": f"<{word}>"}]
    tools.call_sync("edit_file", {"path": "f", "edits": edits}).unwrap()
    tools.call_sync("append_file", {"path": "f", "content": f"+{word}"}).unwrap()
"""


def test_edits_and_appends_of_two_processes_at_once_lose_none(disk: Disk) -> None:
    words = [f"{name}{number}." for name in "ab" for number in range(20)]
    (disk.work / "f").write_text(" ".join(words))
    editors = [
        Forked(
            [sys.executable, "-c", EDITOR, str(disk.work), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for one in editors:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in editors:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in editors:
        one.communicate()
    assert [one.returncode for one in editors] == [0, 0]
    text = (disk.work / "f").read_text()
    assert [word for word in words if f"<{word}>" not in text or f"+{word}" not in text] == []


async def test_edits_at_once_lose_none(disk: Disk) -> None:
    (disk.work / "f").write_text(" ".join(f"{number}." for number in range(40)))
    await asyncio.gather(
        *(
            disk.value("edit_file", path="f", edits=[{"old": f" {number}.", "new": " x"}])
            for number in range(1, 40)
        )
    )
    assert (disk.work / "f").read_text() == "0." + " x" * 39


async def test_a_write_waits_for_the_edit_that_has_read_the_file(disk: Disk) -> None:
    (disk.work / "f").write_text("a")
    with Roots(Root(str(disk.work.resolve()))) as editing, editing.alone("f"):
        writing = asyncio.create_task(disk.value("write_file", path="f", content="b"))
        await asyncio.sleep(0.2)
        assert ((disk.work / "f").read_text(), writing.done()) == ("a", False)
        editing.write("f", b"edited")
    await writing
    assert (disk.work / "f").read_text() == "b"


def test_a_folder_that_stays_locked_is_an_error_in_time(disk: Disk) -> None:
    (disk.work / "f").write_text("a")
    root = Root(str(disk.work.resolve()))
    with Roots(root) as mine, Roots(root) as other, mine.alone("f"):
        waiting = other.alone("f", wait_s=0)
        with pytest.raises(UnavailableError, match="has locked the folder of this file: f") as caught:
            waiting.__enter__()
        assert caught.value.retryable
    with Roots(root) as again, again.alone("f", wait_s=0):
        pass


async def test_append_needs_a_file_that_exists(disk: Disk) -> None:
    assert await disk.refused("append_file", path="new", content="x") == (
        "not_found: no such file or folder: new"
    )
    assert not (disk.work / "new").exists()


@pytest.mark.parametrize(
    "path",
    ["../outside/secret.txt", "/etc/passwd", "link/secret.txt", "secret", "data:../outside/secret.txt"],
)
@pytest.mark.parametrize("name", ["read_file", "write_file", "append_file", "list_directory"])
async def test_a_path_that_leads_out_is_refused_and_shown_as_written(
    disk: Disk, name: str, path: str
) -> None:
    (disk.work / "link").symlink_to(disk.outside)
    (disk.work / "secret").symlink_to(disk.outside / "secret.txt")
    content = {"content": "x"} if name in ("write_file", "append_file") else {}
    assert (
        await disk.refused(name, path=path, **content) == f"permission_denied: path escapes sandbox: {path}"
    )
    assert (disk.outside / "secret.txt").read_text() == "secret"


async def test_named_and_read_only_roots(disk: Disk) -> None:
    (disk.data / "d.txt").write_text("data")
    assert await disk.value("read_file", path="data:d.txt") == "data"
    assert await disk.value("read_file", path=str(disk.data / "d.txt")) == "data"
    assert await disk.refused("write_file", path="data:d.txt", content="x") == (
        "permission_denied: this folder is read-only: data:d.txt"
    )
    with pytest.raises(UsageError, match="read_only names no root: dta"):
        Toolset().register_builtins(roots={"data": disk.data}, read_only=["dta"])


async def test_a_long_file_says_how_to_read_on(disk: Disk) -> None:
    text = "".join(f"line {n} é\n" for n in range(30_000))
    (disk.work / "long").write_text(text)
    size, read, offset = len(text.encode()), "", 0
    first = await disk.value("read_file", path="long")
    assert f" of {size:,}. To read on, call again with offset=" in first
    while True:
        part = await disk.value("read_file", path="long", offset=offset)
        body, cut, note = part.partition("\n[cut: bytes ")
        read += body
        if not cut:
            break
        offset = int(note.rpartition("offset=")[2].rstrip(".]"))
    assert read == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
async def test_no_character_is_parted_wherever_a_part_begins(disk: Disk, encoding: str, limit: int) -> None:
    text = "\ufeffa é 日本 \U0001f600\U0001f600 z"
    data = text.encode(encoding)
    (disk.work / "f.txt").write_bytes(data)
    read, offset = "", 0
    while True:
        part = await disk.value("read_file", path="f.txt", offset=offset, limit=limit)
        body, cut, note = part.partition("\n[cut: bytes ")
        begin = int(note.partition(" ")[0]) if cut else offset
        assert begin == offset, "the next part begins where this one ends"
        read += body
        if not cut:
            break
        offset = int(note.rpartition("offset=")[2].rstrip(".]"))
    assert read == text.removeprefix("\ufeff")
    for offset in range(len(data)):
        part = await disk.value("read_file", path="f.txt", offset=offset, limit=100)
        assert "\ufffd" not in part, offset
        assert text.endswith(part), offset


async def test_other_encodings_are_shown_with_a_warning(disk: Disk) -> None:
    for name, data, text, warning in (
        (
            "latin.txt",
            b"caf\xe9 b\xe9b\xe9\n",
            "caf\ufffd b\ufffdb\ufffd\n",
            "the file is not UTF-8 (byte 3)",
        ),
        ("latin", b"caf\xe9\n", "caf\ufffd\n", "the file is not UTF-8 (byte 3)"),
        ("wide.txt", "\ufeffé 日本".encode("utf-16-le"), "é 日本", "the file is UTF-16, not UTF-8"),
        ("wide", "\ufeffé 日本".encode("utf-16-be"), "é 日本", "the file is UTF-16, not UTF-8"),
    ):
        (disk.work / name).write_bytes(data)
        result = await disk.tools.call("read_file", {"path": name})
        assert result.unwrap() == text
        (said,) = result.warnings
        assert warning in said
    (disk.work / "plain.txt").write_text("é")
    assert (await disk.tools.call("read_file", {"path": "plain.txt"})).warnings == ()
    (disk.work / "blob").write_bytes(bytes(range(256)))
    assert (await disk.tools.call("read_file", {"path": "blob"})).blocks


async def test_a_file_is_not_listed_as_a_folder(disk: Disk) -> None:
    (disk.work / "f.txt").write_text("x")
    for name in ("list_directory", "list_files"):
        assert await disk.refused(name, path="f.txt") == "invalid_input: is not a folder: f.txt"
        assert await disk.refused(name, path="gone") == "not_found: no such file or folder: gone"


async def test_pipes_devices_and_hard_links_are_no_way_out(disk: Disk) -> None:
    os.mkfifo(disk.work / "pipe")
    assert "not a regular file: pipe" in await disk.refused("read_file", path="pipe")
    os.link(disk.outside / "secret.txt", disk.work / "hard")
    assert "hard link" in await disk.refused("append_file", path="hard", content="x")
    assert "NUL" in await disk.refused("read_file", path="a\0b")


async def test_an_unknown_name_or_option_is_an_error_with_the_nearest_one(disk: Disk) -> None:
    with pytest.raises(ToolNotFound) as caught:
        Toolset().register_builtins("read_fil", roots=disk.work)
    assert caught.value.hint == "Did you mean read_file?"
    with pytest.raises(UsageError, match="options of web_search"):
        Toolset().register_builtins(roots=disk.work, options={"web_search": {"provider": "searxng"}})
    arguments = {"path": "x", "folow": True}
    assert "folow" in await disk.refused("read_file", **arguments)


def test_a_toolset_can_have_some_of_them_and_filter(disk: Disk) -> None:
    tools = Toolset()
    assert tools.register_builtins("read_file", "list_files", roots=disk.work) == ["read_file", "list_files"]
    assert disk.tools.filter("read_file", "web_search").names == ["read_file", "web_search"]
    assert len(disk.tools.names) == 13
