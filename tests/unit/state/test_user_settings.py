from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.errors import ConfigError
from toolcrib.state import UserSettings, load_user_settings

ALLOWED = "decide_without_terminal: [{what: [trust], where: [/p]}]"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TOOLCRIB_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    folder = tmp_path / "xdg/toolcrib"
    folder.mkdir(parents=True, mode=0o700)
    return folder / "config.yml"


def test_without_a_file_they_are_the_defaults(file: Path) -> None:
    assert load_user_settings() == UserSettings()
    file.write_text("")
    assert load_user_settings() == UserSettings()
    assert not load_user_settings().allows("trust", Path("/p"))


def test_decisions_are_allowed_by_what_and_where(file: Path) -> None:
    file.write_text(
        "decide_without_terminal:\n"
        "- what: [trust, approve]\n  where: [/srv/shop/, /srv/blog]\n"
        "- what: [token]\n  where: [/srv/blog]\n"
    )
    settings = load_user_settings()
    for root in ("/srv/shop", "/srv/blog"):
        assert settings.allows("trust", Path(root))
        assert settings.allows("approve", Path(root))
        assert settings.allows("token", Path(root)) is (root == "/srv/blog")
    for other in ("/srv", "/srv/shop/inner", "/srv/shop2"):
        assert not settings.allows("trust", Path(other))


def test_the_home_folder_is_the_last_place(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(ALLOWED)
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not load_user_settings().decide_without_terminal
    (tmp_path / "xdg").rename(tmp_path / ".config")
    assert load_user_settings().decide_without_terminal


def test_what_is_wrong_is_named_with_its_line(file: Path) -> None:
    for text, message in (
        ("- 1", "must be a mapping"),
        ("accept: []", ":1:1: `accept` is not a setting; known here: database"),
        ("\ndecide_without_terminal: true", ":2:1: decide_without_terminal: must be a list"),
        (
            "decide_without_terminal:\n- what: [trust]",
            ":2:3: decide_without_terminal: each entry has exactly",
        ),
        (ALLOWED.replace("trust", "all"), "decide_without_terminal: must be a list of trust, approve, token"),
        (ALLOWED.replace("/p", '"*"'), "decide_without_terminal: must be a list of absolute paths"),
        (ALLOWED.replace("/p", "p"), "decide_without_terminal: must be a list of absolute paths"),
        ("a: [", "config.yml"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_user_settings()
        assert message in caught.value.message, text


def test_a_file_that_another_user_could_write_is_refused(file: Path) -> None:
    file.write_text(ALLOWED)
    for path in (file, file.parent, file.parent.parent):
        mode = path.stat().st_mode
        path.chmod(mode | 0o002)
        with pytest.raises(ConfigError, match="other users can write"):
            load_user_settings()
        path.chmod(mode)
    assert load_user_settings().decide_without_terminal


def test_a_file_in_a_project_is_refused(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clone/.toolcrib").mkdir(parents=True)
    planted = tmp_path / "clone/config.yml"
    planted.write_text(ALLOWED)
    file.symlink_to(planted)
    with pytest.raises(ConfigError, match="is in the project"):
        load_user_settings()
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(planted))
    with pytest.raises(ConfigError, match="is in the project"):
        load_user_settings()


def test_a_named_file_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(tmp_path / "none.yml"))
    with pytest.raises(ConfigError, match=r"none\.yml cannot be read"):
        load_user_settings()
