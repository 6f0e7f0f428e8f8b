"""A function whose module takes nothing to import, so that its process alone is measured."""

from __future__ import annotations


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b
