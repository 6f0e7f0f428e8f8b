"""Looks at paths that are noted, and what is kept because of them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolcrib.errors import PermissionDenied, UsageError
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files import paths
from toolcrib.sandbox.files.paths import PathCache, Paths
from toolcrib.sandbox.host.handle import Stamps
from toolcrib.sandbox.host.order import CommandOrder
from toolcrib.sandbox.host.runner import order


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder, a file, and links to them."""
    root = tmp_path.resolve()
    (root / "folder" / "inner").mkdir(parents=True)
    (root / "file").write_text("text")
    for name, target in (
        ("to-folder", "folder"),
        ("to-link", "to-folder/inner"),
        ("absolute", f"{root}/to-link"),
        ("up", "../" + root.name + "/folder"),
        ("dead", "nothing/at/all"),
        ("self", "self"),
        ("round", "about"),
        ("about", "round"),
    ):
        (root / name).symlink_to(target)
    return root


NAMES = (
    "", "folder", "folder/inner/..", "to-folder/./inner", "to-link", "to-link/../..", "absolute/x/y",
    "up/inner", "dead", "dead/more", "file", "file/below", "nothing", "nothing/../file", "folder//inner/",
    "self", "round",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_it_resolves_as_the_standard_library_does(place: Path, name: str) -> None:
    path = f"{place}/{name}"
    seen = Paths()
    assert seen.real(path) == os.path.realpath(path)
    assert seen.exists(path.rstrip("/")) == os.path.lexists(path.rstrip("/"))
    assert seen.is_link(path.rstrip("/")) == Path(path).is_symlink()
    real = Path(os.path.realpath(path))
    assert seen.is_folder(path) == (real.is_dir() and not real.is_symlink())
    assert bool(seen.leads_to(path)) == (os.path.lexists(real) and not real.is_symlink())


def test_links_on_the_way_are_told_with_what_they_say(place: Path) -> None:
    assert Paths().links(f"{place}/absolute/x") == {
        f"{place}/absolute": f"{place}/to-link",
        f"{place}/to-link": "to-folder/inner",
        f"{place}/to-folder": "folder",
    }


def replace_by_link(path: Path, target: str) -> None:
    (path.with_name("new")).symlink_to(target)
    path.with_name("new").replace(path)


def move_behind_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def make_folder_of(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, Callable[[Path], object]] = {
    "a folder on the way becomes a link": lambda place: move_behind_link(place / "folder"),
    "a link leads elsewhere": lambda place: replace_by_link(place / "to-folder", "."),
    "what was not there is": lambda place: (place / "missing").touch(),
    "what was there is not": lambda place: (place / "file").unlink(),
    "a file becomes a folder": lambda place: make_folder_of(place / "file"),
    "a file becomes a link to itself moved": lambda place: move_behind_link(place / "file"),
    "settings are changed in place": lambda place: (place / "settings").write_text("home = /b"),
    "settings go": lambda place: (place / "settings").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_shows(place: Path, change: Callable[[Path], object]) -> None:
    (place / "settings").write_text("home = /a")
    seen = Paths()
    seen.real(f"{place}/to-link/x")
    seen.exists(f"{place}/missing")
    assert seen.leads_to(f"{place}/file") == stat.S_IFREG
    assert seen.text(f"{place}/settings", 100) == b"home = /a"
    assert seen.unchanged()
    change(place)
    assert not seen.unchanged()


def test_another_file_in_the_place_of_one_is_no_change_but_is_told_apart(place: Path) -> None:
    seen = Paths()
    before = seen.look(f"{place}/file").identity
    (place / "other").write_text("other")
    (place / "other").replace(place / "file")
    assert seen.look(f"{place}/file").identity == before
    assert seen.unchanged()
    assert seen.look(f"{place}/file").identity not in (before, None)


def test_things_are_worked_out_again_only_after_a_change(place: Path) -> None:
    kept: PathCache[str] = PathCache(2)
    worked: list[str] = []

    def work(seen: Paths) -> str:
        worked.append("x")
        return seen.real(f"{place}/to-folder")

    assert {kept.get("a", work) for _ in range(3)} == {f"{place}/folder"}
    assert len(worked) == 1
    replace_by_link(place / "to-folder", "file")
    assert kept.get("a", work) == f"{place}/file"
    for key in ("b", "c"):
        kept.get(key, work)
    assert len(worked) == 4
    kept.get("b", work)
    assert len(worked) == 4
    kept.get("a", work)
    assert len(worked) == 5, "more than two are kept"


def test_a_failure_is_not_kept(place: Path) -> None:
    kept: PathCache[str] = PathCache()

    def work(seen: Paths) -> str:
        if not seen.exists(f"{place}/missing"):
            raise FileNotFoundError
        return "there"

    with pytest.raises(FileNotFoundError):
        kept.get("a", work)
    (place / "missing").touch()
    assert kept.get("a", work) == "there"


def test_a_link_that_is_swapped_all_the_time_is_refused_and_not_waited_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(path: str) -> str:
        raise OSError(22, "Invalid argument", path)

    monkeypatch.setattr(os, "readlink", vanished)
    with pytest.raises(PermissionDenied, match="being changed"):
        Paths().real(f"{place}/to-folder")


def test_looks_stay_whole_while_somebody_swaps_file_and_link(place: Path) -> None:
    """Every look is of one moment: a link has its text, and nothing else has one."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            replace_by_link(place / "file", "folder")
            (place / "new").write_text("")
            (place / "new").replace(place / "file")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(2_000):
            seen = paths.look(f"{place}/file")
            assert seen[:2] in ((stat.S_IFLNK, "folder"), (stat.S_IFREG, "")), seen
    finally:
        stop.set()
        thread.join()


def made(place: Path, **rules: Any) -> CommandOrder:
    job = Confinement(argv=("true",), cwd="/tmp", read=(str(place),), hide=(f"{place}/.env",))
    return order(replace(job, **rules), "full")


def hidden(one: CommandOrder) -> set[str]:
    return {mount.target for mount in one.plan.mounts if mount.mode == "hide"}


def test_an_order_is_kept_until_a_path_of_it_leads_elsewhere(place: Path) -> None:
    (place / ".env").write_text("SECRET=1")
    first = made(place)
    assert made(place) is first
    assert hidden(first) == {f"{place}/.env"}
    # What must stay unreadable is now another file of the grant.
    (place / ".env").rename(place / "kept")
    (place / ".env").symlink_to("kept")
    assert hidden(made(place)) == {f"{place}/kept"}
    # A grant that is a link by now is another order as well; what is bound is checked by the launcher.
    assert made(place, cwd="/") is not first


def test_an_order_tells_what_its_paths_name_now(place: Path) -> None:
    def shown() -> Stamps:
        order = made(place)
        return order.paths.identities(order.sources)

    before = shown()
    assert shown() == before
    moved = place.with_name("moved")
    place.rename(moved)
    place.mkdir()
    after = shown()
    assert len(after) == len(before)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_what_an_order_depends_on_is_all_there(place: Path) -> None:
    plain = made(place)
    for name, value in (
        ("write", (f"{place}/folder",)), ("protect", (f"{place}/folder",)), ("links", ((f"{place}/l", "x"),)),
        ("empty", ("/somewhere",)), ("tmp_size", 4096), ("cpu_s", 1), ("file_size", 1), ("open_files", 10),
        ("memory_bytes", 1 << 20), ("processes", 9), ("network", "host"), ("cwd", str(place)),
    ):  # fmt: skip
        assert made(place, **{name: value}) is not plain, name
    assert made(place, timeout_ms=1, env={"A": "b"}, stdin=b"x", output_limit=5) is plain


def test_a_refused_job_is_refused_each_time(place: Path) -> None:
    for _ in range(2):
        with pytest.raises(UsageError):
            made(place, read=("relative",))
    for _ in range(2):
        with pytest.raises(PermissionDenied, match="never readable"):
            made(place, read=(f"{place}/.env",))


def test_what_to_protect_names_every_link_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/deep")
    base = os.path.realpath(tmp_path)
    assert Paths().to_protect(f"{base}/./link/x") == (f"{base}/link/x", f"{base}/real/deep/x")
    assert Paths().to_protect(f"{base}/link/../x") == (f"{base}/link", f"{base}/real/x")
