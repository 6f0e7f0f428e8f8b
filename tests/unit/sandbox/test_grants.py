"""From grants to mounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib.errors import PermissionDenied, UsageError
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.grants import Mount, MountPlan, plan


def made(**rules: Any) -> MountPlan:
    return plan(Confinement(argv=("true",), **{"cwd": "/", **rules}))


def modes(**rules: Any) -> dict[str, str]:
    """The mode of each mount over the base system, in order."""
    return {m.target: m.mode for m in made(**rules).mounts if m.target.startswith(("/p", "/q"))}


def test_nothing_granted_is_the_base_system_alone() -> None:
    bare = made()
    assert all(m.mode == "ro?" for m in bare.mounts)
    assert all(m.target.startswith(("/usr", "/bin", "/sbin", "/lib", "/etc/")) for m in bare.mounts)
    assert "/usr" in {m.target for m in bare.mounts}
    private = {"/etc/shadow", "/etc/ssl", "/etc/ssl/private", "/etc"}
    assert not private & {m.target for m in bare.mounts}


def test_grants_come_parents_first_and_nest_both_ways() -> None:
    found = modes(write=("/p/a/b", "/p"), read=("/p/a", "/q", "/p/a/b/c"))
    assert list(found.items()) == [
        ("/p", "rw"), ("/p/a", "ro"), ("/p/a/b", "rw"), ("/p/a/b/c", "ro"), ("/q", "ro"),
    ]  # fmt: skip


def test_write_wins_over_read_on_one_path() -> None:
    assert modes(read=("/p",), write=("/p",)) == {"/p": "rw"}


def test_only_places_nothing_holds_are_made() -> None:
    made_at = {m.target: m.make for m in made(read=("/p", "/p/x", "/q/r")).mounts if m.mode == "ro"}
    assert made_at == {"/p": True, "/p/x": False, "/q/r": True}


def test_a_sibling_with_the_same_beginning_is_no_child() -> None:
    assert modes(write=("/p",), protect=("/pp/x",)) == {"/p": "rw"}


def test_protection_beats_writing_and_scratch_beats_protection() -> None:
    found = modes(write=("/p", "/p/t/tools"), protect=("/p/t",), scratch=("/p/t/s",))
    assert found == {"/p": "rw", "/p/t": "ro?", "/p/t/s": "rw", "/p/t/tools": "ro"}


def test_protection_of_what_is_not_writable_needs_no_mount() -> None:
    assert modes(read=("/p",), protect=("/p/t", "/q/t")) == {"/p": "ro"}


def test_folders_above_something_taken_away_are_held_in_place() -> None:
    found = modes(write=("/p",), protect=("/p/a/b/c",))
    assert found == {"/p": "rw", "/p/a": "rw?", "/p/a/b": "rw?", "/p/a/b/c": "ro?"}
    assert list(found) == sorted(found)


def test_they_are_held_through_nested_writable_grants_as_well() -> None:
    found = modes(write=("/p", "/p/a/b"), read=("/p/a/b/c/d",))
    assert found == {"/p": "rw", "/p/a": "rw?", "/p/a/b": "rw", "/p/a/b/c": "rw?", "/p/a/b/c/d": "ro"}


def test_nothing_writable_above_needs_no_holding() -> None:
    assert modes(read=("/p",), write=("/p/a/b",)) == {"/p": "ro", "/p/a/b": "rw"}


def test_hidden_places_are_masked_where_they_could_be_seen() -> None:
    assert modes(write=("/p",), hide=("/p/a/.env", "/q/.env")) == {
        "/p": "rw",
        "/p/a": "rw?",
        "/p/a/.env": "hide",
    }
    assert modes(read=("/p",), hide=("/p/x", "/p/x/y")) == {"/p": "ro", "/p/x": "hide"}
    assert [m for m in made(hide=("/usr/share",)).mounts if m.mode == "hide"] == [
        Mount("", "/usr/share", "hide", False)
    ]


@pytest.mark.parametrize("kind", ["read", "write", "scratch"])
@pytest.mark.parametrize("path", ["/p/x", "/p/x/y"])
def test_what_is_hidden_cannot_be_granted(kind: str, path: str) -> None:
    with pytest.raises(PermissionDenied, match="/p/x is never readable"):
        made(**{kind: (path,), "hide": ("/p/x",)})


def test_unprotected_names_what_the_command_could_make(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    there, missing = str(tmp_path / "there"), str(tmp_path / "missing")
    found = made(write=(str(tmp_path),), protect=(there, missing))
    assert found.unprotected == (missing,)
    assert made(read=(str(tmp_path),), protect=(missing,)).unprotected == ()


def test_links_are_followed_to_what_must_be_hidden(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to("real")
    found = made(read=(str(tmp_path),), hide=(str(tmp_path / "link"),))
    assert [m.target for m in found.mounts if m.mode == "hide"] == [str(tmp_path / "real")]


def test_links_to_what_is_protected_or_hidden_are_held_in_a_writable_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/way").symlink_to("../b")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/link").symlink_to("real")
    (tmp_path / "b/real").touch()
    base = str(tmp_path)
    held = {f"{base}/a": "rw?", f"{base}/a/way": "link", f"{base}/b": "rw?", f"{base}/b/link": "link"}

    for kind, mode in (("protect", "ro?"), ("hide", "hide")):
        found = made(write=(base,), **{kind: (f"{base}/a/way/link",)})
        modes = {m.target: m.mode for m in found.mounts if m.target.startswith(f"{base}/")}
        assert modes == {**held, f"{base}/b/real": mode}
    made_of = made(read=(base,), protect=(f"{base}/a/way/link",)).mounts
    assert not [m for m in made_of if m.target.startswith(f"{base}/")]


@pytest.mark.parametrize("path", ["", "p", "/p/", "/p/../q", "/p/./q", "//p", "/p\0"])
@pytest.mark.parametrize("kind", ["read", "write", "protect", "scratch", "hide", "empty"])
def test_paths_must_be_absolute_and_normal(kind: str, path: str) -> None:
    with pytest.raises(UsageError):
        made(**{kind: (path,)})


@pytest.mark.parametrize("path", ["/", "/proc", "/proc/1/root", "/sys", "/dev", "/dev/sda"])
@pytest.mark.parametrize("kind", ["read", "write", "scratch", "empty"])
def test_places_of_the_kernel_cannot_be_granted(kind: str, path: str) -> None:
    with pytest.raises(PermissionDenied):
        made(**{kind: (path,)})


@pytest.mark.parametrize("cwd", ["/", "/tmp", "/usr/bin", "/bin", "/p", "/p/a", "/q/empty"])
def test_working_folders_that_will_be_there(cwd: str) -> None:
    made(cwd=cwd, read=("/p",), empty=("/q/empty",))


@pytest.mark.parametrize("cwd", ["/q", "/tmp/x", "/home", "/pp", "/etc"])
def test_working_folders_that_will_not(cwd: str) -> None:
    with pytest.raises(PermissionDenied, match="not granted"):
        made(cwd=cwd, read=("/p",), empty=("/q/empty",))


def test_an_empty_folder_gives_way_to_a_grant() -> None:
    assert modes(empty=("/p",)) == {"/p": "empty"}
    assert modes(empty=("/p", "/q/x"), read=("/p",)) == {"/p": "ro", "/q/x": "empty"}


def test_links_are_shown_where_nothing_else_is() -> None:
    links = (("/q/link", "/p/real"), ("/p/inside", "real"), ("/r", "/p"), ("/q/above", "x"))
    found = made(read=("/p", "/q/above/x"), empty=("/r/sub",), links=links)
    assert [link for link in found.links if link in links] == [("/q/link", "/p/real")]


def test_a_link_of_the_base_system_is_shown_once() -> None:
    base = made().links
    assert made(links=base).links == base
