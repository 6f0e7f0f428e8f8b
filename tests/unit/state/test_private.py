from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib.errors import ConfigError, StateUnavailable
from toolcrib.state import Vault, load_user_settings
from toolcrib.state.private import is_shared, make_private, put_private


@pytest.fixture
def shared_umask() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.usefixtures("shared_umask")
def test_folders_are_their_users_alone_at_every_level(tmp_path: Path) -> None:
    make_private(tmp_path / "a/b/c")
    put_private(tmp_path / "d/e/file", b"")
    for path in ("a", "a/b", "a/b/c", "d", "d/e"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o700, path
    assert (tmp_path / "d/e/file").stat().st_mode & 0o777 == 0o600


OTHER_GROUP = 4322
"""A number without a group on this machine."""


@pytest.mark.parametrize(
    ("name", "primary", "members", "own"),
    [
        ("ann", True, [], True),
        ("ann", True, ["ann"], True),
        ("ann", True, ["ann", "bob"], False),
        ("users", True, [], False),
        ("ann", False, [], False),
        (None, True, [], False),
    ],
)
def test_a_group_that_may_write_is_the_users_own_or_means_others(
    name: str | None,
    primary: bool,
    members: list[str],
    own: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = os.getegid()

    def user(_: int) -> pwd.struct_passwd:
        return pwd.struct_passwd(("ann", "x", os.geteuid(), group if primary else OTHER_GROUP, "", "/", ""))

    def of(_: int) -> grp.struct_group:
        if name is None:
            raise KeyError
        return grp.struct_group((name, "x", group, members))

    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr(grp, "getgrgid", of)
    settings, data = tmp_path / "settings/config.yml", tmp_path / "data"
    for folder in (settings.parent, data):
        folder.mkdir()
        folder.chmod(0o775)
    settings.write_text("database: sqlite")
    settings.chmod(0o664)
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(settings))
    if own:
        assert load_user_settings().database == "sqlite"
        assert Vault(Path("/a"), data).folder.is_dir()
    else:
        with pytest.raises(ConfigError, match="other users can write"):
            load_user_settings()
        with pytest.raises(StateUnavailable, match="other users can write"):
            _ = Vault(Path("/a"), data).folder
    settings.chmod(0o666)
    assert is_shared(settings.stat())
