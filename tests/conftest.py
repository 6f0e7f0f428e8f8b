"""What every test shares."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

ON_CI = bool(os.environ.get("CI"))

# The time limit of a whole test holds; one slow example on a busy machine is no failure.
settings.register_profile("toolcrib", deadline=None, derandomize=ON_CI)
settings.load_profile("toolcrib")


def need(feature: str, present: bool) -> None:
    """Skip the test where `feature` is missing; on CI, where everything must be there, fail instead."""
    if present:
        return
    if ON_CI:
        pytest.fail(f"this machine lacks {feature}", pytrace=False)
    pytest.skip(f"this machine lacks {feature}")
