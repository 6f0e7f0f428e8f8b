"""Requests that wait for a person, decisions, and the calls that they allow."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Address
from tests.guarded import START, Wall, approvals, ask, state, vault
from toolcrib.errors import (
    ApprovalDenied,
    ConflictError,
    DeniedError,
    InvalidError,
    InvalidInput,
    InvalidToken,
    NotFoundError,
    RateLimited,
)
from toolcrib.guard import Approval, Approvals, Permit, canonical, may_decide
from toolcrib.spec import Caller
from toolcrib.state import PROJECT, SqliteDatabase

DAY = 86_400.0


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def desk(address: Address, wall: Wall) -> Approvals:
    return approvals(address, clock=wall)


def waits(desk: Approvals, *args: Any, **more: Any) -> Approval:
    found = desk.seek(ask(*args, **more))
    assert isinstance(found, Approval), found
    assert found.status == "pending"
    return found


def runs(desk: Approvals, *args: Any, **more: Any) -> Permit:
    found = desk.seek(ask(*args, **more))
    assert isinstance(found, Permit), found
    return found


# --- waiting


def test_a_call_that_nobody_allowed_waits_with_all_that_a_person_must_know(desk: Approvals) -> None:
    found = waits(desk, 7, call_id="c1", token="t1")
    assert found.tool == "pay"
    assert found.arguments == b'{"n":7}'
    assert found.arguments_digest == hashlib.sha256(b'{"n":7}').hexdigest()
    assert found.tool_digest == "d" * 64
    assert (found.caller, found.owner, found.token, found.session_id) == ("mcp:agent", "ada", "t1", "s1")
    assert found.reason == "it is dear"
    assert found.touches == ("network: example.com",)
    assert found.expires_at == START + 7 * DAY
    assert found.as_dict()["expires_at"] == "2027-01-22T08:00:00Z"
    assert desk.find(found.id) == found
    assert found.id[14] == "7"


def test_the_same_question_is_one_approval(desk: Approvals) -> None:
    first = waits(desk, 1)
    assert waits(desk, 1).id == first.id
    assert waits(desk, 1, call_id="another").id == first.id
    assert [one.id for one in desk.list()] == [first.id]


@pytest.mark.parametrize(
    "other",
    [
        {"number": 2},
        {"tool": "pay2"},
        {"bundle": "other"},
        {"tool_digest": "e" * 64},
        {"caller": "mcp:other"},
        {"owner": "bob"},
        {"token": "t2"},
        {"rule": "other"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_question_is_another_approval_and_a_yes_to_one_is_none_to_the_other(
    desk: Approvals, other: dict[str, Any]
) -> None:
    first = waits(desk, 1)
    desk.approve(first.id, "ada")
    second = waits(desk, **{"number": 1, **other})
    assert second.id != first.id


def test_another_session_asks_the_same_question(desk: Approvals) -> None:
    first = waits(desk)
    second = waits(desk, session_id="s2")
    assert second.id == first.id
    assert second.session_id == "s2"
    assert second.seal != first.seal


def test_names_that_run_into_each_other_are_not_one(desk: Approvals) -> None:
    assert waits(desk, caller="a", owner="b,c").id != waits(desk, caller="a,b", owner="c").id


def test_approvals_are_listed_in_pages_the_newest_first(desk: Approvals, wall: Wall) -> None:
    ids = []
    for number in range(25):
        wall.now += 1
        ids.append(waits(desk, number).id)
    found: list[str] = []
    while page := desk.list("pending", 10, before=found[-1] if found else None):
        found += [one.id for one in page]
    assert found == ids[::-1]
    desk.approve(ids[3], "ada")
    desk.deny(ids[4], "ada")
    assert [one.id for one in desk.list("approved")] == [ids[3]]
    assert [one.id for one in desk.list("denied")] == [ids[4]]
    assert len(desk.list("pending")) == 23
    assert len(desk.list()) == 25
    with pytest.raises(InvalidError, match="no status"):
        desk.list("nonsense")  # type: ignore[arg-type]  # what is refused


def test_an_approval_that_does_not_exist_is_named_so(desk: Approvals) -> None:
    acts: list[Callable[[], object]] = [
        lambda: desk.find("nothing"),
        lambda: desk.approve("nothing", "ada"),
        lambda: desk.deny("nothing", "ada"),
        lambda: desk.revoke("nothing"),
        lambda: desk.void("nothing"),
    ]
    for act in acts:
        with pytest.raises(NotFoundError):
            act()


# --- once


def test_once_is_once(desk: Approvals) -> None:
    asked = waits(desk)
    done = desk.approve(asked.id, "ada", note="go on")
    assert (done.status, done.decided_by, done.scope, done.note) == ("approved", "ada", "once", "go on")
    assert runs(desk) == Permit("ada", "once", asked.id, b'{"n":0}', False)
    assert desk.find(asked.id).status == "used"
    assert waits(desk).id != asked.id


def test_a_yes_can_be_used_by_another_session_of_the_same_caller(desk: Approvals) -> None:
    desk.approve(waits(desk).id, "ada")
    assert runs(desk, session_id="s2").scope == "once"


def test_a_decision_is_made_once(desk: Approvals) -> None:
    asked = waits(desk)
    desk.approve(asked.id, "ada")
    with pytest.raises(ConflictError, match="decided by ada"):
        desk.deny(asked.id, "bob")
    with pytest.raises(ConflictError):
        desk.approve(asked.id, "bob")
    with pytest.raises(InvalidError, match="name of the person"):
        desk.approve(asked.id, "")


def test_edited_arguments_run_instead(desk: Approvals) -> None:
    asked = waits(desk, 5)
    done = desk.approve(asked.id, "ada", arguments=b'{"n":1}')
    assert done.edited == b'{"n":1}'
    assert done.arguments == b'{"n":5}'
    assert done.as_dict()["edited"] == {"n": 1}
    permit = runs(desk, 5)
    assert (permit.arguments, permit.edited) == (b'{"n":1}', True)


def test_edited_arguments_are_no_leave_to_ask_with_them(desk: Approvals) -> None:
    desk.approve(waits(desk, 5).id, "ada", arguments=b'{"n":1}')
    waits(desk, 1)


@pytest.mark.parametrize("scope", ["session", "arguments", "rule"])
def test_edited_arguments_run_once_only(desk: Approvals, scope: Any) -> None:
    with pytest.raises(InvalidError, match="changed arguments"):
        desk.approve(waits(desk).id, "ada", scope, b"{}")


# --- lasting grants


def test_for_these_arguments_always(desk: Approvals) -> None:
    asked = waits(desk, 1)
    desk.approve(asked.id, "ada", "arguments")
    assert [runs(desk, 1).scope for _ in range(3)] == ["arguments"] * 3
    assert runs(desk, 1, session_id="s9").approval_id == asked.id
    waits(desk, 2)


def test_for_this_session(desk: Approvals) -> None:
    desk.approve(waits(desk, 1).id, "ada", "session")
    assert runs(desk, 2).scope == "session"
    waits(desk, 1, session_id="s2")
    waits(desk, 1, session_id=None)
    waits(desk, 1, rule="another")


def test_without_a_session_there_is_none_to_approve(desk: Approvals) -> None:
    asked = waits(desk, session_id=None)
    with pytest.raises(InvalidError, match="no session"):
        desk.approve(asked.id, "ada", "session")
    assert desk.find(asked.id).status == "pending"


def test_for_a_rule_always(desk: Approvals) -> None:
    desk.approve(waits(desk, 1).id, "ada", "rule")
    assert runs(desk, 2, session_id="s2").scope == "rule"
    waits(desk, 2, rule="another")
    waits(desk, 2, tool="other")
    waits(desk, 2, caller="mcp:other")
    unruled = waits(desk, 3, rule="")
    with pytest.raises(InvalidError, match="no rule"):
        desk.approve(unruled.id, "ada", "rule")


def test_what_lasts_is_used_before_what_was_given_once(desk: Approvals, wall: Wall) -> None:
    once = waits(desk, 1)
    desk.approve(waits(desk, 2).id, "ada", "rule")
    desk.approve(once.id, "ada")
    assert runs(desk, 1).scope == "rule"
    assert desk.find(once.id).status == "approved"


def test_a_lasting_yes_can_have_an_end(desk: Approvals, wall: Wall) -> None:
    asked = waits(desk)
    with pytest.raises(InvalidError, match="end before"):
        desk.approve(asked.id, "ada", "rule", until=START)
    desk.approve(asked.id, "ada", "rule", until=START + 60)
    assert runs(desk, 1).scope == "rule"
    wall.now += 60
    waits(desk, 1)


def test_a_yes_can_be_taken_back(desk: Approvals) -> None:
    asked = waits(desk)
    desk.approve(asked.id, "ada", "rule")
    assert [grant.id for grant in desk.grants()] == [asked.id]
    assert desk.revoke(asked.id).state == "revoked"
    assert desk.grants() == []
    assert desk.find(asked.id).status == "void"
    waits(desk)
    with pytest.raises(NotFoundError, match="no valid decision"):
        desk.revoke(asked.id)


# --- no


def test_a_no_says_by_whom_and_why_and_holds(desk: Approvals, wall: Wall) -> None:
    asked = waits(desk)
    desk.deny(asked.id, "ada", "not on a Friday")
    for _ in range(2):
        with pytest.raises(ApprovalDenied) as caught:
            desk.seek(ask())
        assert "ada" in caught.value.message
        assert "not on a Friday" in caught.value.message
        assert caught.value.details["approver"] == "ada"
        assert caught.value.details["reason"] == "not on a Friday"
        wall.now += 3 * DAY
    waits(desk, 1)
    wall.now = START + 7 * DAY
    waits(desk)


def test_a_no_for_ten_minutes_asks_again_after_them(desk: Approvals, wall: Wall) -> None:
    asked = waits(desk)
    desk.deny(asked.id, "ada", hold_s=600)
    wall.now += 599
    with pytest.raises(ApprovalDenied):
        desk.seek(ask())
    wall.now += 2
    assert waits(desk).id != asked.id


def test_a_no_can_be_taken_back(desk: Approvals) -> None:
    asked = waits(desk)
    desk.deny(asked.id, "ada")
    desk.revoke(asked.id)
    assert waits(desk).id != asked.id
    assert desk.find(asked.id).status == "denied"


def test_a_no_outweighs_a_lasting_yes(desk: Approvals) -> None:
    denied, allowed = waits(desk, 1), waits(desk, 2)
    desk.deny(denied.id, "ada")
    desk.approve(allowed.id, "ada", "rule")
    assert runs(desk, 2).scope == "rule"
    with pytest.raises(ApprovalDenied):
        desk.seek(ask(1))


# --- what ends an approval


def test_a_changed_tool_voids_what_was_allowed_and_what_waits(desk: Approvals) -> None:
    allowed, lasting, waiting = waits(desk, 1), waits(desk, 2), waits(desk, 3)
    desk.approve(allowed.id, "ada")
    desk.approve(lasting.id, "ada", "rule")
    again = waits(desk, 1, tool_digest="e" * 64)
    assert again.id != allowed.id
    assert [desk.find(one.id).status for one in (allowed, lasting, waiting)] == ["void"] * 3
    assert waits(desk, 1).id not in (allowed.id, again.id)  # As it was, it asks as well.
    with pytest.raises(ConflictError, match="no longer waits: void"):
        desk.approve(waiting.id, "ada")


def test_a_yes_given_after_the_tool_changed_allows_nothing(desk: Approvals) -> None:
    waiting = waits(desk, 3)
    desk.approve(waiting.id, "ada")
    assert waits(desk, 3, tool_digest="c" * 64).id != waiting.id
    waits(desk, 3)


def test_what_nobody_decides_expires(desk: Approvals, wall: Wall) -> None:
    asked = waits(desk)
    wall.now += 7 * DAY
    assert desk.find(asked.id).status == "expired"
    with pytest.raises(ConflictError, match="expired"):
        desk.approve(asked.id, "ada")
    assert waits(desk).id != asked.id


def test_a_yes_that_is_not_used_expires(desk: Approvals, wall: Wall) -> None:
    asked = waits(desk)
    wall.now += 6 * DAY
    desk.approve(asked.id, "ada")
    wall.now += DAY
    assert desk.find(asked.id).status == "expired"
    waits(desk)


@pytest.mark.parametrize("jump", [-400 * DAY, -3600.0, 3600.0, 400 * DAY])
def test_no_jump_of_the_clock_brings_back_what_has_ended(desk: Approvals, wall: Wall, jump: float) -> None:
    used, denied, taken = waits(desk, 1), waits(desk, 2), waits(desk, 3)
    for one in (used, taken):
        desk.approve(one.id, "ada")
    desk.deny(denied.id, "ada")
    runs(desk, 1)
    desk.revoke(taken.id)
    wall.now += jump
    assert desk.find(used.id).status == "used"
    assert desk.find(denied.id).status == "denied"
    assert desk.find(taken.id).status == "void"
    waits(desk, 1)
    waits(desk, 3)
    if jump < 7 * DAY:
        with pytest.raises(ApprovalDenied):
            desk.seek(ask(2))


def test_what_was_seen_to_be_over_stays_over_when_the_clock_is_set_back(desk: Approvals, wall: Wall) -> None:
    allowed, waiting = waits(desk, 1), waits(desk, 2)
    desk.approve(allowed.id, "ada")
    wall.now += 8 * DAY
    assert {one.status for one in desk.list()} == {"expired"}
    wall.now -= 8 * DAY
    assert [desk.find(one.id).status for one in (allowed, waiting)] == ["expired"] * 2
    assert waits(desk, 1).id != allowed.id


# --- what a person was shown is what is decided


def test_what_is_not_what_was_shown_is_not_decided(desk: Approvals, address: Address) -> None:
    asked = waits(desk, 1)
    with state(address).write() as tx:
        tx.run("UPDATE approvals SET arguments = ?", b'{"n":1000000}')
    for decide in (desk.approve, desk.deny):
        with pytest.raises(ConflictError, match="differs from what was shown"):
            decide(asked.id, "ada", seal=asked.seal)
    assert desk.find(asked.id).status == "pending"


@pytest.mark.parametrize(
    "column", ["tool_digest", "caller", "owner", "token", "tool", "session_id", "reason", "rule"]
)
def test_the_seal_covers_all_that_is_shown(desk: Approvals, address: Address, column: str) -> None:
    asked = waits(desk, 1)
    with state(address).write() as tx:
        tx.run(f"UPDATE approvals SET {column} = ?", "x")
    with pytest.raises(ConflictError):
        desk.approve(asked.id, "ada", seal=asked.seal)


@pytest.mark.parametrize("status", ["approved", "used", "nonsense"])
def test_a_yes_that_stands_in_the_project_alone_is_none(
    desk: Approvals, address: Address, status: str
) -> None:
    asked = waits(desk, 1)
    with state(address).write() as tx:
        tx.run("UPDATE approvals SET status = ?", status)
    assert desk.find(asked.id).status == "void"
    waits(desk, 1)


def test_a_changed_row_changes_nothing_of_what_runs(desk: Approvals, address: Address) -> None:
    asked = waits(desk, 1)
    desk.approve(asked.id, "ada")
    with state(address).write() as tx:
        tx.run("UPDATE approvals SET arguments = ?, question = 'q'", b'{"n":1000000}')
    assert runs(desk, 1).arguments == b'{"n":1}'
    waits(desk, 1000000)


def test_a_row_full_of_nonsense_hides_no_other(desk: Approvals, address: Address) -> None:
    spoilt, whole = waits(desk, 1), waits(desk, 2)
    with state(address).write() as tx:
        tx.run(
            "UPDATE approvals SET arguments = ?, touches = ? WHERE id = ?", b"\x00 no JSON", "{", spoilt.id
        )
    found = {one.id: one.as_dict() for one in desk.list()}
    assert found.keys() == {spoilt.id, whole.id}
    assert found[spoilt.id]["arguments"] == "\x00 no JSON"
    assert found[spoilt.id]["touches"] == ["(cannot be read)"]


def test_an_earlier_copy_of_the_project_brings_no_yes_back(tmp_path: Path) -> None:
    first = SqliteDatabase(tmp_path / "state.db", PROJECT)
    desk = Approvals(first, vault(tmp_path))
    asked = waits(desk, 1)
    desk.approve(asked.id, "ada")
    first.close()
    shutil.copy(tmp_path / "state.db", tmp_path / "copy")
    runs(desk, 1)
    first.close()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy", tmp_path / "state.db")
    assert desk.find(asked.id).status == "used"
    assert waits(desk, 1).id != asked.id


def test_a_project_without_its_database_still_knows_what_was_decided(tmp_path: Path) -> None:
    desk = approvals(tmp_path)
    desk.deny(waits(desk, 1).id, "ada")
    desk.approve(waits(desk, 2).id, "ada", "arguments")
    (tmp_path / "new").mkdir()
    other = Approvals(state(tmp_path / "new"), vault(tmp_path))
    with pytest.raises(ApprovalDenied):
        other.seek(ask(1))
    assert runs(other, 2).scope == "arguments"


# --- bounds


def test_one_caller_cannot_fill_the_house(address: Address) -> None:
    desk = approvals(address, per_caller=3, in_all=5)
    for number in range(3):
        waits(desk, number)
    with pytest.raises(RateLimited, match=r"3 calls of mcp:agent .* the most allowed"):
        desk.seek(ask(3))
    waits(desk, 2)
    waits(desk, 4, caller="mcp:other")
    waits(desk, 5, caller="mcp:other")
    with pytest.raises(RateLimited, match=r"5 calls .* wait"):
        desk.seek(ask(6, caller="mcp:third"))
    desk.deny(desk.list()[0].id, "ada")
    waits(desk, 6, caller="mcp:third")


def test_what_waits_is_bounded_in_bytes(address: Address) -> None:
    desk = approvals(address, bytes_in_all=4_000)
    large = canonical({"text": "x" * 1_500})
    waits(desk, arguments=large)
    with pytest.raises(RateLimited):
        desk.seek(ask(arguments=canonical({"text": "y" * 1_500})))
    waits(desk, arguments=canonical({"text": "y" * 1_500}), caller="other")
    with pytest.raises(InvalidInput, match="more than a person can be asked"):
        desk.seek(ask(arguments=canonical({"text": "x" * 1_100_000})))


@pytest.mark.parametrize("name", ["x" * 501, "\ud800"])
@pytest.mark.parametrize("field", ["caller", "owner", "session_id", "token", "rule", "call_id"])
def test_names_that_cannot_be_kept_are_refused(desk: Approvals, field: str, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be stored"):
        desk.seek(ask(0, **{field: name}))


def test_hostile_texts_are_kept_as_they_are_or_cut(desk: Approvals) -> None:
    text = "\x1b[2J\x00\n\u202e<script>\ud800" + "x" * 10_000
    found = waits(desk, reason=text, touches=(text,) * 1_000, arguments=canonical({"t": "\x1b]0;x\x07\x00"}))
    assert found.reason.startswith("\x1b[2J\\0\n\u202e<script>\\ud800x")
    assert len(found.reason) < 4_100
    assert len(found.touches) == 200
    assert json.loads(found.arguments) == {"t": "\x1b]0;x\x07\x00"}
    done = desk.deny(found.id, "ada", note=text)
    assert len(done.note) < 2_100


def test_only_so_many_that_are_over_are_kept(address: Address) -> None:
    desk = approvals(address, kept=5)
    for number in range(12):
        asked = waits(desk, number)
        desk.approve(asked.id, "ada")
        runs(desk, number)
    waiting = waits(desk, 100)
    lasting = waits(desk, 101)
    desk.approve(lasting.id, "ada", "arguments")
    desk.sweep()
    found = desk.list()
    assert len(found) == 7
    assert {waiting.id, lasting.id} < {one.id for one in found}
    assert runs(desk, 101).scope == "arguments"


# --- who may decide


def token(name: str = "page", scopes: str = "approve", owner: str = "bob", tools: Any = None) -> Caller:
    return Caller(name, frozenset({scopes}), tools, owner)  # type: ignore[arg-type]  # the test names the scope


@pytest.mark.parametrize(
    ("decider", "error"),
    [
        (None, None),
        (token(), None),
        (token(scopes="admin"), None),
        (token(scopes="invoke"), InvalidToken),
        (token(tools=("other*",)), InvalidToken),
        (token(name="t1"), DeniedError),
        (token(name="mcp:agent"), DeniedError),
        (token(owner="ada"), DeniedError),
        (token(owner=""), DeniedError),
    ],
)
def test_nobody_decides_on_calls_of_their_own(
    desk: Approvals, decider: Caller | None, error: type[Exception] | None
) -> None:
    asked = waits(desk, token="t1")
    decide: Callable[[], None] = lambda: may_decide(asked, decider)  # noqa: E731 - one call, two ways
    if error is None:
        decide()
    else:
        with pytest.raises(error) as caught:
            decide()
        assert caught.type is error


def test_a_person_does_not_decide_on_calls_of_their_own_token(desk: Approvals) -> None:
    asked = waits(desk, token="t1")
    with pytest.raises(DeniedError, match="acts for ada"):
        may_decide(asked, None, person="ada")
    may_decide(asked, None, person="ben")
    may_decide(asked, None, person="ada", self_approval=True)


def test_a_person_decides_on_calls_that_were_made_without_a_token(desk: Approvals) -> None:
    may_decide(waits(desk), None, person="ada")


def test_self_approval_lets_the_owner_decide_but_never_the_asking_token(desk: Approvals) -> None:
    asked = waits(desk, token="t1")
    may_decide(asked, token(owner="ada"), self_approval=True)
    with pytest.raises(DeniedError):
        may_decide(asked, token(name="t1", owner="ada"), self_approval=True)
