"""What every test shares."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import settings

ON_CI = bool(os.environ.get("CI"))

# The time limit of a whole test holds; one slow example on a busy machine is no failure.
settings.register_profile("toolcrib", deadline=None, derandomize=ON_CI)
settings.load_profile("toolcrib")


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests a user's folder of their own, before any module copies the environment."""
    folder = tempfile.mkdtemp(prefix="toolcrib-tests-")
    os.environ.pop("TOOLCRIB_DATA", None)
    os.environ["XDG_DATA_HOME"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def need(feature: str, present: bool) -> None:
    """Skip the test where `feature` is missing; on CI, where everything must be there, fail instead."""
    if present:
        return
    if ON_CI:
        pytest.fail(f"this machine lacks {feature}", pytrace=False)
    pytest.skip(f"this machine lacks {feature}")
