"""A limit that ended a command is named; and pid 1 is held as well as what it waits for."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import need
from tests.integration.sandbox.ground import PYTHON, Ground, said, shell
from toolcrib.errors import ToolUnavailable
from toolcrib.sandbox import Confinement, run
from toolcrib.sandbox.host.enforcement import groups


@pytest.mark.parametrize(
    ("script", "limits", "name", "number"),
    [
        ("while :; do :; done", {"cpu_s": 1}, "cpu", 24),
        ("exec dd if=/dev/zero of=/tmp/file bs=65536 count=100", {"file_size": 1 << 20}, "file_size", 25),
    ],
)
def test_the_limit_that_ended_a_command_is_named(
    ground: Ground, script: str, limits: dict[str, int], name: str, number: int
) -> None:
    done = shell(ground, script, **limits)
    assert (done.signal, done.timed_out) == (number, False), said(done)
    assert done.enforcement["exceeded"] == [name]


def test_who_ignores_the_warning_is_ended_a_second_later(ground: Ground) -> None:
    done = shell(ground, "trap '' XCPU; while :; do :; done", cpu_s=1)
    assert (done.signal, done.timed_out) == (9, False), said(done)


def test_a_failure_of_the_commands_own_exceeds_nothing(ground: Ground) -> None:
    assert "exceeded" not in shell(ground, "exit 24").enforcement
    assert "exceeded" not in shell(ground, "kill -9 $$").enforcement


def test_less_memory_than_a_sandbox_takes_is_told_as_that(ground: Ground) -> None:
    need(f"control groups ({groups()[1]})", groups()[0] is not None, of_root=True)
    with pytest.raises(ToolUnavailable, match="1048576 bytes") as caught:
        shell(ground, ":", memory_bytes=1 << 20)
    assert not caught.value.retryable
    assert "limits.memory_bytes" in str(caught.value.hint)


FORKING = """
import os, sys
try:
    while True:
        if not os.fork():
            os.read(0, 1), os._exit(0)
except OSError:
    os.write(3, sys.argv[1].encode())
"""


@pytest.mark.parametrize(("told", "met"), [("good", False), ("bad", True)])
def test_a_limit_is_told_of_a_failure_only_the_result_tells(ground: Ground, told: str, met: bool) -> None:
    need(f"control groups ({groups()[1]})", groups()[0] is not None, of_root=True)
    argv = (PYTHON, "-I", "-S", "-c", FORKING, told)
    job = Confinement(
        argv=argv,
        cwd="/tmp",
        read=(os.path.realpath(sys.base_prefix),),
        processes=8,
        result_limit=100,
        good=b"good",
        timeout_ms=120_000,
    )
    done = asyncio.run(run(job))
    assert (done.exit_code, done.result) == (0, told.encode()), said(done)
    assert done.enforcement.get("exceeded") == (["processes"] if met else None)


def test_pid_one_has_a_filter_and_no_new_rights_before_the_command_starts(ground: Ground) -> None:
    done = shell(ground, "cat /proc/1/status")
    told = dict(line.split(":\t", 1) for line in said(done).splitlines() if ":\t" in line)
    assert told["Seccomp"] == "2", said(done)
    assert told["NoNewPrivs"] == "1"
    assert {told[name].strip("0") for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {""}


def test_what_is_left_is_still_ended_by_pid_one(ground: Ground, tmp_path: Path) -> None:
    for _ in range(3):
        done = shell(ground, "sleep 60 & setsid sleep 60 & sleep 0.05; exit 7")
        assert (done.exit_code, done.timed_out) == (7, False)
        assert done.duration_ms < 60_000
