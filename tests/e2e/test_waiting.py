"""Notes to who waits for what nothing takes, and the two lines of a worker about an outage."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.commands import LIMIT_S, PROGRAM, Forked, run
from tests.crib import Crib
from tests.postgres import PostgresProcess
from toolcrib import Project

AGENT = {"name": "counter", "description": "Counts.", "model": "scripted", "script": [{"text": "One."}]}


@contextmanager
def started(crib: Crib, *words: str, database: str = "sqlite") -> Iterator[Forked]:
    environment = {**os.environ, "DATABASE_URL": database}
    argv = [PROGRAM, *words, "--root", str(crib.root)]
    with Forked(argv, cwd=crib.root, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def error_line(process: Forked) -> str:
    assert process.stderr is not None
    return str(process.stderr.readline())


def test_a_run_that_no_process_takes_is_watched_with_a_note(crib: Crib) -> None:
    crib.write(".toolcrib/agents/counter.yml", json.dumps(AGENT))
    begun = run(["runs", "run", "counter", "go", "--detach"], crib.root)
    run_id = begun.stdout.decode().removesuffix("\n")
    assert begun.stderr.decode() == (
        "No process serves this project, so nothing continues. Start `toolcrib worker`,"
        f" or continue it here: `toolcrib runs wait {run_id}`.\n"
    )
    with started(crib, "runs", "watch", run_id) as watch:
        note = error_line(watch)
        assert note.startswith(
            "No process serves this project, so nothing continues. Start `toolcrib worker`"
        )
        assert f"`toolcrib runs wait {run_id}`" in note
        assert run(["runs", "wait", run_id], crib.root).stdout == b"One.\n"
        assert (watch.wait(LIMIT_S), error_line(watch)) == (0, "")


def test_a_call_whose_tool_nothing_has_is_waited_for_with_a_note(crib: Crib) -> None:
    def only_here() -> int:
        """Do it."""
        return 1

    project = Project.open(crib.root, accept="all")
    project.toolset.register("only_here", only_here)
    call_id = project.submit("only_here")
    with started(crib, "calls", "wait", call_id) as wait:
        note = error_line(wait)
        assert note.startswith("No process that serves has only_here.")
        assert "`toolcrib worker --app MODULE:FUNCTION`" in note


def test_a_run_that_waits_for_a_person_is_waited_for_with_a_note(crib: Crib) -> None:
    crib.tool(
        "pay", "file", {"action": "read", "path": "f"}, approval={"required": True, "reason": "It is dear"}
    )
    steps = [{"id": "a", "tool": "pay", "args": {}}]
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    flow = {"name": "flow", "description": "Runs it", "inputs": {"schema": schema}, "steps": steps}
    crib.write(".toolcrib/workflows/flow.yml", json.dumps(flow))
    with started(crib, "workflows", "run", "flow") as waits:
        assert error_line(waits) == "Waits for a person's approval of `pay`.\n"


@pytest.mark.usefixtures("kernel")
def test_an_outage_of_the_database_is_two_lines(crib: Crib, postgres: PostgresProcess) -> None:
    with started(crib, "worker", database=postgres.url(f"test_{uuid.uuid4().hex}")) as worker:
        assert error_line(worker).startswith("serving ")
        for how in (signal.SIGINT, signal.SIGQUIT):
            postgres.stop(how)
            assert re.fullmatch(r"this process waits for its database: .+ \(.+\.\)\n", error_line(worker))
            postgres.start()
            assert error_line(worker) == "the database answers again\n"
        worker.terminate()
        assert error_line(worker) == "stopped\n"
