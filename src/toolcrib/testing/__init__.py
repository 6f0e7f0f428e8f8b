"""Doubles for tests of tools and of what uses them."""

from toolcrib.testing.clock import FakeClock

__all__ = ["FakeClock"]
