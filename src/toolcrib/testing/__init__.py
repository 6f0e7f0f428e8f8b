"""Doubles for tests of tools and of what uses them."""

from toolcrib.egress.cassettes import Cassette, cassette
from toolcrib.testing.doubles import ANY, FakeClock, MemoryStore, MockTools, Recorded, Stub

__all__ = ["ANY", "Cassette", "FakeClock", "MemoryStore", "MockTools", "Recorded", "Stub", "cassette"]
