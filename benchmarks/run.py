"""Measure Toolcrib beside its limits and its peers: tables on standard output, progress on standard error.

`make bench` runs this. A missed reach is shown in its row and is no failure: machines differ, ratios within
one run are what counts. With `--against` the run is compared with a commit, and a slower row is a failure.
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

ROOT = Path(__file__).resolve().parent.parent
# The modules beside this one bear everyday names; they are reached as `benchmarks.x` only.
sys.path[0] = str(ROOT)

from benchmarks.against import BEFORE, MOST, against  # noqa: E402 - the path comes first
from benchmarks.environment import bin_of_gateway, python_with_peers  # noqa: E402 - the path comes first
from benchmarks.part import PARTS  # noqa: E402 - the path comes first
from benchmarks.table import Table, missed  # noqa: E402 - the path comes first

STALLED_S = 600
"""A part that finishes nothing in this time hangs, on the slowest machine too."""


def main() -> int:
    """Run the parts one after the other. Return 1 when one did not end well, or is slower than a commit."""
    options = _options()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    if options.against:
        return against(options.against, options.only, measured, quick=options.quick)
    python = None if options.no_peers else python_with_peers(say)
    if python is not None and "gateway" in options.only:
        bin_of_gateway(say)  # Now, while nothing is measured.
    about = _about(peers=python is not None, wanted=not options.no_peers)
    print(f"## Measured\n\n{about}", flush=True)
    parts, failures, began = {}, {}, time.monotonic()
    for name in options.only:
        say(f"{name} … ({time.monotonic() - began:.0f} s)")
        tables, failure = measured(name, python, quick=options.quick)
        parts[name] = [table.json() for table in tables]
        for table in tables:
            print(f"\n{table.markdown()}".rstrip(), flush=True)
        if failure:
            failures[name] = failure
            print(f"\n### {name}\n\nNot measured to its end: {failure}", flush=True)
        if options.json:
            data = {"about": about, "failures": failures, "parts": parts}
            options.json.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    say(f"{time.monotonic() - began:.0f} s in all")
    print("\n### Missed\n")
    print("\n".join(missed([Table.of(one) for part in parts.values() for one in part])))
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", type=_names, default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="seconds: shows that it runs, the figures mean little"
    )
    parser.add_argument(
        "--no-peers", action="store_true", help="only Toolcrib and the limits, in this environment"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument(
        "--against",
        nargs="?",
        const=BEFORE,
        metavar="COMMIT",
        help=f"compare with the source of COMMIT (that before on main) and fail above {MOST:g} ×",
    )
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(PARTS)}")
    return names


def measured(
    name: str, python: Path | None, *, quick: bool, source: Path | None = None
) -> tuple[list[Table], str | None]:
    """Return the tables of one part, and why not all; nothing it started outlives it.

    `source` is the folder of the package to be measured, if not this one.
    """
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as folder:
        output = Path(folder, "tables.jsonl")
        work = Path(folder, "work")
        work.mkdir()
        output.touch()
        command = [str(python or sys.executable), "-m", "benchmarks.part", name, str(output), str(work)]
        command += ["--quick"] * quick + ["--peers"] * (python is not None)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment["TOOLCRIB_DATA"] = str(Path(folder, "data"))
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
        )
        try:
            failure = _failure(process, output)
        finally:
            _end(process)
        lines = filter(None, output.read_text(encoding="utf-8").splitlines())
        return [Table.of(json.loads(one)) for one in lines], failure


def _failure(process: subprocess.Popen[bytes], output: Path) -> str | None:
    """Wait for the end of a part as long as it goes on, and return why it did not end well."""
    while True:
        before = output.stat().st_size
        try:
            status = process.wait(STALLED_S)
        except subprocess.TimeoutExpired:
            if output.stat().st_size == before:
                return f"it did not go on for {STALLED_S} s"
        else:
            return f"it ended with status {status}; standard error says why" if status else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a part: itself, its servers, its fresh processes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _about(*, peers: bool, wanted: bool) -> str:
    """Return when and where this was measured."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    system = f"{platform.system()} {platform.release()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{os.cpu_count()} × {_processor()}"
    text = f"{time.strftime('%Y-%m-%d')}, {machine}, {system}, {python}, load before: {load}."
    if os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
        text += " **The machine was busy**, so a row that was measured while others ran may be far off."
    if not peers:
        why = "the environment for them could not be made" if wanted else "they were not asked for"
        text += f" Without the peers: {why}."
    return text


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
