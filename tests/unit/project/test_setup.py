"""The weakest level of the sandbox that applies."""

from __future__ import annotations

import pytest

from toolcrib.project import Config
from toolcrib.project.setup import SandboxLevel, sandbox_level_of
from toolcrib.spec import LEVELS, Level


@pytest.mark.parametrize("asked", LEVELS)
def test_only_a_trusted_project_can_lower_it(asked: Level) -> None:
    config = Config(sandbox_minimum=asked)
    assert sandbox_level_of(config).level == "full"
    assert sandbox_level_of(config, trusted=True).level == asked


def test_a_refusal_says_what_would_help() -> None:
    assert "run `toolcrib trust`" in sandbox_level_of(Config(sandbox_minimum="none")).advice
    assert "sandbox.minimum" in sandbox_level_of(Config()).advice
    assert sandbox_level_of(Config(sandbox_minimum="none"), trusted=True).advice == ""


def test_full_tries_nothing_and_lowers_nothing() -> None:
    assert SandboxLevel().lowered() is None


@pytest.mark.parametrize(
    ("minimum", "found", "told"),
    [
        ("landlock", "landlock", "confined by Landlock and seccomp alone"),
        ("none", "landlock", "those that it cannot confine are NOT CONFINED"),
        ("none", "none", "they can do all that you can"),
    ],
)
def test_the_banner_says_what_it_means(minimum: Level, found: Level, told: str) -> None:
    banner = SandboxLevel(minimum).banner(found)
    assert f"sandbox.minimum is {minimum}" in banner
    assert told in banner
