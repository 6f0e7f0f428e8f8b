"""Middleware that a project names: its order, and its code under trust."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.crib import Crib
from tests.e2e.cli.test_cli import cli
from toolcrib.errors import ConfigError

SETTINGS = """
middleware:
  - {use: rate_limit, tools: [s*], options: {per_minute: 3}}
  - guards/g.py:before
  - {use: "guards/g.py:limit", options: {most: 2}}
"""
CODE = """
from toolcrib.errors import DeniedError
def before(call, ctx):
    return {"c": call.arguments["c"].replace("NAME", "Ada")}
def limit(most):
    def check(call, ctx):
        if call.arguments["c"].count("x") > most:
            raise DeniedError("too many")
    return check
"""


@pytest.fixture
def guarded(crib: Crib) -> Crib:
    crib.write(".toolcrib/config.yml", SETTINGS)
    crib.write("guards/g.py", CODE)
    crib.shell()
    crib.accept = "trusted"
    crib.trust_tools("sh")
    return crib


def code(crib: Crib, script: str) -> str:
    result = crib.call("sh", {"c": script})
    return str(result.value).strip() if result.error is None else result.error.code


def test_without_trust_only_what_limits_applies(guarded: Crib) -> None:
    waiting = guarded.open().waiting
    assert [one.name for one in waiting] == ["middleware"]
    assert "guards/g.py:before, guards/g.py:limit" in waiting[0].allows
    assert code(guarded, "echo NAME") == "NAME"


def test_trusted_code_runs_in_its_order_until_it_changes(guarded: Crib) -> None:
    guarded.trust()
    assert code(guarded, "echo NAME") == "Ada"
    assert code(guarded, "echo xxx") == "denied"
    (guarded.root / "guards/g.py").write_text(CODE.replace("Ada", "Eve"))
    assert code(guarded, "echo NAME") == "NAME"
    guarded.trust()
    assert code(guarded, "echo NAME") == "Eve"


def test_a_module_that_it_imports_is_part_of_what_was_trusted(
    guarded: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a program that has the folder on its path."""
    monkeypatch.syspath_prepend(guarded.root / "guards")
    (guarded.root / "guards/g.py").write_text(f"from words_of_g import NAME{CODE}".replace('"Ada"', "NAME"))
    guarded.write("guards/words_of_g.py", "NAME = 'Ada'")
    guarded.trust()
    assert code(guarded, "echo NAME") == "Ada"
    monkeypatch.delitem(sys.modules, "words_of_g")
    guarded.write("guards/words_of_g.py", "NAME = 'Eve'")
    assert code(guarded, "echo NAME") == "NAME"


async def test_code_that_changes_while_the_project_is_open_is_refused(guarded: Crib) -> None:
    guarded.trust()
    async with guarded.open() as project:
        (guarded.root / "guards/g.py").write_text("raise SystemExit")
        result = await project.call("sh", {"c": "echo hi"})
        assert result.error is not None
        assert result.error.code == "not_trusted"


def test_a_link_out_of_the_project_is_no_middleware(guarded: Crib, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(CODE)
    (guarded.root / "guards/g.py").unlink()
    (guarded.root / "guards/g.py").symlink_to(outside)
    guarded.trust()
    assert code(guarded, "echo NAME") == "tool_unavailable"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[cash]", "is not a middleware"),
        ("[../x.py:f]", "inside the project"),
        ("[{use: cache, options: {ttl: 1}}]", "do not fit"),
        ("[{use: timeout}]", "do not fit"),
        ("[{use: timeout, options: {seconds: fast}}]", "seconds: Expected `float`, got `str`"),
        ("[{use: redaction, options: {patterns: password}}]", "patterns: Expected `array`, got `str`"),
        ("[{use: redaction, options: {keys: [{a: b}]}}]", r"keys: Expected `str`, got `object`"),
        ("[{use: redaction, options: {patterns: ['(']}}]", "unterminated subpattern"),
        ("[{use: cache, options: {clock: 1}}]", "clock: Expected"),
        ("[{use: tracing, options: {content: maybe}}]", "content: Expected `bool`"),
        ("[{use: as}]", "is not a middleware"),
    ],
)
def test_settings_that_cannot_work(crib: Crib, text: str, what: str) -> None:
    crib.write(".toolcrib/config.yml", f"middleware: {text}\n")
    with pytest.raises(ConfigError, match=what):
        crib.open()


def test_show_prints_the_order(guarded: Crib) -> None:
    guarded.trust()
    done = cli(guarded, "show", "sh")
    assert done.out.partition("Middleware, the outermost first\n")[2].splitlines()[:3] == [
        "  1. rate_limit (only s*)",
        "  2. guards/g.py:before",
        "  3. guards/g.py:limit",
    ]
    assert cli(guarded, "show", "sh", "--json").document["middleware"][1] == "guards/g.py:before"


def test_what_a_person_approved_is_changed_by_none(guarded: Crib) -> None:
    guarded.write(".toolcrib/config.yml", SETTINGS + "policy: {default: ask}\n")
    guarded.trust()
    waiting = guarded.call("sh", {"c": "echo NAME"}, wait="pending")
    guarded.open().approval_service.approve(str((waiting.details or {})["approval"]), "ann")
    assert code(guarded, "echo NAME") == "denied"
    result = guarded.call("sh", {"c": "echo NAME"}, approved_by="ann")
    assert (result.error and result.error.code) == "denied"
    assert guarded.call("sh", {"c": "echo x"}, approved_by="ann").value == "x\n"
