from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.descriptors import descriptors
from toolcrib.errors import StateUnavailable
from toolcrib.state import PROJECT, SqliteDatabase, Vault
from toolcrib.state.private import open_plain, sync_folder


def test_the_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    vault = Vault(Path("/some/project"), tmp_path / "data")
    assert not vault.path.exists()
    assert vault.folder.stat().st_mode & 0o777 == 0o700
    assert (vault.folder / "root").read_text() == "/some/project\n"


def test_projects_have_folders_of_their_own(tmp_path: Path) -> None:
    assert Vault(Path("/a"), tmp_path).folder != Vault(Path("/b"), tmp_path).folder


def test_the_origin_stays_and_is_no_other_projects(tmp_path: Path) -> None:
    first = Vault(Path("/a"), tmp_path).origin()
    assert first == Vault(Path("/a"), tmp_path).origin()
    assert first != Vault(Path("/b"), tmp_path).origin()


def test_the_origin_is_one_for_all_who_ask_first_at_once(tmp_path: Path) -> None:
    for attempt in range(50):
        together = threading.Barrier(4)

        def ask(data: Path = tmp_path / str(attempt), together: threading.Barrier = together) -> str:
            vault = Vault(Path("/a"), data)
            _ = vault.folder
            together.wait()
            return vault.origin()

        with ThreadPoolExecutor(4) as threads:
            told = {asked.result() for asked in [threads.submit(ask) for _ in range(4)]}
        (origin,) = told
        assert len(origin) == 32
        assert not [path.name for path in Vault(Path("/a"), tmp_path / str(attempt)).path.glob("origin.*")]


def test_an_origin_that_was_never_written_is_no_origin(tmp_path: Path) -> None:
    vault = Vault(Path("/a"), tmp_path)
    (vault.folder / "origin").write_text("")
    with pytest.raises(StateUnavailable, match="is empty"):
        vault.origin()


def test_a_key_that_was_cut_off_is_no_key(tmp_path: Path) -> None:
    vault = Vault(Path("/a"), tmp_path)
    (tmp_path / "grants-key").write_text(vault.key().hex()[:32])
    with pytest.raises(StateUnavailable, match="is damaged"):
        vault.key()


def test_an_origin_that_is_a_fifo_is_no_origin(tmp_path: Path) -> None:
    vault = Vault(Path("/a"), tmp_path)
    os.mkfifo(vault.folder / "origin")
    with pytest.raises(StateUnavailable, match="is empty"):
        vault.origin()


def test_an_origin_that_is_no_text_is_that_of_no_database(tmp_path: Path) -> None:
    vault = Vault(Path("/a"), tmp_path)
    with closing(SqliteDatabase(tmp_path / "state.db", PROJECT, origin=vault.origin())) as database:
        database.rows("SELECT 1")
    (vault.folder / "origin").write_bytes(b"\xff\xfe")
    with (
        closing(SqliteDatabase(tmp_path / "state.db", PROJECT, origin=vault.origin())) as database,
        pytest.raises(StateUnavailable, match="was not made here"),
    ):
        database.rows("SELECT 1")


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    vault = Vault(Path("/a"), tmp_path / "data")
    vault.folder.chmod(0o777)
    with pytest.raises(StateUnavailable, match="other users can write"):
        _ = vault.folder


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TOOLCRIB_DATA": "/x/data", "XDG_DATA_HOME": "/x/share"}, "/x/data"),
        ({"XDG_DATA_HOME": "/x/share", "HOME": "/x/home"}, "/x/share/toolcrib"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/x/home"}, "/x/home/.local/share/toolcrib"),
    ],
)
def test_where_the_data_lies(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TOOLCRIB_DATA", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Vault(Path("/a")).path.is_relative_to(expected)


def test_a_place_where_no_folder_can_be_made_says_so(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StateUnavailable) as caught:
        _ = Vault(Path("/a"), blocked).folder
    assert "TOOLCRIB_DATA" in (caught.value.hint or "")
    assert os.fspath(blocked) in caught.value.details["path"]


def test_a_folder_in_place_of_a_file_is_named_and_not_left_open(tmp_path: Path) -> None:
    before = descriptors()
    with pytest.raises(IsADirectoryError) as caught:
        open_plain(tmp_path)
    assert (caught.value.filename, descriptors()) == (str(tmp_path), before)


def test_a_folder_of_a_file_system_without_sync_is_no_error() -> None:
    sync_folder(Path("/proc/self"))  # fsync(2) gives EINVAL there
