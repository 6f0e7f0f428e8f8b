"""These tests need a kernel that confines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import need
from tests.integration.sandbox.ground import Ground
from toolcrib.sandbox import probe


@pytest.fixture(scope="session", autouse=True)
def _kernel() -> None:
    missing = [mechanism.name for mechanism in probe() if mechanism.required and not mechanism.ok]
    need(f"what confines tools ({', '.join(missing)})", not missing)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground.make(tmp_path)
