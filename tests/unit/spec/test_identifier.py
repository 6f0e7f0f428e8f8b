"""Identifiers of calls and records."""

from __future__ import annotations

import uuid

from toolcrib.spec.identifier import new_id


def test_those_of_one_millisecond_sort_as_they_were_made() -> None:
    made = [new_id(1_700_000_000.0) for _ in range(1_000)]
    assert made == sorted(made)
    assert len(set(made)) == 1_000
    assert {uuid.UUID(one).version for one in made} == {7}
    assert {uuid.UUID(one).variant for one in made} == {uuid.RFC_4122}


def test_later_ones_sort_after_earlier_ones() -> None:
    assert new_id(1_000.0) < new_id(1_000.001) < new_id(2_000.0)
