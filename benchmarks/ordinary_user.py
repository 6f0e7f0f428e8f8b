"""A confined command sampled in a process of an ordinary user, when the benchmarks are run by root."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.setting import Missing
from benchmarks.timing import Sampler

ROOT = Path(__file__).resolve().parent.parent


def as_ordinary_user() -> Sampler:
    """Sample /bin/true, cold, in a server that an ordinary user runs; it ends with this process."""
    from tests.escape.staging import NOBODY, for_an_ordinary_user

    if os.geteuid() != 0:
        raise Missing("skipped: all of this was run by an ordinary user")
    room = tempfile.TemporaryDirectory(prefix="toolcrib-bench-", dir="/var/tmp")
    Path(room.name).chmod(0o755)
    python, path = for_an_ordinary_user(Path(room.name))
    copies = Path(room.name, "copies")
    if copies.exists():
        shutil.copytree(ROOT / "benchmarks", copies / "benchmarks")
    server = subprocess.Popen(
        [python, "-m", "benchmarks.ordinary_user"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        cwd="/",
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        text=True,
    )

    def sample(times: int, _holds: object = room) -> float:  # the room, as long as there is somebody to ask
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(f"{times}\n")
        server.stdin.flush()
        return float(server.stdout.readline() or "nan")

    sample(1)
    return sample


def main() -> None:
    """Answer each count of calls with the seconds they took."""
    from benchmarks.confined import cold, confined

    sample = cold(asyncio.new_event_loop(), confined(("/bin/true",)))
    for line in sys.stdin:
        print(sample(int(line)), flush=True)


if __name__ == "__main__":
    main()
