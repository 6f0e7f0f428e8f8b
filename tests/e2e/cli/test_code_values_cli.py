"""A tool in which a caller's text would be code: `lint` says where, and no command lists or runs it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.commands import run, text
from tests.crib import Crib

pytestmark = pytest.mark.usefixtures("kernel")
TEXT = {"c": {"type": "string", "description": "What"}}
CODE: dict[str, dict[str, Any]] = {
    "shell": {"entrypoint": "env", "args": ["A=1", "bash", "-ec", "echo ${c}"]},
    "awk": {"entrypoint": "awk", "args": ["${c}"]},
    "program": {"entrypoint": "env", "args": ["${c}"]},
    "preload": {"entrypoint": "ls", "env": {"LD_PRELOAD": "${c}"}},
    "input": {"entrypoint": "python3", "stdin": "${c}"},
}


def toolcrib(crib: Crib, *args: str) -> subprocess.CompletedProcess[str]:
    return text(run(args, crib.root))


def test_it_is_an_error_with_its_place_and_allow_code_lifts_it(crib: Crib) -> None:
    def put(**more: Any) -> None:
        for name, config in CODE.items():
            crib.tool(name, "command", {**config, **more}, TEXT, outputs={"format": "text"})

    put()
    lint = toolcrib(crib, "lint", "--json")
    errors = [one for one in json.loads(lint.stdout)["diagnostics"] if one["severity"] == "error"]
    assert lint.returncode == 4
    assert {one["path"].split("/")[-2]: one["rule"] for one in errors} == dict.fromkeys(CODE, "code")
    assert all(
        (one["line"], one["column"] > 1, "allow_code" in one["hint"]) == (1, True, True) for one in errors
    )
    assert json.loads(toolcrib(crib, "list", "--json").stdout)["tools"] == []
    called = toolcrib(crib, "run", "awk", 'c=BEGIN{print "as code"}')
    assert (called.returncode, called.stdout) == (4, "")
    put(allow_code=True)
    assert toolcrib(crib, "lint").returncode == 0
    shown = toolcrib(crib, "trust", "--json").stdout
    assert shown.count("values of a call may be run as code") >= len(CODE)
    listed = json.loads(toolcrib(crib, "list", "--json").stdout)["tools"]
    assert {one["name"] for one in listed} == set(CODE)
    assert toolcrib(crib, "run", "awk", 'c=BEGIN{print "as code"}').stdout == "as code\n"
