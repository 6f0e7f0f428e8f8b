"""Where the project is."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.errors import ConflictError, ProjectNotFound
from toolcrib.project import find


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLCRIB_ROOT", raising=False)


@pytest.mark.parametrize("home", [".toolcrib", ".glee"])
def test_the_nearest_folder_upward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    (tmp_path / home).mkdir()
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")
    place = find()
    assert (place.root, place.home) == (tmp_path, tmp_path / home)
    assert place.tools == tmp_path / home / "tools"
    assert place.config == tmp_path / home / "config.yml"
    assert place.audit == tmp_path / home / "audit/tools.log"
    (tmp_path / "a" / home).mkdir()
    assert find().root == tmp_path / "a"


def test_a_root_that_is_named_must_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".toolcrib").mkdir()
    (tmp_path / "a b").mkdir()
    assert find(tmp_path).root == tmp_path
    with pytest.raises(ProjectNotFound) as caught:
        find(tmp_path / "a b")
    assert caught.value.hint == f"Make it one: toolcrib init '{tmp_path}/a b'"
    monkeypatch.setenv("TOOLCRIB_ROOT", str(tmp_path))
    monkeypatch.chdir("/")
    assert find().root == tmp_path
    monkeypatch.setenv("TOOLCRIB_ROOT", str(tmp_path / "a b"))
    with pytest.raises(ProjectNotFound):
        find()
    assert find(tmp_path).root == tmp_path, "what is named goes before the variable"


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProjectNotFound) as caught:
        find()
    assert caught.value.exit_code == 3


def test_real_paths(tmp_path: Path) -> None:
    (tmp_path / "real/.toolcrib").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    assert find(tmp_path / "link").root == tmp_path / "real"


def test_a_home_that_is_a_link_stays_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "project/..data/.toolcrib").mkdir(parents=True)
    (tmp_path / "other/.toolcrib").mkdir(parents=True)
    link = tmp_path / "project/.toolcrib"
    link.symlink_to("..data/.toolcrib")
    assert find(tmp_path / "project").home == tmp_path / "project/..data/.toolcrib"
    link.unlink()
    link.symlink_to(tmp_path / "other/.toolcrib")
    with pytest.raises(ConflictError, match=r"leads out of the project"):
        find(tmp_path / "project")


def test_a_file_is_no_home_and_two_homes_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / ".glee").mkdir()
    (tmp_path / ".toolcrib").write_text("")
    assert find(tmp_path).home == tmp_path / ".glee"
    (tmp_path / ".toolcrib").unlink()
    (tmp_path / ".toolcrib").mkdir()
    with pytest.raises(ConflictError):
        find(tmp_path)
