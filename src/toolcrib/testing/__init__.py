"""Doubles for tests of tools and of what uses them."""

from toolcrib.egress.cassettes import Cassette, cassette
from toolcrib.testing.clock import FakeClock
from toolcrib.testing.memory import MemoryStore
from toolcrib.testing.mocks import ANY, MockTools, Recorded, Stub

__all__ = ["ANY", "Cassette", "FakeClock", "MemoryStore", "MockTools", "Recorded", "Stub", "cassette"]
