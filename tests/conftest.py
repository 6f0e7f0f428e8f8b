"""What every test shares."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest
from hypothesis import settings

# What a project's user keeps (anchors of audit logs, grants) goes to a folder of this run's own.
os.environ.pop("TOOLCRIB_DATA", None)
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="toolcrib-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)

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
