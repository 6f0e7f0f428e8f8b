"""A NATS server for the tests of pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nats_server import NatsProcess


@pytest.fixture
def nats() -> Iterator[NatsProcess]:
    """A server of this test's own: it starts within a few milliseconds."""
    server = NatsProcess()
    yield server
    server.remove()
