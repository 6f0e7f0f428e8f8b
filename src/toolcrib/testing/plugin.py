"""Fixtures for pytest, which are there once Toolcrib is installed: `toolset` and `project`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.toolset import Toolset


@pytest.fixture
def toolset() -> Toolset:
    """Return an empty toolset whose retries do not wait."""
    from toolcrib.testing.doubles import FakeClock
    from toolcrib.toolset import Toolset

    return Toolset(clock=FakeClock())


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Project]:
    """Return a function that opens a project with these files: `project({"tools/x/tool.yml": "…"})`.

    Paths begin in `.toolcrib/`; `..` leads to the project's root. Everything in it is accepted.
    """
    from toolcrib.project import Project

    root = tmp_path / "project"

    def open_project(files: dict[str, str] | None = None) -> Project:
        (root / ".toolcrib" / "tools").mkdir(parents=True, exist_ok=True)
        for name, text in (files or {}).items():
            path = root / ".toolcrib" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Project.open(root, accept="all", data=tmp_path / "data")

    return open_project
