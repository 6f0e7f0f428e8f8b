"""The trust of a person in a project's settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcrib.errors import StateUnavailable
from toolcrib.guard import Trust
from toolcrib.state import Vault

A, B = "a" * 64, "b" * 64


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "project", tmp_path / "data")


def test_a_look_makes_nothing(vault: Vault) -> None:
    trust = Trust(vault)
    assert trust.current() is None
    assert not trust.is_trusted(A)
    assert not trust.revoke()
    assert not vault.path.exists()


def test_trust_holds_for_one_digest_until_it_is_revoked(vault: Vault) -> None:
    Trust(vault).accept(A, "ann")
    assert Trust(vault).is_trusted(A)
    assert not Trust(vault).is_trusted(B)
    assert not Trust(vault).is_trusted("")
    current = Trust(vault).accept(B, "bob")
    assert Trust(vault).current() == current
    assert (current.by, current.digest, current.at[-6:]) == ("bob", B, "+00:00")
    assert not Trust(vault).is_trusted(A)
    assert Trust(vault).revoke()
    assert not Trust(vault).is_trusted(B)


def test_trust_is_kept_for_its_user_alone_and_nothing_is_left_beside_it(vault: Vault) -> None:
    Trust(vault).accept(A, "ann")
    assert (vault.folder / "trust.json").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in vault.folder.iterdir()) == ["root", "trust.json"]


def test_another_project_is_not_trusted_with_it(tmp_path: Path) -> None:
    Trust(Vault(tmp_path / "a", tmp_path / "data")).accept(A, "ann")
    assert not Trust(Vault(tmp_path / "b", tmp_path / "data")).is_trusted(A)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"config_sha256": 5, "by": "x", "at": "y"}',
        '{"by": "x"}',
        "\xff",
        "[" * 90_000,
    ],
)
def test_a_damaged_file_trusts_nothing(vault: Vault, text: str) -> None:
    (vault.folder / "trust.json").write_text(text, encoding="latin-1")
    assert not Trust(vault).is_trusted(A)
    Trust(vault).accept(A, "ann")
    assert Trust(vault).is_trusted(A)


def test_what_stands_in_the_files_place_is_not_followed(vault: Vault, tmp_path: Path) -> None:
    Trust(vault).accept(A, "ann")
    real = vault.folder / "trust.json"
    elsewhere = tmp_path / "elsewhere"
    real.rename(elsewhere)
    real.symlink_to(elsewhere)
    assert not Trust(vault).is_trusted(A)
    real.unlink()
    os.mkfifo(real)
    assert not Trust(vault).is_trusted(A)
    real.unlink()
    real.mkdir()
    assert not Trust(vault).is_trusted(A)
    with pytest.raises(StateUnavailable):
        Trust(vault).accept(A, "ann")
    with pytest.raises(StateUnavailable):
        Trust(vault).revoke()


def test_a_folder_that_others_may_write_is_not_believed(vault: Vault) -> None:
    Trust(vault).accept(A, "ann")
    vault.path.chmod(0o777)
    with pytest.raises(StateUnavailable, match="other users can write"):
        Trust(vault).is_trusted(A)
