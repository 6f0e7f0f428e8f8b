"""The ledger of trust: what a person has accepted, kept apart from the project."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib.errors import StateUnavailable
from toolcrib.guard import SETTINGS, Ledger, Trusted
from toolcrib.state import Vault

A, B = "a" * 64, "b" * 64


class Clock:
    """A clock that a test moves, in seconds since the epoch."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "project", tmp_path / "data")


@pytest.fixture
def ledger(vault: Vault) -> Iterator[Ledger]:
    ledger = Ledger(vault)
    yield ledger
    ledger.close()


@pytest.fixture
def other(vault: Vault) -> Iterator[Ledger]:
    """The ledger as another process has it open: with a connection of its own."""
    other = Ledger(vault)
    yield other
    other.close()


def tool(digest: str, name: str = "t", **more: object) -> Trusted:
    return Trusted(f"tool:{name}", digest, shown={"parts": {"manifest": digest}}, **more)  # type: ignore[arg-type]


def test_to_look_creates_nothing(ledger: Ledger, vault: Vault) -> None:
    assert ledger.last(SETTINGS) is None
    assert not ledger.holds("tool:t", A)
    assert ledger.known() == {}
    assert ledger.makers() == {}
    assert ledger.text(A) is None
    assert ledger.revoke() == 0
    assert not vault.data.exists()


def test_trust_is_in_one_digest_of_one_subject_and_others_see_it(ledger: Ledger, other: Ledger) -> None:
    ledger.accept([tool(A)], "ann", "terminal")
    assert other.holds("tool:t", A)
    assert not other.holds("tool:t", B)
    assert not other.holds("tool:u", A)
    assert not other.holds("tool:t", A, "a bundle")
    row = other.last("tool:t")
    assert row is not None
    assert (row.by, row.channel, row.digest, row.shown) == ("ann", "terminal", A, {"parts": {"manifest": A}})
    assert row.at > 0
    assert row.until is None


def test_an_earlier_version_stays_trusted_and_the_newest_is_the_last(ledger: Ledger, other: Ledger) -> None:
    for digest in (A, B):
        ledger.accept([tool(digest)], "ann", "terminal")
    assert other.holds("tool:t", A)
    assert [row.digest for row in other.all("tool:t")] == [B, A]
    ledger.accept([tool(A)], "bob", "terminal")
    last = other.last("tool:t")
    assert last is not None
    assert (last.digest, last.by) == (A, "bob")
    assert len(other.all("tool:t")) == 2


def test_what_is_accepted_together_is_accepted_whole_or_not_at_all(ledger: Ledger, other: Ledger) -> None:
    broken = Trusted("tool:u", B, shown={"parts": object()})
    with pytest.raises(TypeError):
        ledger.accept([tool(A), broken], "ann", "terminal", [b"a text"])
    assert other.known() == {}
    assert not ledger.holds("tool:t", A)


def test_known_names_everything_of_which_a_version_is_trusted(ledger: Ledger, other: Ledger) -> None:
    ledger.accept([Trusted(SETTINGS, A), tool(A), tool(B)], "ann", "terminal")
    assert set(other.known()) == {(SETTINGS, ""), ("tool:t", "")}
    ledger.accept([tool(A, "u", bundle="x")], "ann", "terminal")
    assert set(other.known()) == set(ledger.known()) == {(SETTINGS, ""), ("tool:t", ""), ("tool:u", "x")}


@pytest.mark.parametrize(
    ("what", "left"),
    [
        ((), set()),
        (("tool:t",), {SETTINGS}),
        (("tool:t", "", A), {SETTINGS, "tool:t"}),
        (("tool:t", "a bundle"), {SETTINGS, "tool:t"}),
    ],
)
def test_revoked_trust_ends_in_every_process(
    ledger: Ledger, other: Ledger, what: tuple[str, ...], left: set[str]
) -> None:
    ledger.accept([Trusted(SETTINGS, A), tool(A), tool(B)], "ann", "terminal")
    assert other.holds("tool:t", A)  # What was read before must not count any more.
    ended = ledger.revoke(*what)
    assert {subject for subject, _ in other.known()} == left
    assert other.holds("tool:t", A) == ledger.holds("tool:t", A) == (ended == 0)
    assert other.holds("tool:t", B) == ("tool:t" in left)


def test_trust_can_end_at_a_time(vault: Vault) -> None:
    clock = Clock()
    ledger = Ledger(vault, clock=clock)
    ledger.accept([tool(A, until=clock.now + 60)], "ann", "terminal")
    assert ledger.holds("tool:t", A)
    clock.now += 61
    assert not ledger.holds("tool:t", A)
    assert ledger.last("tool:t") is None
    ledger.close()


