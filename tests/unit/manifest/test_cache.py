"""The cache of manifests: it is used at the next start, and never changes what is loaded."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.unit.manifest.native.samples import COMMAND
from toolcrib.errors import ManifestError
from toolcrib.manifest import CheckResult, LazyTools, ManifestCache, load_tools
from toolcrib.spec import Tool

COUNT = 210
OPENED: list[str] = []
"""Manifests that this process opens."""


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and str(arguments[0]).endswith("tool.yml"):
        OPENED.append(str(arguments[0]))


sys.addaudithook(_audit)


def load(folder: Path, cache: Path | None) -> LazyTools:
    return ManifestCache(folder, cache).load()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    for number in range(COUNT):
        write(folder, f"t{number}")
    settle(folder)
    return folder


def write(folder: Path, name: str, description: str = "Scans a folder") -> Path:
    path = folder / name / "tool.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = COMMAND.replace("name: scan", f"name: {name}").replace("Scans a folder", description)
    path.write_text(text + "permissions: {secrets: {TOKEN: {type: string}}}\n")
    return path


def settle(folder: Path) -> None:
    """Wait until the files are old enough for their times to tell a change."""
    newest = max(path.stat().st_ctime_ns for path in folder.glob("*/tool.yml"))
    while time.time_ns() - newest < 150_000_000:
        pass


def loaded(folder: Path, cache: Path | None) -> list[Tool]:
    late = load(folder, cache)
    assert late.found == []
    return [late.make(name)[0] for name in late.names]


def test_the_second_start_reads_no_manifest_and_gives_the_same(tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "manifests"
    first = loaded(tools, cache)
    assert cache.stat().st_mode & 0o777 == 0o600
    OPENED.clear()
    second = loaded(tools, cache)
    assert OPENED == []
    assert second == first == list(load_tools(tools).tools)


def change(path: Path) -> None:
    write(path.parent.parent, path.parent.name, "Another thing")


def change_back_in_time(path: Path) -> None:
    """Of the same size, and with the times of before."""
    before = path.stat()
    path.write_text(path.read_text().replace("Scans", "Burns"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swap(path: Path) -> None:
    other = path.with_name("other")
    other.write_text(path.read_text().replace("Scans", "Burns"))
    other.replace(path)


def test_a_manifest_that_changed_is_read(tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "manifests"
    for how in (change, change_back_in_time, swap):
        loaded(tools, cache)
        how(tools / "t7" / "tool.yml")
        write(tools, "u")
        for path in (tools / "t8").iterdir():
            path.unlink()
        assert loaded(tools, cache) == list(load_tools(tools).tools), how
        write(tools, "t7")
        write(tools, "t8")
        settle(tools)


def test_what_changed_a_moment_ago_is_not_cached(tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "manifests"
    path = write(tools, "t7", "First thing")
    loaded(tools, cache)
    before = path.stat()
    path.write_text(path.read_text().replace("First", "Other"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert loaded(tools, cache) == list(load_tools(tools).tools)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(10_000))


def other_entry(path: Path) -> None:
    """What an entry says is changed, its digest not."""
    path.write_bytes(path.read_bytes().replace(b"Scans a folder", b"Burns a folder"))


def other_index(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"t7","t70"', b'"t7"{"t70"'))


def other_secret(path: Path) -> None:
    """The index reads well, but does not say what it said."""
    content = path.read_bytes()
    count = f'{{"TOKEN":{COUNT}}}'.encode()
    assert (content.count(b'["TOKEN"]'), content.count(count)) == (COUNT, 1)
    path.write_bytes(content.replace(count, count.replace(b"O", b"U")))


def no_index(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b"\n") + 1
    path.write_bytes(content[:at] + b"\xff" * 8 + content[at + 8 :])


def open_to_others(path: Path) -> None:
    other_entry(path)
    path.chmod(0o666)


def link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


HARMS = (
    cut, empty, noise, other_entry, other_index, other_secret, no_index, open_to_others, link, pipe,
)  # fmt: skip


def test_a_damaged_or_foreign_file_changes_nothing(tools: Path, tmp_path: Path) -> None:
    expected = list(load_tools(tools).tools)
    for harm in HARMS:
        cache = tmp_path / harm.__name__
        loaded(tools, cache)
        harm(cache)
        assert loaded(tools, cache) == expected, harm
        assert load(tools, cache).facts.every("secrets") == {"TOKEN"}, harm


def test_a_broken_entry_of_a_manifest_that_changed_since_is_refused(tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "manifests"
    loaded(tools, cache)
    other_entry(cache)
    late = load(tools, cache)
    write(tools, "t7", "Another thing")
    (tools / "t8" / "tool.yml").unlink()
    (tools / "t9" / "tool.yml").write_text("name: [")
    for name, reported in (
        ("t7", "has changed since"),
        ("t8", "has changed since"),
        ("t9", "a value is missing here"),
    ):
        with pytest.raises(ManifestError, match=reported):
            late.make(name)
    assert late.make("t10")[0].description == "Scans a folder"


def test_a_file_of_another_folder_is_not_used(tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "manifests"
    loaded(tools, cache)
    tools = tools.rename(tmp_path / "moved")
    OPENED.clear()
    loaded(tools, cache)
    assert len(OPENED) == COUNT


def test_bad_manifests_are_reported_each_time(tools: Path, tmp_path: Path) -> None:
    (tools / "t7" / "tool.yml").write_text("name: [")
    for _ in range(2):
        late = load(tools, tmp_path / "manifests")
        assert [finding.rule for finding in late.found] == ["yaml-syntax"]
        assert len(late.names) == COUNT - 1
        assert late.rest == ["t7"]


def test_few_manifests_or_no_folder_for_it_need_no_cache(tools: Path, tmp_path: Path) -> None:
    assert len(loaded(tools, Path("/proc/nowhere/manifests"))) == COUNT
    assert len(loaded(tools, None)) == COUNT
    few = tmp_path / "few"
    write(few, "t")
    loaded(few, tmp_path / "manifests")
    assert not (tmp_path / "manifests").exists()


def test_what_all_tools_declare_follows_each_change(tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "manifests"
    path = write(tools, "t7")
    path.write_text(path.read_text().replace("TOKEN", "OTHER"))
    settle(tools)
    assert load(tools, cache).facts.every("secrets") == {"TOKEN", "OTHER"}
    path.write_text(path.read_text().replace("OTHER", "THIRD"))
    facts = load(tools, cache).facts
    assert (facts.every("secrets"), facts["t7"].secrets) == ({"TOKEN", "THIRD"}, ["THIRD"])
    facts.forget("t7")
    assert ("t7" in facts, facts.every("secrets"), len(facts)) == (False, {"TOKEN"}, COUNT - 1)


def test_one_check_among_many_is_kept_for_the_next_start(tools: Path, tmp_path: Path) -> None:
    path, result = tmp_path / "manifests", CheckResult(False, None, [])
    loaded(tools, path)
    size = path.stat()
    for name in ("t7", "t8"):
        cache = ManifestCache(tools, path)
        late = cache.load()
        assert cache.check_result(name, late.mark(name)) is None
        cache.add_check(name, late.mark(name), result, b"{}")
        cache.close(late.names)
    assert path.stat() == size
    write(tools, "t8", "Another thing")
    again = ManifestCache(tools, path)
    late = again.load()
    assert again.check_result("t7", late.mark("t7")) == result
    assert again.check_result("t8", late.marks["t8"]) is None
