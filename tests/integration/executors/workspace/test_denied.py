"""Failures of confined tools for lack of a permission, through the whole call path and the real sandbox."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crib import Crib, failed

pytestmark = pytest.mark.usefixtures("kernel")

SOURCE = """
import os, shutil
from pathlib import Path
class RetryableError(Exception): pass
def run(what):
    if what == "open": return open("in.csv").read()
    if what == "path": return open(Path("in.csv")).read()
    if what == "write": return open("data/a", "w").write("x")
    if what == "new": return Path("data/new").write_text("x")
    if what == "copy": return shutil.copy("in.csv", "/tmp/x")
    if what == "list": return os.listdir("out")
    if what == "wrapped":
        try: open("in.csv")
        except OSError as error: raise ValueError("no input") from error
    if what == "import": import helper
    if what == "gone": return open("gone").read()
    if what == "signal":
        try: open("in.csv")
        except OSError as error: raise RetryableError("again") from error
    if what == "handled":
        try: open("in.csv")
        except OSError: pass
        raise ValueError("something else")
"""


@pytest.fixture
def tool(crib: Crib) -> Crib:
    for name in ("in.csv", "out/old", "data/a", "helper.py"):
        crib.write(name, "x = 1")
    crib.python(
        SOURCE,
        properties={"what": {"type": "string"}},
        config={"args": ["${what}"]},
        permissions={"fs": {"read": ["data"]}},
    )
    crib.shell(permissions={"fs": {"read": ["data"]}})
    return crib


@pytest.mark.parametrize(
    ("what", "access", "value"),
    [
        ("open", "read", "in.csv"),
        ("path", "read", "in.csv"),
        ("write", "write", "data/a"),
        ("new", "write", "data"),
        ("copy", "read", "in.csv"),
        ("list", "read", "out"),
        ("wrapped", "read", "in.csv"),
    ],
)
def test_the_exception_of_a_python_tool_names_the_missing_permission(
    tool: Crib, what: str, access: str, value: str
) -> None:
    result = tool.call("py", {"what": what})
    message = failed(result, "permission_denied")
    assert result.error is not None
    details = result.error.details
    assert (details["access"], details["grant"]["value"]) == (access, value)
    assert str(tool.root / value) in message
    assert tool.last().event == "TOOL_EXECUTED"
    assert tool.last().fields["code"] == "permission_denied"
    # The error is right: with that grant the same call succeeds.
    fs: dict[str, Any] = {"read": ["data"]}
    fs[access] = [*fs.get(access, []), value]
    config = {"args": ["${what}"]}
    tool.python(SOURCE, properties={"what": {"type": "string"}}, config=config, permissions={"fs": fs})
    again = tool.call("py", {"what": what})
    assert again.error is None or again.error.code != "permission_denied", again.error


def test_other_failures_of_a_python_tool_stay_its_own(tool: Crib) -> None:
    trace, packages = "toolcrib trace py", "pip install helper"
    for what, hint in (
        ("import", packages), ("gone", trace), ("signal", None), ("handled", None)
    ):  # fmt: skip
        result = tool.call("py", {"what": what})
        failed(result, "tool_failed")
        assert result.error is not None
        found = [one for one in (trace, packages) if one in (result.error.hint or "")]
        assert found == ([hint] if hint else []), what


def test_a_command_whose_failure_no_permission_explains_points_to_trace(tool: Crib) -> None:
    result = tool.call("sh", {"c": "cat gone.csv"})
    assert "gone.csv: No such file" in failed(result, "command_failed")
    assert result.error is not None
    assert "toolcrib trace sh" in (result.error.hint or "")
    killed = tool.call("sh", {"c": "kill -KILL $$"})
    failed(killed, "command_failed")
    assert killed.error is not None
    assert killed.error.hint is None


def test_a_script_whose_interpreter_is_not_granted(tool: Crib) -> None:
    tool.write("tools/interpreter", '#!/bin/sh\nexec sh "$@"\n', 0o755)
    tool.write("odd.sh", f"#!{tool.root}/tools/interpreter\necho hi\n", 0o755)
    tool.tool("odd", "command", {"entrypoint": "./odd.sh"}, outputs={"format": "text"})
    result = tool.call("odd")
    assert "tools/interpreter" in failed(result, "permission_denied")
    assert tool.last().event == "TOOL_REFUSED"
