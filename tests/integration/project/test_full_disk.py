"""A disk that is really full stops tools, and they run again when there is room."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import need

SCRIPT = textwrap.dedent("""
    import asyncio, os, sys
    from pathlib import Path
    from toolcrib import Project
    from toolcrib.guard import ANCHOR, verify

    root = Path(sys.argv[1]) / "project"
    os.environ["TOOLCRIB_DATA"] = sys.argv[2]
    (root / ".toolcrib" / "tools").mkdir(parents=True)
    ran = []

    async def main():
        async with Project.open(root) as project:
            @project.toolset.tool
            def note(n: int, text: str = "") -> str:
                ran.append(n)
                return "noted"

            assert (await project.call("note", {"n": 0})).unwrap() == "noted"
            ballast = root / "ballast"
            with ballast.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 4096)
                except OSError:
                    pass
            # Up to the end of the log's last block there is room.
            results = [await project.call("note", {"n": n, "text": "y" * 200}) for n in range(1, 60)]
            failed = [n for n, result in enumerate(results, 1) if result.error is not None]
            assert failed, "the disk was never full"
            first = results[failed[0] - 1].error
            assert first.code == "audit_unavailable", first
            assert first.details["error"] == "ENOSPC"
            assert "disk" in first.hint
            # The first that failed had run already; after it nothing ran.
            assert failed == list(range(failed[0], 60))
            assert ran == list(range(failed[0] + 1)), (ran, failed)
            ballast.unlink()
            assert (await project.call("note", {"n": 100})).unwrap() == "noted"
            return project.audit.path

    path = asyncio.run(main())
    anchor, = Path(sys.argv[2]).rglob(ANCHOR)
    verdict = verify(path, anchor=anchor)
    assert verdict.ok and verdict.anchor == verdict.head, verdict
    assert verdict.notices == {"AUDIT_RESUMED": 1}, verdict
    print("done")
""")


@pytest.mark.parametrize("where", ["with the log", "elsewhere"], ids=lambda w: f"anchor {w}")
def test_nothing_runs_that_cannot_be_recorded(tmp_path: Path, where: str) -> None:
    disk, other = tmp_path / "disk", tmp_path / "data"
    disk.mkdir()
    data = disk / "data" if where == "with the log" else other
    inner = 'mount -t tmpfs -o size=256k none "$1" && shift && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inner, "sh", str(disk)]
    tried = subprocess.run([*command, "true"], capture_output=True, check=False)
    need("mounts in a user namespace", tried.returncode == 0)
    done = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT, str(disk), str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
