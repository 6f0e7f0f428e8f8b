"""Tests of agents and workflows run on both databases."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from toolcrib.state.user_settings import name_database


@pytest.fixture(params=["sqlite", "postgres"])
def each_database(request: pytest.FixtureRequest) -> Iterator[None]:
    """The database of all projects that a test opens, on each driver."""
    if request.param == "postgres":
        name_database(request.getfixturevalue("postgres").url(f"test_{uuid.uuid4().hex}"))
    yield
    name_database(None)