def test_only_the_newest_versions_of_a_subject_are_kept(vault: Vault) -> None:
    ledger = Ledger(vault)
    ledger.accept([Trusted(SETTINGS, A)], "ann", "terminal")
    for number in range(60):
        ledger.accept([tool(f"{number:064}")], "ann", "terminal")
    held = [number for number in range(60) if ledger.holds("tool:t", f"{number:064}")]
    assert held == list(range(10, 60))
    assert ledger.holds(SETTINGS, A)
    ledger.close()


def test_one_decision_costs_the_same_beside_many_others(ledger: Ledger) -> None:
    ledger.accept([tool(A, f"t{number}") for number in range(3_000)], "ann", "terminal")
    steps: list[int] = []
    # Called for each 1,000 instructions of SQLite.
    ledger._database._writer.connection().set_progress_handler(lambda: steps.append(1), 1_000)  # type: ignore[attr-defined]
    ledger.accept([tool(B, "t0")], "ann", "terminal")
    assert ledger.revoke("tool:t0") == 2
    assert len(steps) < 3


def test_the_texts_that_were_shown_are_kept_by_their_content(ledger: Ledger, other: Ledger) -> None:
    ledger.accept([tool(A)], "ann", "terminal", [b"echo 1\n", b"echo 1\n"])
    ledger.accept([tool(B)], "ann", "terminal", [b"echo 1\n"])
    assert other.text(hashlib.sha256(b"echo 1\n").hexdigest()) == b"echo 1\n"
    assert other.text(A) is None


def test_who_made_a_tool_is_seen_by_every_process_and_can_be_taken_back(
    ledger: Ledger, other: Ledger
) -> None:
    entry = ledger.note_maker("t", "claude", "0" * 64)
    assert ledger.makers() == other.makers() == {"t": "claude"}
    other.note_maker("u", "codex", "0" * 64)
    assert ledger.makers() == {"t": "claude", "u": "codex"}
    ledger.drop_maker(entry)
    ledger.close()
    assert ledger.makers() == other.makers() == {"u": "codex"}


def test_the_version_changes_when_any_process_changes_something(ledger: Ledger, other: Ledger) -> None:
    ledger.accept([tool(A)], "ann", "terminal")
    before = ledger.version, other.version
    assert (ledger.version, other.version) == before
    other.accept([tool(B)], "ann", "terminal")
    assert ledger.version != before[0]
    assert other.version != before[1]


def test_another_project_is_not_trusted_with_it(vault: Vault, ledger: Ledger) -> None:
    ledger.accept([Trusted(SETTINGS, A)], "ann", "terminal")
    assert not Ledger(Vault(vault.root.parent / "another", vault.data)).holds(SETTINGS, A)


def test_the_file_is_for_its_user_alone(vault: Vault, ledger: Ledger) -> None:
    ledger.accept([Trusted(SETTINGS, A)], "ann", "terminal")
    files = [path for path in vault.folder.iterdir() if path.name.startswith("trust.db")]
    assert files
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_damaged_file_trusts_nothing(vault: Vault) -> None:
    (vault.folder / "trust.db").write_text("no database " * 100)
    ledger = Ledger(vault)
    with pytest.raises(StateUnavailable):
        ledger.holds(SETTINGS, A)
    with pytest.raises(StateUnavailable):
        ledger.accept([Trusted(SETTINGS, A)], "ann", "terminal")


def test_a_link_in_the_place_of_the_file_is_not_followed(vault: Vault, tmp_path: Path) -> None:
    ledger = Ledger(vault)
    ledger.accept([Trusted(SETTINGS, A)], "ann", "terminal")
    ledger.close()
    elsewhere = tmp_path / "elsewhere.db"
    (vault.folder / "trust.db").rename(elsewhere)
    (vault.folder / "trust.db").symlink_to(elsewhere)
    with pytest.raises(StateUnavailable):
        Ledger(vault).holds(SETTINGS, A)


def test_a_folder_that_others_may_write_is_not_believed(vault: Vault) -> None:
    ledger = Ledger(vault)
    ledger.accept([Trusted(SETTINGS, A)], "ann", "terminal")
    ledger.close()
    vault.path.chmod(0o777)
    with pytest.raises(StateUnavailable, match="other users can write"):
        Ledger(vault).last(SETTINGS)
