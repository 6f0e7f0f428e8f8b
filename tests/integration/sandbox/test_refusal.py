"""Where the kernel cannot confine, nothing is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import need
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


GRANTED = """
import asyncio, sys
from toolcrib.errors import PermissionDenied
from toolcrib.sandbox import Confinement, run
try:
    asyncio.run(run(Confinement(argv=("ls",), cwd="/", read=(sys.argv[1],))))
except PermissionDenied as error:
    print(error.message)
"""


def test_a_missing_mechanism_is_named_and_nothing_runs() -> None:
    # Tried inside the sandbox, which allows no second one.
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


def test_a_grant_with_a_file_system_of_the_kernel_inside_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    mount = 'mount --rbind /proc "$0" && exec "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(inside)]
    able = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    need(f"mounts of its own ({able.stderr.decode().strip()})", able.returncode == 0)
    done = subprocess.run(
        [*unshare, sys.executable, "-c", GRANTED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"a grant contains the kernel's file system proc: {inside}\n", done.stderr
