"""A disk that is really full stops tools, and they run again when there is room."""

from __future__ import annotations

import os
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
    from toolcrib.guard import ANCHOR
    from toolcrib.guard.audit.check import verify

    root = Path(sys.argv[1]) / "project"
    os.environ["TOOLCRIB_DATA"] = sys.argv[2]
    (root / ".toolcrib" / "tools").mkdir(parents=True)
    ran = []
    ballast = root / "ballast"

    def fill():
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass

    async def main():
        async with Project.open(root) as project:
            running = 0
            full = asyncio.Event()

            @project.toolset.tool
            async def wait(text: str) -> str:
                nonlocal running
                running += 1
                await full.wait()
                return "done"

            # Calls that run while the disk gets full: what was not recorded is an error, and stays visible.
            calls = [asyncio.create_task(project.call("wait", {"text": "z" * 500})) for n in range(30)]
            while running < len(calls):
                await asyncio.sleep(0.001)
            fill()
            full.set()
            results = [await call for call in calls]
            lost = [result.error for result in results if result.error is not None]
            assert lost, "the disk was never full"
            for error in lost:
                assert error.code == "audit_unavailable", error
                assert error.message.startswith("wait ran, but the end of the call is not recorded."), error
                assert not error.retryable
            anchor, = Path(sys.argv[2]).rglob(ANCHOR)
            open_calls = verify(project.audit.path, anchor=anchor).running
            assert [start.fields["name"] for start in open_calls] == ["wait"] * len(lost)
            ballast.unlink()

            @project.toolset.tool
            def note(n: int, text: str = "") -> str:
                ran.append(n)
                return "noted"

            assert (await project.call("note", {"n": 0})).unwrap() == "noted"
            fill()
            results = [await project.call("note", {"n": n, "text": "y" * 800}) for n in range(1, 90)]
            failed = [n for n, result in enumerate(results, 1) if result.error is not None]
            assert failed, "the disk was never full"
            first = results[failed[0] - 1].error
            assert first.code == "audit_unavailable", first
            assert first.details["error"] == "ENOSPC"
            assert "disk" in first.hint
            # After the first that failed nothing ran; that one may have, and then says so.
            assert failed == list(range(failed[0], 90))
            assert ran == list(range(failed[0] + ("note ran" in first.message))), (ran, failed)
            assert not any("note ran" in result.error.message for result in results[failed[0]:])
            ballast.unlink()
            assert (await project.call("note", {"n": 100})).unwrap() == "noted"
            return project.audit.path, len(lost) + ("note ran" in first.message)

    path, lost = asyncio.run(main())
    anchor, = Path(sys.argv[2]).rglob(ANCHOR)
    verdict = verify(path, anchor=anchor)
    assert verdict.ok and verdict.anchor == verdict.head, verdict
    assert verdict.notices.keys() <= {"AUDIT_RESUMED"}, verdict
    # This process still runs, so its calls without an end count as running.
    assert (len(verdict.running), verdict.interrupted) == (lost, ()), verdict
    print("done")
""")


@pytest.mark.parametrize("where", ["with the log", "elsewhere"], ids=lambda w: f"anchor {w}")
def test_nothing_runs_that_cannot_be_recorded(tmp_path: Path, where: str) -> None:
    disk, other = tmp_path / "disk", tmp_path / "data"
    disk.mkdir()
    data = disk / "data" if where == "with the log" else other
    inner = 'mount -t tmpfs -o size=512k none "$1" && shift && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inner, "sh", str(disk)]
    tried = subprocess.run([*command, "true"], capture_output=True, check=False)
    need("mounts in a user namespace", tried.returncode == 0)
    done = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT, str(disk), str(data)],
        # In there the owner of /tmp is nobody, and settings below a folder of nobody's are refused.
        env={key: value for key, value in os.environ.items() if key != "TOOLCRIB_CONFIG"}
        | {"XDG_CONFIG_HOME": str(other)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


LIMITED = textwrap.dedent("""
    import asyncio, os, resource, sys
    from pathlib import Path
    from toolcrib import Project

    root = Path(sys.argv[1]) / "project"
    (root / ".toolcrib" / "tools").mkdir(parents=True)
    ran = []

    async def main():
        async with Project.open(root) as project:
            @project.toolset.tool
            def note(n: int) -> str:
                ran.append(n)
                return "noted"

            assert (await project.call("note", {"n": 0})).unwrap() == "noted"
            resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, 80_000))
            results = [await project.call("note", {"n": n}) for n in range(1, 400)]
            failed = [n for n, result in enumerate(results, 1) if result.error is not None]
            first = results[failed[0] - 1].error
            assert first.details["error"] == "EFBIG", first
            assert failed == list(range(failed[0], 400))
            assert ran == list(range(failed[0] + ("note ran" in first.message)))
    asyncio.run(main())
    print("done")
""")


def test_nothing_runs_beyond_a_file_size_limit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
