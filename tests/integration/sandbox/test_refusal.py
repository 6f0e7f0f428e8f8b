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


MOUNTED = """
import asyncio, sys
from toolcrib.errors import PermissionDenied
from toolcrib.sandbox import Confinement, run
for folder in sys.argv[1:]:
    job = Confinement(argv=("grep", folder, "/proc/self/mountinfo"), cwd="/", read=(folder,))
    try:
        print(*(line.split()[5] for line in asyncio.run(run(job)).stdout.decode().splitlines()))
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


def test_what_is_mounted_inside_a_grant_is_confined_too_or_refused(tmp_path: Path) -> None:
    disk, kernel = tmp_path / "a/disk", tmp_path / "b/proc"
    for folder in (disk, kernel):
        folder.mkdir(parents=True)
    mount = f'mount -t tmpfs none {disk} && mount --rbind /proc {kernel} && exec "$0" "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]
    able = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    need(f"mounts of its own ({able.stderr.decode().strip()})", able.returncode == 0)
    script = [sys.executable, "-c", MOUNTED, str(disk.parent), str(kernel.parent)]
    done = subprocess.run([*unshare, *script], capture_output=True, text=True, check=False)
    grant, refusal = done.stdout.splitlines()
    assert grant.count("ro,nosuid,nodev") == 2, done
    assert refusal == f"a grant contains the kernel's file system proc: {kernel}", done
