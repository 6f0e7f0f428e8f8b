"""Bearer tokens: made once, kept as digests, worthless when revoked or expired."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import ConflictError, InvalidToken, NotFoundError, UsageError
from toolcrib.guard import Tokens
from toolcrib.guard.trust import tokens
from toolcrib.guard.trust.tokens import well_formed
from toolcrib.spec import Caller
from toolcrib.state import Vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "project", tmp_path / "data")


@pytest.fixture
def kept(vault: Vault) -> Tokens:
    return Tokens(vault)


def test_a_token_says_who_calls(kept: Tokens) -> None:
    text = kept.create("ci", ["invoke", "read"], ["repo_*"], owner="ann")
    caller = kept.verify(text)
    assert (caller.name, caller.owner, caller.tools) == ("ci", "ann", ("repo_*",))
    assert caller.scopes == {"invoke", "read"}
    assert not caller.may("approve")
    assert kept.get("ci").caller == caller


def test_nothing_on_disk_gives_the_token_back(kept: Tokens, vault: Vault) -> None:
    text = kept.create("ci", ["admin"], owner="ann")
    kept.close()
    for path in vault.folder.iterdir():
        raw = path.read_bytes()
        assert text.encode() not in raw
        assert text[4:20].encode() not in raw
        assert path.name == "root" or path.stat().st_mode & 0o077 == 0
    assert text not in repr(kept.all())


def test_each_token_is_another(kept: Tokens) -> None:
    made = {kept.create(f"t{number}", ["read"], owner="ann") for number in range(20)}
    assert len(made) == 20
    assert all(len(text) == 53 and well_formed(text) for text in made)


def test_a_revoked_token_is_worthless_and_its_name_is_free(kept: Tokens) -> None:
    text = kept.create("ci", ["invoke"], owner="ann")
    assert kept.revoke("ci").name == "ci"
    with pytest.raises(InvalidToken, match="revoked"):
        kept.verify(text)
    again = kept.create("ci", ["invoke"], owner="ann")
    assert (kept.verify(again).name, kept.get("ci").as_dict()["name"]) == ("ci#2", "ci")
    assert kept.get("ci#2") == kept.get("ci")
    with pytest.raises(InvalidToken):
        kept.verify(text)


def test_an_expired_token_is_refused_by_name(kept: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    text = kept.create("ci", ["invoke"], owner="ann", expires=now + 60)
    assert kept.verify(text).name == "ci"
    monkeypatch.setattr(time, "time", lambda: now + 60)
    with pytest.raises(InvalidToken, match="'ci' has expired"):
        kept.verify(text)
    assert [token.caller.name for token in kept.all()] == ["ci"]


def test_a_caller_is_valid_only_as_long_as_its_token(kept: Tokens, vault: Vault) -> None:
    other = Tokens(vault)
    caller = kept.verify(kept.create("ci", ["invoke"], owner="ann"))
    other.require_valid(caller)
    kept.revoke("ci")
    again = kept.create("ci", ["invoke"], owner="ann")
    for tokens_ in (kept, other):
        with pytest.raises(InvalidToken, match="revoked"):
            tokens_.require_valid(caller)
        tokens_.require_valid(kept.verify(again))
    caller = kept.verify(again)
    for path in vault.folder.glob("tokens.db*"):
        path.unlink()
    with pytest.raises(InvalidToken, match="revoked"):
        other.require_valid(caller)


def test_a_remembered_token_ends_with_its_row_and_with_the_file(
    kept: Tokens, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, now = Tokens(vault), time.time_ns()
    callers = [other.verify(kept.create(name, ["invoke"], owner="ann")) for name in ("a", "b")]
    for later_s in (2, 2.5):  # Only a second after a change is a token remembered.
        monkeypatch.setattr(time, "time_ns", lambda at=later_s: now + int(at * 1e9))
        for caller in callers:
            other.require_valid(caller)
    kept.revoke("a")
    with pytest.raises(InvalidToken, match="revoked"):
        other.require_valid(callers[0])
    other.require_valid(callers[1])
    (vault.folder / "tokens.db").unlink()
    monkeypatch.setattr(time, "time_ns", lambda: now + 4_000_000_000)
    with pytest.raises(InvalidToken, match="revoked"):
        other.require_valid(callers[1])


def test_a_caller_without_a_stored_token_is_the_programs_own_claim(kept: Tokens) -> None:
    kept.require_valid(Caller("ci", frozenset({"invoke"})))


def test_an_expired_token_stays_expired_when_the_clock_goes_back(
    kept: Tokens, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    text = kept.create("ci", ["invoke"], owner="ann", expires=now + 60)
    caller = kept.verify(text)
    for at in (now + 60, now - 1_000):
        monkeypatch.setattr(time, "time", lambda at=at: at)
        for tokens_ in (kept, Tokens(vault)):
            with pytest.raises(InvalidToken, match="'ci' has expired"):
                tokens_.require_valid(caller)
            with pytest.raises(InvalidToken, match="'ci' has expired"):
                tokens_.verify(text)


@pytest.mark.parametrize(
    "text", ["", "x", "Bearer x", "tcr_", "tcr_" + "a" * 49, "tcr_é", "\ud800", "a" * 100_000]
)
def test_what_is_no_token_is_told_from_one_that_is_unknown(kept: Tokens, text: str) -> None:
    with pytest.raises(InvalidToken, match="incomplete or mistyped") as caught:
        kept.verify(text)
    assert caught.value.status == 401


def test_a_token_of_another_project_is_unknown(kept: Tokens, tmp_path: Path) -> None:
    other = Tokens(Vault(tmp_path / "other", tmp_path / "data"))
    text = other.create("ci", ["admin"], owner="ann")
    for _ in range(2):
        with pytest.raises(InvalidToken, match="unknown here"):
            kept.verify(text)
        kept.create(f"n{_}", ["read"], owner="ann")


@pytest.mark.timeout(60)
@given(st.data())
def test_no_change_of_a_token_is_a_token(data: st.DataObject) -> None:
    text = tokens._new_text()
    at = data.draw(st.integers(0, len(text) - 1))
    char = data.draw(st.characters().filter(lambda char: char != text[at]))
    assert not well_formed(text[:at] + char + text[at + 1 :])
    assert not well_formed(text + char)
    assert not well_formed(text[:-1])
    assert not well_formed(text + "\n")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"name": ""}, "cannot be the name"),
        ({"name": "a b"}, "cannot be the name"),
        ({"name": "a\n"}, "cannot be the name"),
        ({"name": "../x"}, "cannot be the name"),
        ({"name": "é"}, "cannot be the name"),
        ({"name": "x" * 65}, "cannot be the name"),
        ({"scopes": []}, "needs a scope"),
        ({"scopes": ["root"]}, "no scope 'root'"),
        ({"tools": []}, "1 to 100 patterns"),
        ({"tools": [""]}, "1 to 100 patterns"),
        ({"tools": ["x"] * 101}, "1 to 100 patterns"),
        ({"owner": ""}, "owner"),
        ({"expires": 1.0}, "in the future"),
        ({"expires": 9e12}, "ten years"),
        ({"expires": float("nan")}, "in the future"),
    ],
)
def test_what_cannot_be_a_token(kept: Tokens, vault: Vault, more: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"name": "ci", "scopes": ["read"], "tools": None, "owner": "ann", **more}
    name, scopes, tools_ = given.pop("name"), given.pop("scopes"), given.pop("tools")
    with pytest.raises(UsageError, match=told):
        kept.create(name, scopes, tools_, **given)
    assert not vault.path.exists()


def test_names_are_unique_and_tokens_bounded(kept: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.create("ci", ["read"], owner="ann")
    with pytest.raises(ConflictError, match="named 'ci' already"):
        kept.create("ci", ["admin"], owner="ann")
    monkeypatch.setattr(tokens, "MOST", 2)
    kept.create("b", ["read"], owner="ann")
    with pytest.raises(ConflictError, match="already 2 tokens"):
        kept.create("c", ["read"], owner="ann")


def test_an_unknown_name_is_told_with_the_nearest(kept: Tokens) -> None:
    kept.create("deploy", ["read"], owner="ann")
    for act in (kept.get, kept.revoke):
        with pytest.raises(NotFoundError) as caught:
            act("deplay")
        assert "deploy" in (caught.value.hint or "")


def test_a_look_makes_nothing(kept: Tokens, vault: Vault) -> None:
    assert kept.all() == []
    assert not vault.path.exists()


def test_a_token_is_verified_while_another_thread_closes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, look = Tokens(Vault(tmp_path / "project", tmp_path / "data")), tokens._file_state
    text = held.create("ci", ["read"], owner="ann")

    def closed_before(path: str, folder: int | None = None) -> tuple[int, int, int]:
        if folder is not None:
            held.close()
        return look(path, folder)

    monkeypatch.setattr(tokens, "_file_state", closed_before)
    assert held.verify(text).name == held.verify(text).name == "ci"
