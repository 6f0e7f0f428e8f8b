"""System calls that a container's filter denies to the server: it falls back, or refuses and says why."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib

SOURCE = str(Path(__file__).parents[3] / "src")
# Runs `BODY` in a process to which the kernel denies one call.
DENIED = """
import asyncio, ctypes, json, os, sys
sys.path.insert(0, sys.argv[1])
from toolcrib.sandbox.kernel import bpf, seccomp
code = [bpf.load(bpf.DATA_NUMBER), *bpf.match((int(sys.argv[2]),), bpf.refuse(int(sys.argv[3]))), bpf.ALLOW]
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
from toolcrib.errors import ToolcribError
from toolcrib.sandbox import Confinement, probe, run
seccomp.install(bpf.encode(code))
def call(*argv, **rules):
    env = {"PATH": "/usr/bin:/bin"}
    try:
        done = asyncio.run(run(Confinement(argv, "/tmp", env, **rules)))
    except ToolcribError as error:
        return {"code": error.code, "mechanism": error.details.get("mechanism"), "message": error.message}
    return {"out": done.stdout.decode(), "timed_out": done.timed_out, "report": done.enforcement}
def doctor(name):
    return [[m.ok, m.required, m.detail, m.cost] for m in probe() if m.name == name]
"""
NUMBERS = {
    "x86_64": {"pidfd_send_signal": 424, "memfd_create": 319, "prlimit64": 302},
    "aarch64": {"pidfd_send_signal": 424, "memfd_create": 279, "prlimit64": 261},
}[os.uname().machine]


def denied(name: str, number: int, body: str) -> Any:
    """Return what the body prints as JSON, with this system call denied."""
    argv = [sys.executable, "-c", DENIED + body, SOURCE, str(NUMBERS[name]), str(number)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_time_limit_kills_without_pidfd_send_signal(number: int) -> None:
    body = """
hold = "trap '' TERM; while :; do sleep 0.05; done"
print(json.dumps([call("sh", "-c", hold, timeout_ms=300), call("echo", "x"), doctor("pidfd_send_signal")]))
"""
    held, after, ((ok, required, detail, cost),) = denied("pidfd_send_signal", number, body)
    assert held["timed_out"], held
    assert after["out"] == "x\n"
    assert "pidfd_send_signal" in after["report"]["missing"]
    assert (ok, required) == (False, False)
    assert detail
    assert "kill" in cost


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
@pytest.mark.parametrize("name", ["memfd_create", "prlimit64"])
def test_a_denied_call_that_is_needed_is_named(name: str, number: int) -> None:
    body = f"print(json.dumps([call('echo', 'x'), call('cat', stdin=b'x'), doctor({name!r})]))"
    plain, with_input, ((ok, required, _, _),) = denied(name, number, body)
    for answer in (plain, with_input):
        assert (answer.get("code"), answer.get("mechanism")) == ("sandbox_unavailable", name), answer
    assert (ok, required) == (False, True)


def test_a_call_of_a_project_says_what_is_denied_too(crib: Crib) -> None:
    crib.shell()
    body = f"""
from toolcrib import Project
async def once():
    async with Project.open({str(crib.root)!r}, accept="all") as project:
        return (await project.call("sh", {{"c": "true"}})).as_dict()
print(json.dumps(asyncio.run(once())["error"]))
"""
    error = denied("prlimit64", errno.EPERM, body)
    assert (error["code"], error["details"]["mechanism"]) == ("sandbox_unavailable", "prlimit64"), error


def test_nothing_is_reported_as_missing_where_nothing_is() -> None:
    done = denied("pidfd_send_signal", 0, "print(json.dumps(call('echo', 'x')))")
    assert done["report"].get("missing") != []
