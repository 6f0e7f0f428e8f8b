"""Where the kernel does not confine, nothing is run: tried inside the sandbox, which allows no second one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.sandbox.ground import python, said

SOURCE = str(Path(__file__).parents[3] / "src")
INNER = f"""
import asyncio, json, sys
sys.path.insert(0, {SOURCE!r})
from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox import Confinement, level, probe, run
answer = {{"level": level(), "missing": [m.name for m in probe() if m.required and not m.ok]}}
try:
    asyncio.run(run(Confinement(argv=("touch", "/tmp/ran"), cwd="/tmp")))
except SandboxUnavailable as error:
    answer["run"] = [error.message, error.hint, error.details["mechanism"]]
try:
    open("/tmp/ran")
    answer["ran"] = True
except FileNotFoundError:
    answer["ran"] = False
print(json.dumps(answer))
"""


def test_a_missing_mechanism_is_named_and_nothing_runs() -> None:
    done = python(INNER, read=(SOURCE,))
    assert done.exit_code == 0, said(done)
    answer = json.loads(done.stdout)
    assert answer["ran"] is False
    message, hint, mechanism = answer["run"]
    assert mechanism == "user namespace"
    assert "user namespace" in message
    assert "max_user_namespaces" in hint
    assert answer["level"]["level"] in ("landlock", "none")
    assert "all together" in answer["missing"]
