"""What unit tests share: thirty seconds each, unless a test sets its own `timeout` marker."""

from __future__ import annotations

from pathlib import Path

import pytest

SECONDS = 30
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this folder the limit; the hook sees those of other folders too."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))
