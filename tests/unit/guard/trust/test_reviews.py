"""Reviews: what a person has looked at, kept apart from the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.errors import StateUnavailable
from toolcrib.guard import Reviews, ToolDigest, shown
from toolcrib.spec import FileExec, Source, Tool
from toolcrib.state import Vault


def tool(raw: bytes = b"name: t\n", name: str = "t") -> Tool:
    source = Source("native", f"/p/tools/{name}/tool.yml", raw, "")
    return Tool(name, "D.", "file", {"type": "object"}, FileExec("read", "x"), source=source)


def digest(mark: str) -> ToolDigest:
    return ToolDigest(mark * 64, {"manifest": mark, "files/a": "same"})


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "project", tmp_path / "data")


def test_nothing_is_made_before_there_is_something_to_keep(vault: Vault) -> None:
    reviews = Reviews(vault)
    assert reviews.status(tool(), digest("a")).status == "new"
    assert reviews.creators() == {}
    reviews.forget("t", "project", "a" * 64)
    assert not vault.data.exists()


def test_a_review_is_of_one_digest_and_others_see_it(vault: Vault) -> None:
    Reviews(vault).accept(tool(), digest("a"), "ann")
    reviews = Reviews(vault)
    assert reviews.status(tool(), digest("a")).status == "reviewed"
    assert reviews.status(tool(name="u"), digest("a")).status == "new"
    changed = reviews.status(tool(), digest("b"))
    assert (changed.status, changed.last and changed.last.by) == ("changed", "ann")
    reviews.accept(tool(), digest("b"), "bob")
    assert reviews.is_reviewed(tool(), "a" * 64)
    reviews.forget("t", "project", "b" * 64)
    assert not reviews.is_reviewed(tool(), "b" * 64)


def test_the_diff_is_against_the_newest_review_and_shows_every_character(vault: Vault) -> None:
    reviews = Reviews(vault)
    assert reviews.status(tool(b"a\n"), digest("a")).diff(tool(b"a\n")).splitlines()[2:] == [
        "@@ -0,0 +1 @@",
        "+a",
    ]
    reviews.accept(tool(b"a\nb\n"), digest("a"), "ann")
    new = tool("a\nb\u202e\x1b[0m\u2028\n".encode() + b"\xff\n")
    told = reviews.status(new, digest("b")).diff(new)
    assert "-b\n+b\\u202e\\x1b[0m\\u2028\n+\\xff" in told


def test_only_the_newest_reviews_of_a_tool_are_kept(vault: Vault) -> None:
    ticks = iter(range(10_000))
    reviews = Reviews(vault, clock=lambda: float(next(ticks)))
    for number in range(60):
        reviews.accept(tool(), ToolDigest(f"{number:064}", {}), "ann")
    held = [number for number in range(60) if reviews.is_reviewed(tool(), f"{number:064}")]
    assert held == list(range(10, 60))


def test_who_made_a_tool_is_seen_by_every_process_and_can_be_taken_back(vault: Vault) -> None:
    one, other = Reviews(vault), Reviews(vault)
    entry = one.note("t", "claude", "0" * 64)
    assert one.creators() == other.creators() == {"t": "claude"}
    other.note("u", "codex", "0" * 64)
    assert one.creators() == {"t": "claude", "u": "codex"}
    one.drop(entry)
    one.close()
    assert one.creators() == other.creators() == {"u": "codex"}


def test_a_folder_that_others_may_write_is_not_believed(vault: Vault) -> None:
    Reviews(vault).accept(tool(), digest("a"), "ann")
    vault.path.chmod(0o777)
    with pytest.raises(StateUnavailable):
        Reviews(vault).status(tool(), digest("a"))


def test_every_character_that_steers_is_shown_as_its_escape() -> None:
    assert shown("a\tb\nc é 天") == "a\tb\nc é 天"
    assert shown("\u2764\ufe0f 1\ufe0f\u20e3") == "\u2764\ufe0f 1\ufe0f\u20e3"
    hidden = "\ufe00\ufe0f\U000e0100\u3164\u115f\u2800\u034f"  # An interpreter reads what nobody sees.
    assert shown(f"a{hidden}") == "a\\ufe00\\ufe0f\\U000e0100\\u3164\\u115f\\u2800\\u034f"
    assert shown("\x00\x1b\x7f\x9b\u200b\U000e0041\ud800") == "\\x00\\x1b\\x7f\\x9b\\u200b\\U000e0041\\ud800"
