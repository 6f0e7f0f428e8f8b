"""Measure Toolcrib beside its limits and its peers: tables on standard output, progress on standard error.

`make bench` runs this. A missed target is shown in its row and is no failure: machines differ, ratios within
one run are what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The modules beside this one bear everyday names; they are reached as `benchmarks.x` only.
sys.path[0] = str(ROOT)

from benchmarks.environment import python_with_peers  # noqa: E402 - the path comes first
from benchmarks.part import PARTS  # noqa: E402 - the path comes first
from benchmarks.table import Table  # noqa: E402 - the path comes first

SECONDS = 300
"""Limit of one part."""
QUICK_SECONDS = 60


def main() -> int:
    """Run the parts one after the other; gives 0 however the targets fare, 1 when a part did not end well."""
    options = _options()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    python = None if options.no_peers else python_with_peers(_say)
    head = _head(peers=python is not None, wanted=not options.no_peers)
    print("\n".join(head), flush=True)
    results: dict[str, Any] = {"about": head, "parts": {}}
    failed = 0
    for name in options.only:
        _say(f"{name} …")
        tables = _part(name, python, quick=options.quick)
        if isinstance(tables, str):
            failed += 1
            results["parts"][name] = {"failure": tables}
            print(f"\n### {name}\n\nNot measured: {tables}", flush=True)
            continue
        results["parts"][name] = {"tables": tables}
        for data in tables:
            print(f"\n{Table.of(data).markdown()}".rstrip(), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", type=_names, default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="seconds: shows that it runs, the figures mean little"
    )
    parser.add_argument(
        "--no-peers", action="store_true", help="only Toolcrib and the limits, in this environment"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE as well")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(PARTS)}")
    return names


def _part(name: str, python: Path | None, *, quick: bool) -> list[dict[str, Any]] | str:
    """The tables of one part as data, or why there are none; nothing it started outlives it."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as folder:
        output = Path(folder, "tables.json")
        work = Path(folder, "work")
        work.mkdir()
        command = [str(python or sys.executable), "-m", "benchmarks.part", name, str(output), str(work)]
        command += ["--quick"] * quick + ["--peers"] * (python is not None)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment["TOOLCRIB_DATA"] = str(Path(folder, "data"))
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
        )
        limit = QUICK_SECONDS if quick else SECONDS
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            return f"it took longer than {limit} s"
        finally:
            _end(process)
        if status != 0 or not output.exists():
            return f"it ended with status {status}; standard error says why"
        tables: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))
        return tables


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a part: itself, its servers, its fresh processes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _head(*, peers: bool, wanted: bool) -> list[str]:
    """When and where this was measured."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    when = time.strftime("%Y-%m-%d")
    system = f"{platform.system()} {platform.release()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{os.cpu_count()} × {_processor()}"
    head = ["## Measured", "", f"{when}, {machine}, {system}, {python}, load before: {load}."]
    if not peers:
        why = "the environment for them could not be made" if wanted else "they were not asked for"
        head += ["", f"Without the peers: {why}."]
    return head


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
