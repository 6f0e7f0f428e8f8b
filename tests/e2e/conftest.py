"""What end-to-end tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import need
from tests.crib import Crib
from toolcrib.sandbox import probe


@pytest.fixture(scope="session")
def kernel() -> None:
    missing = [mechanism.name for mechanism in probe() if mechanism.required and not mechanism.ok]
    need(f"what confines tools ({', '.join(missing)})", not missing)


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    return Crib(tmp_path / "project")
