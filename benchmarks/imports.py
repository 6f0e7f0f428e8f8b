"""What importing costs a fresh process, and how long `toolcrib --help` takes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.setting import Setting
from benchmarks.table import Row, Table, Target
from benchmarks.timing import Sampler, interleave

BARE = "python -c pass"
COMMAND = "toolcrib --help"
OURS = {
    "import toolcrib": Target(30, "over"),
    "from toolcrib import Toolset": Target(150, "over"),
}
PEERS = {
    "mcp": "from mcp.server import MCPServer",
    "pydantic-ai": "from pydantic_ai import FunctionToolset",
    "openai-agents": "from agents import function_tool",
}
SECONDS = 60


def measure(setting: Setting) -> list[Table]:
    """One table for Toolcrib; one with the peers, which are too slow for as many rounds."""
    command = Path(sys.executable).with_name("toolcrib")
    samplers = {BARE: _python("pass")}
    rows = [Row(BARE)]
    for code, target in OURS.items():
        samplers[code] = _python(code)
        rows.append(Row(code, target=target))
    rows.append(Row(COMMAND, target=Target(150, "wall")))
    if not command.exists():
        rows[-1].missing = f"skipped: there is no {command.name} beside the interpreter"
    elif _fails(command):
        rows[-1].missing = f"skipped: {_fails(command)}"
    else:
        samplers[COMMAND] = process([str(command), "--help"])
    table = Table("Start a fresh process", "ms", rows, ["Bytecode and files are cached."], tells_gap=True)
    table.take(interleave(samplers, setting.effort(21), times=1))
    return [table, _peers(setting)] if setting.peers else [table]


def _peers(setting: Setting) -> Table:
    code = "from toolcrib import Toolset"
    samplers = {BARE: _python("pass"), code: _python(code)}
    samplers |= {statement: _python(statement) for statement in PEERS.values()}
    table = Table("Import beside the peers", "ms", [Row(name) for name in samplers], tells_gap=True)
    table.take(interleave(samplers, setting.effort(5), times=1))
    return table


def _python(code: str) -> Sampler:
    return process([sys.executable, "-c", code])


def process(command: list[str]) -> Sampler:
    """Sample a process from start to end."""

    def sample(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        return time.perf_counter() - began

    return sample


def _fails(command: Path) -> str | None:
    done = subprocess.run([command, "--help"], check=False, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode == 0:
        return None
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"
