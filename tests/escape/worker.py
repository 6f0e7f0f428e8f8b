"""Stands for the server: runs probes one after the other as whoever started it.

`worker.py ROOM ATTACKS` reads lines of JSON `{"probe": …, "contestant": …}` and answers each with a line
`{"outcome": …, "evidence": …, "report": …, "seconds": …}`. ATTACKS is the compiled attacks or `-`.
`worker.py --modules` runs one control and prints the files of every module that took.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.escape.arena import Arena
from tests.escape.probe import Outcome, Probe
from tests.escape.suite import named


def attempt(probe: Probe, contestant: str, room: Path, attacks: Path | None) -> dict[str, Any]:
    """Run one probe in a fresh arena."""
    base = Path(tempfile.mkdtemp(prefix="arena-", dir=room))
    environment = dict(os.environ)
    began = time.monotonic()
    try:
        outcome, evidence, report = probe.body(Arena(base, contestant, attacks))
    except Exception:
        outcome, evidence, report = Outcome.NOT_RUN, traceback.format_exc()[-1500:], {}
    finally:
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(base, ignore_errors=True)
    return {
        "outcome": outcome.value,
        "evidence": evidence,
        "report": dict(report),
        "seconds": time.monotonic() - began,
    }


def main(room: Path, attacks: Path | None) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.set_inheritable(answers.fileno(), False)
    os.dup2(2, 1)  # What a probe prints is no answer.
    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(attempt(named(asked["probe"]), asked["contestant"], room, attacks)) + "\n")
        answers.flush()


def modules() -> list[str]:
    """Files of every module that a project with its tools takes."""
    with tempfile.TemporaryDirectory() as room:
        attempt(named("controls/project"), "ours", Path(room), None)
    import ruamel.yaml  # noqa: F401 - loaded only to say where an error is

    files = (getattr(module, "__file__", None) for module in sys.modules.values())
    return sorted({file for file in files if file})


if __name__ == "__main__":
    if sys.argv[1] == "--modules":
        print(json.dumps(modules()))
    else:
        main(Path(sys.argv[1]), None if sys.argv[2] == "-" else Path(sys.argv[2]))
