"""Requests that wait for a person, decisions, and the calls that they allow."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Address
from tests.guarded import START, Wall, approvals, ask, state, vault
from toolcrib.errors import (
    ApprovalDenied,
    ConflictError,
    DeniedError,
    InvalidInput,
    NotFoundError,
    RateLimited,
)
from toolcrib.guard import Approval, Permit, canonical
from toolcrib.guard.approvals.approvals import Approvals, may_decide
from toolcrib.guard.approvals.grants import _LIVE, _NEWEST, _OLDER
from toolcrib.spec import Caller
from toolcrib.state import PROJECT, SqliteDatabase

DAY = 86_400.0


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def service(address: Address, wall: Wall) -> Approvals:
    return approvals(address, clock=wall)


def waits(service: Approvals, *args: Any, **more: Any) -> Approval:
    found = service.seek(ask(*args, **more))
    assert isinstance(found, Approval), found
    assert found.status == "pending"
    return found


def runs(service: Approvals, *args: Any, **more: Any) -> Permit:
    found = service.seek(ask(*args, **more))
    assert isinstance(found, Permit), found
    return found


# --- waiting


def test_a_call_that_nobody_allowed_waits_with_all_that_a_person_must_know(service: Approvals) -> None:
    found = waits(service, 7, call_id="c1", token="t1")
    assert found.tool == "pay"
    assert found.arguments == b'{"n":7}'
    assert found.arguments_digest == hashlib.sha256(b'{"n":7}').hexdigest()
    assert found.tool_digest == "d" * 64
    assert (found.caller, found.owner, found.token, found.session_id) == ("mcp:agent", "ada", "t1", "s1")
    assert found.reason == "it is dear"
    assert found.touches == ("network: example.com",)
    assert found.expires_at == START + 7 * DAY
    assert found.as_dict()["expiresAt"] == "2027-01-22T08:00:00.000Z"
    assert service.find(found.id) == found
    assert found.id[14] == "7"


def test_the_same_question_is_one_approval(service: Approvals) -> None:
    first = waits(service, 1)
    assert waits(service, 1).id == first.id
    assert waits(service, 1, call_id="another").id == first.id
    assert [one.id for one in service.list()] == [first.id]


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
    service: Approvals, other: dict[str, Any]
) -> None:
    first = waits(service, 1)
    service.approve(first.id, "ada")
    second = waits(service, **{"number": 1, **other})
    assert second.id != first.id


def test_another_session_asks_the_same_question(service: Approvals) -> None:
    first = waits(service)
    second = waits(service, session_id="s2")
    assert second.id == first.id
    assert second.session_id == "s2"
    assert second.seal != first.seal


def test_names_that_run_into_each_other_are_not_one(service: Approvals) -> None:
    assert waits(service, caller="a", owner="b,c").id != waits(service, caller="a,b", owner="c").id


def test_approvals_are_listed_in_pages_the_newest_first(service: Approvals, wall: Wall) -> None:
    ids = []
    for number in range(25):
        wall.now += 1
        ids.append(waits(service, number).id)
    found: list[str] = []
    while page := service.list("pending", 10, before=found[-1] if found else None):
        found += [one.id for one in page]
    assert found == ids[::-1]
    service.approve(ids[3], "ada")
    service.deny(ids[4], "ada")
    assert [one.id for one in service.list("approved")] == [ids[3]]
    assert [one.id for one in service.list("denied")] == [ids[4]]
    assert len(service.list("pending")) == 23
    assert len(service.list()) == 25
    with pytest.raises(InvalidInput, match="no status"):
        service.list("nonsense")  # type: ignore[arg-type]  # what is refused


def test_an_approval_that_does_not_exist_is_named_so(service: Approvals) -> None:
    acts: list[Callable[[], object]] = [
        lambda: service.find("nothing"),
        lambda: service.approve("nothing", "ada"),
        lambda: service.deny("nothing", "ada"),
        lambda: service.revoke("nothing"),
        lambda: service.void("nothing"),
    ]
    for act in acts:
        with pytest.raises(NotFoundError):
            act()


# --- once


def test_once_is_once(service: Approvals) -> None:
    asked = waits(service)
    done = service.approve(asked.id, "ada", note="go on")
    assert (done.status, done.decided_by, done.scope, done.note) == ("approved", "ada", "once", "go on")
    assert runs(service) == Permit("ada", "once", asked.id, b'{"n":0}', False)
    assert service.find(asked.id).status == "used"
    with pytest.raises(ConflictError, match="approved, and the call was made"):
        service.deny(asked.id, "bob")
    assert waits(service).id != asked.id


def test_a_yes_can_be_used_by_another_session_of_the_same_caller(service: Approvals) -> None:
    service.approve(waits(service).id, "ada")
    assert runs(service, session_id="s2").scope == "once"


def test_a_decision_is_made_once(service: Approvals) -> None:
    asked = waits(service)
    service.approve(asked.id, "ada")
    with pytest.raises(ConflictError, match="decided by ada"):
        service.deny(asked.id, "bob")
    with pytest.raises(ConflictError):
        service.approve(asked.id, "bob")
    with pytest.raises(InvalidInput, match="name of the person"):
        service.approve(asked.id, "")


def test_edited_arguments_run_instead(service: Approvals) -> None:
    asked = waits(service, 5)
    done = service.approve(asked.id, "ada", arguments=b'{"n":1}')
    assert done.edited == b'{"n":1}'
    assert done.arguments == b'{"n":5}'
    assert done.as_dict()["edited"] == {"n": 1}
    permit = runs(service, 5)
    assert (permit.arguments, permit.edited) == (b'{"n":1}', True)


def test_edited_arguments_are_no_leave_to_ask_with_them(service: Approvals) -> None:
    service.approve(waits(service, 5).id, "ada", arguments=b'{"n":1}')
    waits(service, 1)


@pytest.mark.parametrize("scope", ["session", "arguments", "rule"])
def test_edited_arguments_run_once_only(service: Approvals, scope: Any) -> None:
    with pytest.raises(InvalidInput, match="changed arguments"):
        service.approve(waits(service).id, "ada", scope, b"{}")


# --- lasting grants


def test_for_these_arguments_always(service: Approvals) -> None:
    asked = waits(service, 1)
    service.approve(asked.id, "ada", "arguments")
    assert [runs(service, 1).scope for _ in range(3)] == ["arguments"] * 3
    assert runs(service, 1, session_id="s9").approval_id == asked.id
    waits(service, 2)


def test_for_this_session(service: Approvals) -> None:
    service.approve(waits(service, 1).id, "ada", "session")
    assert runs(service, 2).scope == "session"
    waits(service, 1, session_id="s2")
    waits(service, 1, session_id=None)
    waits(service, 1, rule="another")


def test_without_a_session_there_is_none_to_approve(service: Approvals) -> None:
    asked = waits(service, session_id=None)
    with pytest.raises(InvalidInput, match="no session"):
        service.approve(asked.id, "ada", "session")
    assert service.find(asked.id).status == "pending"


def test_for_a_rule_always(service: Approvals) -> None:
    service.approve(waits(service, 1).id, "ada", "rule")
    assert runs(service, 2, session_id="s2").scope == "rule"
    waits(service, 2, rule="another")
    waits(service, 2, tool="other")
    waits(service, 2, caller="mcp:other")
    unruled = waits(service, 3, rule="")
    with pytest.raises(InvalidInput, match="no rule"):
        service.approve(unruled.id, "ada", "rule")


def test_what_lasts_is_used_before_what_was_given_once(service: Approvals, wall: Wall) -> None:
    once = waits(service, 1)
    service.approve(waits(service, 2).id, "ada", "rule")
    service.approve(once.id, "ada")
    assert runs(service, 1).scope == "rule"
    assert service.find(once.id).status == "approved"


def test_a_lasting_yes_can_have_an_end(service: Approvals, wall: Wall) -> None:
    asked = waits(service)
    with pytest.raises(InvalidInput, match="end before"):
        service.approve(asked.id, "ada", "rule", until=START)
    service.approve(asked.id, "ada", "rule", until=START + 60)
    assert runs(service, 1).scope == "rule"
    wall.now += 60
    waits(service, 1)


def test_the_newest_decision_comes_first(service: Approvals, wall: Wall) -> None:
    asked = [waits(service, n).id for n in range(3)]
    for one in (asked[1], asked[2], asked[0]):
        wall.now += 1
        service.approve(one, "ada", "arguments")
    assert [grant.id for grant in service.grants(2)] == [asked[0], asked[2]]
    assert [grant.id for grant in service.grants(2, before=asked[2])] == [asked[1]]


@pytest.mark.parametrize(("page", "values"), [("", (1.0, 25)), (_OLDER, (1.0, "id", 25))])
def test_a_page_of_the_newest_decisions_costs_the_same_beside_many(
    tmp_path: Path, page: str, values: tuple[Any, ...]
) -> None:
    plan = vault(tmp_path).rows(f"EXPLAIN QUERY PLAN {_LIVE}{page}{_NEWEST}", *values)
    assert any("USING INDEX grants_newest" in step[-1] for step in plan), plan
    assert not any("TEMP B-TREE" in step[-1] for step in plan), plan


def test_a_yes_can_be_taken_back(service: Approvals) -> None:
    asked = waits(service)
    service.approve(asked.id, "ada", "rule")
    assert [grant.id for grant in service.grants()] == [asked.id]
    assert service.revoke(asked.id).state == "revoked"
    assert service.grants() == []
    assert service.find(asked.id).status == "void"
    waits(service)
    with pytest.raises(NotFoundError, match="no valid decision"):
        service.revoke(asked.id)


# --- no


def test_a_no_says_by_whom_and_why_and_holds(service: Approvals, wall: Wall) -> None:
    asked = waits(service)
    service.deny(asked.id, "ada", "not on a Friday")
    for _ in range(2):
        with pytest.raises(ApprovalDenied) as caught:
            service.seek(ask())
        assert "ada" in caught.value.message
        assert "not on a Friday" in caught.value.message
        assert caught.value.details["approver"] == "ada"
        assert caught.value.details["reason"] == "not on a Friday"
        wall.now += 3 * DAY
    waits(service, 1)
    wall.now = START + 7 * DAY
    waits(service)


def test_a_no_for_ten_minutes_asks_again_after_them(service: Approvals, wall: Wall) -> None:
    asked = waits(service)
    service.deny(asked.id, "ada", hold_s=600)
    wall.now += 599
    with pytest.raises(ApprovalDenied):
        service.seek(ask())
    wall.now += 2
    assert waits(service).id != asked.id


def test_a_no_can_be_taken_back(service: Approvals) -> None:
    asked = waits(service)
    service.deny(asked.id, "ada")
    service.revoke(asked.id)
    assert waits(service).id != asked.id
    assert service.find(asked.id).status == "denied"


def test_a_no_outweighs_a_lasting_yes(service: Approvals) -> None:
    denied, allowed = waits(service, 1), waits(service, 2)
    service.deny(denied.id, "ada")
    service.approve(allowed.id, "ada", "rule")
    assert runs(service, 2).scope == "rule"
    with pytest.raises(ApprovalDenied):
        service.seek(ask(1))


# --- what ends an approval


def test_a_changed_tool_voids_what_was_allowed_and_what_waits(service: Approvals) -> None:
    allowed, lasting, waiting = waits(service, 1), waits(service, 2), waits(service, 3)
    service.approve(allowed.id, "ada")
    service.approve(lasting.id, "ada", "rule")
    again = waits(service, 1, tool_digest="e" * 64)
    assert again.id != allowed.id
    assert [service.find(one.id).status for one in (allowed, lasting, waiting)] == ["void"] * 3
    assert waits(service, 1).id not in (allowed.id, again.id)  # As it was, it asks as well.
    with pytest.raises(ConflictError, match="no longer waits: void"):
        service.approve(waiting.id, "ada")


def test_a_yes_given_after_the_tool_changed_allows_nothing(service: Approvals) -> None:
    waiting = waits(service, 3)
    service.approve(waiting.id, "ada")
    assert waits(service, 3, tool_digest="c" * 64).id != waiting.id
    waits(service, 3)


def test_what_nobody_decides_expires(service: Approvals, wall: Wall) -> None:
    asked = waits(service)
    wall.now += 7 * DAY
    assert service.find(asked.id).status == "expired"
    with pytest.raises(ConflictError, match="expired"):
        service.approve(asked.id, "ada")
    assert waits(service).id != asked.id


def test_a_yes_that_is_not_used_expires(service: Approvals, wall: Wall) -> None:
    asked = waits(service)
    wall.now += 6 * DAY
    service.approve(asked.id, "ada")
    wall.now += DAY
    assert service.find(asked.id).status == "expired"
    waits(service)


@pytest.mark.parametrize("jump", [-400 * DAY, -3600.0, 3600.0, 400 * DAY])
def test_no_jump_of_the_clock_brings_back_what_has_ended(service: Approvals, wall: Wall, jump: float) -> None:
    used, denied, taken = waits(service, 1), waits(service, 2), waits(service, 3)
    for one in (used, taken):
        service.approve(one.id, "ada")
    service.deny(denied.id, "ada")
    runs(service, 1)
    service.revoke(taken.id)
    wall.now += jump
    assert service.find(used.id).status == "used"
    assert service.find(denied.id).status == "denied"
    assert service.find(taken.id).status == "void"
    waits(service, 1)
    waits(service, 3)
    if jump < 7 * DAY:
        with pytest.raises(ApprovalDenied):
            service.seek(ask(2))


def test_what_was_seen_to_be_over_stays_over_when_the_clock_is_set_back(
    service: Approvals, wall: Wall
) -> None:
    allowed, waiting = waits(service, 1), waits(service, 2)
    service.approve(allowed.id, "ada")
    wall.now += 8 * DAY
    assert {one.status for one in service.list()} == {"expired"}
    wall.now -= 8 * DAY
    assert [service.find(one.id).status for one in (allowed, waiting)] == ["expired"] * 2
    assert waits(service, 1).id != allowed.id


# --- what a person was shown is what is decided


def test_what_is_not_what_was_shown_is_not_decided(service: Approvals, address: Address) -> None:
    asked = waits(service, 1)
    with state(address).write() as tx:
        tx.run("UPDATE approvals SET arguments = ?", b'{"n":1000000}')
    for decide in (service.approve, service.deny):
        with pytest.raises(ConflictError, match="differs from what was shown"):
            decide(asked.id, "ada", seal=asked.seal)
    assert service.find(asked.id).status == "pending"


@pytest.mark.parametrize(
    "column", ["tool_digest", "caller", "owner", "token", "tool", "session_id", "reason", "rule"]
)
def test_the_seal_covers_all_that_is_shown(service: Approvals, address: Address, column: str) -> None:
    asked = waits(service, 1)
    with state(address).write() as tx:
        tx.run(f"UPDATE approvals SET {column} = ?", "x")
    with pytest.raises(ConflictError):
        service.approve(asked.id, "ada", seal=asked.seal)


@pytest.mark.parametrize("status", ["approved", "used", "nonsense"])
def test_a_yes_that_stands_in_the_project_alone_is_none(
    service: Approvals, address: Address, status: str
) -> None:
    asked = waits(service, 1)
    with state(address).write() as tx:
        tx.run("UPDATE approvals SET status = ?", status)
    assert service.find(asked.id).status == "void"
    waits(service, 1)


def test_a_changed_row_changes_nothing_of_what_runs(service: Approvals, address: Address) -> None:
    asked = waits(service, 1)
    service.approve(asked.id, "ada")
    with state(address).write() as tx:
        tx.run("UPDATE approvals SET arguments = ?, question = 'q'", b'{"n":1000000}')
    assert runs(service, 1).arguments == b'{"n":1}'
    waits(service, 1000000)


def test_a_row_full_of_nonsense_hides_no_other(service: Approvals, address: Address) -> None:
    spoilt, whole = waits(service, 1), waits(service, 2)
    with state(address).write() as tx:
        tx.run(
            "UPDATE approvals SET arguments = ?, touches = ? WHERE id = ?", b"\x00 no JSON", "{", spoilt.id
        )
    found = {one.id: one.as_dict() for one in service.list()}
    assert found.keys() == {spoilt.id, whole.id}
    assert found[spoilt.id]["arguments"] == "\x00 no JSON"
    assert found[spoilt.id]["touches"] == ["(cannot be read)"]


def test_an_earlier_copy_of_the_project_brings_no_yes_back(tmp_path: Path) -> None:
    first = SqliteDatabase(tmp_path / "state.db", PROJECT)
    service = Approvals(first, vault(tmp_path))
    asked = waits(service, 1)
    service.approve(asked.id, "ada")
    first.close()
    shutil.copy(tmp_path / "state.db", tmp_path / "copy")
    runs(service, 1)
    first.close()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy", tmp_path / "state.db")
    assert service.find(asked.id).status == "used"
    assert waits(service, 1).id != asked.id


def test_a_project_without_its_database_still_knows_what_was_decided(tmp_path: Path) -> None:
    service = approvals(tmp_path)
    service.deny(waits(service, 1).id, "ada")
    service.approve(waits(service, 2).id, "ada", "arguments")
    (tmp_path / "new").mkdir()
    other = Approvals(state(tmp_path / "new"), vault(tmp_path))
    with pytest.raises(ApprovalDenied):
        other.seek(ask(1))
    assert runs(other, 2).scope == "arguments"


# --- bounds


def test_one_caller_cannot_fill_the_house(address: Address) -> None:
    service = approvals(address, per_caller=3, in_all=5)
    for number in range(3):
        waits(service, number)
    with pytest.raises(RateLimited, match=r"3 calls of mcp:agent .* the most allowed"):
        service.seek(ask(3))
    waits(service, 2)
    waits(service, 4, caller="mcp:other")
    waits(service, 5, caller="mcp:other")
    with pytest.raises(RateLimited, match=r"5 calls .* wait"):
        service.seek(ask(6, caller="mcp:third"))
    service.deny(service.list()[0].id, "ada")
    waits(service, 6, caller="mcp:third")


def test_what_waits_is_bounded_in_bytes(address: Address) -> None:
    service = approvals(address, bytes_in_all=4_000)
    large = canonical({"text": "x" * 1_500})
    waits(service, arguments=large)
    with pytest.raises(RateLimited):
        service.seek(ask(arguments=canonical({"text": "y" * 1_500})))
    waits(service, arguments=canonical({"text": "y" * 1_500}), caller="other")
    with pytest.raises(InvalidInput, match="more than a person can be asked"):
        service.seek(ask(arguments=canonical({"text": "x" * 1_100_000})))


@pytest.mark.parametrize("name", ["x" * 501, "\ud800"])
@pytest.mark.parametrize("field", ["caller", "owner", "session_id", "token", "rule", "call_id"])
def test_names_that_cannot_be_kept_are_refused(service: Approvals, field: str, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be stored"):
        service.seek(ask(0, **{field: name}))


def test_hostile_texts_are_kept_as_they_are_or_cut(service: Approvals) -> None:
    text = "\x1b[2J\x00\n\u202e<script>\ud800" + "x" * 10_000
    found = waits(
        service, reason=text, touches=(text,) * 1_000, arguments=canonical({"t": "\x1b]0;x\x07\x00"})
    )
    assert found.reason.startswith("\x1b[2J\\0\n\u202e<script>\\ud800x")
    assert len(found.reason) < 4_100
    assert len(found.touches) == 200
    assert json.loads(found.arguments) == {"t": "\x1b]0;x\x07\x00"}
    done = service.deny(found.id, "ada", note=text)
    assert len(done.note) < 2_100


def test_only_so_many_that_are_over_are_kept(address: Address) -> None:
    service = approvals(address, kept=5)
    for number in range(12):
        asked = waits(service, number)
        service.approve(asked.id, "ada")
        runs(service, number)
    waiting = waits(service, 100)
    lasting = waits(service, 101)
    service.approve(lasting.id, "ada", "arguments")
    service.sweep()
    found = service.list()
    assert len(found) == 7
    assert {waiting.id, lasting.id} < {one.id for one in found}
    assert runs(service, 101).scope == "arguments"


# --- who may decide


def token(name: str = "page", scopes: str = "approve", owner: str = "bob", tools: Any = None) -> Caller:
    return Caller(name, frozenset({scopes}), tools, owner)  # type: ignore[arg-type]  # the test names the scope


@pytest.mark.parametrize(
    ("decider", "may"),
    [
        (None, True),
        (token(), True),
        (token(scopes="admin"), True),
        (token(scopes="invoke"), False),
        (token(tools=("other*",)), False),
        (token(name="t1"), False),
        (token(name="mcp:agent"), False),
        (token(owner="ada"), False),
        (token(owner=""), False),
    ],
)
def test_nobody_decides_on_calls_of_their_own(service: Approvals, decider: Caller | None, may: bool) -> None:
    asked = waits(service, token="t1")
    with nullcontext() if may else pytest.raises(DeniedError, match="the token"):
        may_decide(asked, decider)


def test_a_person_does_not_decide_on_calls_of_their_own_token(service: Approvals) -> None:
    asked = waits(service, token="t1")
    with pytest.raises(DeniedError, match="acts for ada"):
        may_decide(asked, None, person="ada")
    may_decide(asked, None, person="ben")
    may_decide(asked, None, person="ada", self_approval=True)


def test_a_person_decides_on_calls_that_were_made_without_a_token(service: Approvals) -> None:
    may_decide(waits(service), None, person="ada")


def test_self_approval_lets_the_owner_decide_but_never_the_asking_token(service: Approvals) -> None:
    asked = waits(service, token="t1")
    may_decide(asked, token(owner="ada"), self_approval=True)
    with pytest.raises(DeniedError):
        may_decide(asked, token(name="t1", owner="ada"), self_approval=True)
