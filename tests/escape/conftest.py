"""These tests need a kernel that confines, and processes of their own to run as other users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import need
from tests.escape.staging import Stage
from toolcrib.sandbox import probe


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all probes as one user to one test process: each starts a server for every user it meets."""
    for item in items:
        if "stage" in getattr(item, "fixturenames", ()):
            user = "user" if item.name.endswith("user]") else "root"
            item.add_marker(pytest.mark.xdist_group(f"escape-{user}"))


@pytest.fixture(scope="session", autouse=True)
def _kernel() -> None:
    missing = [mechanism.name for mechanism in probe() if mechanism.required and not mechanism.ok]
    need(f"what confines tools ({', '.join(missing)})", not missing)


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()
