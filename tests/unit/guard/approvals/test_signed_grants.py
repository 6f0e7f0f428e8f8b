"""Decisions in a database that others can write: only those signed with the user's key count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.databases import Address
from tests.guarded import approvals, ask, vault
from toolcrib.guard import Approval, Permit
from toolcrib.guard.approvals.approvals import Approvals


def waits(service: Approvals, number: int) -> Approval:
    found = service.seek(ask(number))
    assert isinstance(found, Approval), found
    return found


def runs(service: Approvals, number: int) -> Permit:
    found = service.seek(ask(number))
    assert isinstance(found, Permit), found
    return found


def test_a_decision_without_the_key_allows_nothing(address: Address) -> None:
    keyed, other = (approvals(address, key=key) for key in (b"k" * 32, b"o" * 32))
    asked = waits(keyed, 1)
    other.approve(asked.id, "mallory", "arguments")
    assert keyed.find(asked.id).status == "void"
    assert keyed.grants() == []
    again = waits(keyed, 1)
    assert again.id != asked.id
    keyed.approve(again.id, "ada")
    assert runs(keyed, 1).approver == "ada"
    waits(keyed, 1)


@pytest.mark.parametrize(
    ("column", "new"),
    [("tool_digest", "e" * 64), ("scope", "rule"), ("ends_at", 4e9), ("asker", '["x"]'), ("edited", b"{}")],
)
def test_a_decision_that_was_altered_on_the_server_allows_nothing(
    column: str, new: Any, address: Address
) -> None:
    service = approvals(address, key=b"k" * 32)
    asked = waits(service, 1)
    service.approve(asked.id, "ada", "arguments", until=3_000_000_000)
    assert service.find(asked.id).status == "approved"
    with vault(address).write() as tx:
        tx.run(f"UPDATE grants SET {column} = ?", new)
    assert service.find(asked.id).status == "void"
    waits(service, 1)


def test_a_decision_that_was_used_cannot_be_made_valid_again(address: Address) -> None:
    service = approvals(address, key=b"k" * 32)
    service.approve(waits(service, 1).id, "ada")
    runs(service, 1)
    with vault(address).write() as tx:
        tx.run("UPDATE grants SET state = 'live', used_at = NULL")
    waits(service, 1)


def test_only_the_call_that_used_a_decision_up_gives_it_back(address: Address) -> None:
    service = approvals(address, key=b"k" * 32)
    service.approve(waits(service, 1).id, "ada")
    first = runs(service, 1)
    service.give_back(first)
    second = runs(approvals(address, key=b"k" * 32), 1)
    assert second == first
    service.give_back(replace(second, mac=None))
    waits(service, 1)
    service.give_back(replace(second, mac="forged"))
    assert service.find(second.approval_id).status == "void"
    waits(service, 1)


def test_a_later_attempt_gives_nothing_back_because_an_earlier_one_may_have_run(address: Address) -> None:
    service = approvals(address, key=b"k" * 32)
    service.approve(waits(service, 1).id, "ada")
    first, second = (service.seek(ask(1, durable=True, call_id="c1")) for _ in range(2))
    assert isinstance(second, Permit)
    assert second == first
    service.give_back(second)
    waits(service, 1)
    assert isinstance(service.seek(ask(1, durable=True, call_id="c1")), Permit)


def test_what_is_signed_is_the_same_after_it_was_stored(address: Address) -> None:
    service = approvals(address, key=b"k" * 32)
    asked = waits(service, 1)
    service.approve(asked.id, "ada ✓", arguments=b'{"n":2}', note="\x00 fine", until=3_000_000_000)
    assert runs(service, 1).arguments == b'{"n":2}'
