"""What the sandbox's tests stand on: a project to grant, something outside of it, and short-hands.

Imports nothing but the standard library and toolcrib: an ordinary user's interpreter without pytest
runs `claims` on it as well.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import patient
from toolcrib.sandbox import Completed, Confinement, run

PATH = "/usr/local/bin:/usr/bin:/bin"
PYTHON = os.path.realpath(sys.executable)
CANARY = "canary-7d1f"


@dataclass(frozen=True)
class Ground:
    """Folders of the machine: `project` may be granted, `outside` never is."""

    project: Path
    outside: Path

    @classmethod
    def make(cls, base: Path) -> Ground:
        """Lay out a project with the places that are special, and a canary outside of it."""
        base = Path(os.path.realpath(base))
        ground = cls(base / "project", base / "outside")
        for folder in (".git/hooks", ".toolcrib/scratch", "src/deep/er", "secrets"):
            (ground.project / folder).mkdir(parents=True)
        ground.outside.mkdir()
        for path in (
            ground.outside / "canary",
            ground.project / ".env",
            ground.project / "secrets/key",
            ground.project / ".git/config",
            ground.project / ".git/hooks/pre-commit",
            ground.project / ".toolcrib/config.yml",
            ground.project / "src/file",
            ground.project / "src/deep/er/file",
        ):
            path.write_text(f"{CANARY} {path.name}\n")
        (ground.project / "link-out").symlink_to(ground.outside)
        return ground


def shell(ground: Ground, script: str, **rules: Any) -> Completed:
    """Run a shell script confined, in the project when that is granted and else in /tmp."""
    granted = str(ground.project) in (*rules.get("read", ()), *rules.get("write", ()))
    rules.setdefault("cwd", str(ground.project) if granted else "/tmp")
    rules.setdefault("env", {"PATH": PATH})
    rules.setdefault("timeout_ms", 120_000)
    return asyncio.run(run(Confinement(argv=("/bin/sh", "-c", script), **rules)))


def python(code: str, *, env: Mapping[str, str] | None = None, **rules: Any) -> Completed:
    """Run Python code confined, with the interpreter granted."""
    rules.setdefault("cwd", "/tmp")
    rules.setdefault("timeout_ms", 120_000)
    rules["read"] = (*rules.get("read", ()), os.path.realpath(sys.base_prefix))
    argv = (PYTHON, "-I", "-c", code)
    return asyncio.run(run(Confinement(argv=argv, env={"PATH": PATH} if env is None else env, **rules)))


def said(done: Completed) -> str:
    """Everything the command wrote, for a check or the message of a failed one."""
    return (done.stdout + done.stderr).decode(errors="replace")


def processes_with(marker: str) -> dict[int, str]:
    """Processes of the machine whose command line holds `marker`, with that line."""
    return _processes("cmdline", marker)


def processes_knowing(marker: str) -> dict[int, str]:
    """Processes of the machine whose initial environment holds `marker`, with their command line."""
    return _processes("environ", marker)


def _processes(file: str, marker: str) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if marker.encode() in (entry / file).read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
    return found


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> bool:
    """Whether a condition comes true within some seconds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > patient(seconds):
            return False
        time.sleep(0.01)
    return True
