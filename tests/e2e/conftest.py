"""What end-to-end tests share: the fixtures of integration tests."""

from __future__ import annotations

from tests.integration.conftest import crib, kernel

__all__ = ["crib", "kernel"]
