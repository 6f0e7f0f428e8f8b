"""What tools are kept from, told by the real sandbox through the whole call path."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crib import Crib, failed

pytestmark = pytest.mark.usefixtures("kernel")

SOURCE = """
import os, shutil, socket, urllib.request
from pathlib import Path
class RetryableError(Exception): pass
def run(what):
    if what == "open": return open("in.csv").read()
    if what == "path": return open(Path("in.csv")).read()
    if what == "write": return open("in.csv", "w").write("x")
    if what == "new": return Path("out/new").write_text("x")
    if what == "mkdir": return os.mkdir("out/new")
    if what == "rename": return os.rename("data/a", "data/b")
    if what == "copy": return shutil.copy("in.csv", "/tmp/x")
    if what == "list": return os.listdir("out")
    if what == "import": import helper
    if what == "url": return urllib.request.urlopen("http://api.example.com/x").read()
    if what == "socket": return socket.socket()
    if what == "gone": return open("gone").read()
    if what == "signal":
        try: open("in.csv")
        except OSError as error: raise RetryableError("again") from error
    if what == "wrapped":
        try: open("in.csv")
        except OSError as error: raise ValueError("no input") from error
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
        ("write", "write", "in.csv"),
        ("new", "write", "out"),
        ("mkdir", "write", "out"),
        ("rename", "write", "data"),
        ("copy", "read", "in.csv"),
        ("list", "read", "out"),
        ("import", "read", "helper.py"),
        ("wrapped", "read", "in.csv"),
    ],
)
def test_a_python_tool_is_told_the_grant_that_it_lacks(
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
    # What it says is true: with that grant the same call is let through.
    fs: dict[str, Any] = {"read": ["data"]}
    fs[access] = [*fs.get(access, []), value]
    config = {"args": ["${what}"]}
    tool.python(SOURCE, properties={"what": {"type": "string"}}, config=config, permissions={"fs": fs})
    again = tool.call("py", {"what": what})
    assert again.error is None or again.error.code != "permission_denied", again.error


def test_the_network_is_named(tool: Crib) -> None:
    url = tool.call("py", {"what": "url"})
    assert "api.example.com" in failed(url, "permission_denied")
    assert "network" in failed(tool.call("py", {"what": "socket"}), "permission_denied")


@pytest.mark.parametrize("what", ["gone", "signal"])
def test_the_tools_own_failures_stay_its_own(tool: Crib, what: str) -> None:
    failed(tool.call("py", {"what": what}), "tool_failed")


def test_what_was_handled_is_not_what_failed(tool: Crib) -> None:
    assert "something else" in failed(tool.call("py", {"what": "handled"}), "tool_failed")


@pytest.mark.parametrize(
    ("script", "access", "value"),
    [
        ("cat in.csv", "read", "in.csv"),
        ("echo x > data/a", "write", "data/a"),
        ("rm data/a", "write", "data"),
        ("ls out", "read", "out"),
        ("mkdir out/new", "write", "out"),
        ("cp data/a out/a", "write", "out"),
    ],
)
def test_a_command_is_told_the_grant_that_it_lacks(tool: Crib, script: str, access: str, value: str) -> None:
    result = tool.call("sh", {"c": script})
    failed(result, "permission_denied")
    assert result.error is not None
    assert (result.error.details["access"], result.error.details["grant"]["value"]) == (access, value)
    assert result.error.details["stderr"] in result.error.message


def test_a_script_whose_interpreter_is_not_shown(tool: Crib) -> None:
    tool.write("tools/interpreter", '#!/bin/sh\nexec sh "$@"\n', 0o755)
    tool.write("odd.sh", f"#!{tool.root}/tools/interpreter\necho hi\n", 0o755)
    tool.tool("odd", "command", {"entrypoint": "./odd.sh"}, outputs={"format": "text"})
    result = tool.call("odd")
    assert "tools/interpreter" in failed(result, "permission_denied")
    assert tool.last().event == "TOOL_REFUSED"


def test_a_command_that_did_not_fail_lacked_nothing(tool: Crib) -> None:
    tool.shell("lax", config={"exit_codes_ok": [0, 1]})
    assert tool.call("lax", {"c": "cat in.csv"}).ok
    assert tool.call("lax", {"c": "cat in.csv; true"}).ok
    failed(tool.call("lax", {"c": "cat in.csv; exit 2"}), "permission_denied")
