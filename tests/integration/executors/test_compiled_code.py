"""Compiled code that somebody has planted in `__pycache__` never runs in place of the source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.mcp_servers import RAW, trust_offered, write
from toolcrib import Project
from toolcrib.executors.workspace.workspace import SYSTEM_PATH

pytestmark = pytest.mark.usefixtures("kernel")

COMPILE = (
    "import py_compile as p, sys; p.compile(sys.argv[1], invalidation_mode=p.PycInvalidationMode.{mode})"
)
OURS = sys._base_executable  # type: ignore[attr-defined]  # what python tools run on


def plant(source: Path, python: str = "python3") -> None:
    """Put code that says `evil` in `__pycache__`, which Python takes without looking at the source."""
    text = source.read_text()
    source.write_text(text.replace("good", "evil"))
    line = [python, "-c", COMPILE.format(mode="UNCHECKED_HASH"), str(source)]
    subprocess.run(line, check=True, env={"PATH": SYSTEM_PATH})
    source.write_text(text)


def tools(crib: Crib, fs: dict[str, Any]) -> None:
    """Tools that name their code in each way."""
    crib.write("shop/said.py", "SAID = 'good'\n")
    crib.write("shop/run.py", "from said import SAID\nprint(SAID, end='')\n")
    crib.write("said.py", "SAID = 'good'\n")
    crib.write("run.py", "from said import SAID\nprint(SAID, end='')\n")
    crib.write("pack/__init__.py", "")
    crib.write("pack/mod.py", "from pack.said import SAID\ndef run():\n    return SAID\n")
    crib.write("pack/said.py", "SAID = 'good'\n")
    more: dict[str, Any] = {"permissions": {"fs": fs}, "outputs": {"format": "text"}}
    crib.tool("script", "command", {"entrypoint": "python3", "args": ["shop/run.py"]}, **more)
    crib.tool("root", "command", {"entrypoint": "python3", "args": ["run.py"]}, **more)
    line = "from shop.said import SAID; print(SAID, end='')"
    crib.tool("listed", "command", {"entrypoint": "python3", "args": ["-c", line]}, files=["shop"], **more)
    crib.tool("module", "python", {"module": "pack.mod", "function": "run"}, permissions={"fs": fs})
    own = crib.python("from said import SAID\ndef run():\n    return SAID\n", "own", permissions={"fs": fs})
    (own / "said.py").write_text("SAID = 'good'\n")
    for source in ("shop/said.py", "said.py"):
        plant(crib.root / source)
    plant(crib.root / "pack/said.py", OURS)
    plant(own / "said.py", OURS)


@pytest.mark.parametrize("fs", [{"read": ["."]}, {"read": ["."], "write": ["out"]}], ids=["reads", "writes"])
def test_planted_code_does_not_run(crib: Crib, fs: dict[str, Any]) -> None:
    crib.write("out/x", "")
    tools(crib, fs)
    assert (crib.root / "shop/__pycache__").is_dir()
    crib.accept = "trusted"
    names = ("script", "root", "listed", "module", "own")
    crib.trust_tools(*names)
    assert {name: crib.call(name).unwrap() for name in names} == dict.fromkeys(names, "good")


def test_planting_it_asks_nobody_again(crib: Crib) -> None:
    crib.accept = "trusted"
    crib.write("out/x", "")
    crib.write("shop/said.py", "SAID = 'good'\n")
    crib.write("shop/run.py", "from said import SAID\nprint(SAID, end='')\n")
    fs = {"read": ["shop"], "write": ["out"]}
    config = {"entrypoint": "python3", "args": ["shop/run.py"]}
    crib.tool("t", "command", config, permissions={"fs": fs}, outputs={"format": "text"})
    crib.trust_tools("t")
    plant(crib.root / "shop/said.py")
    assert crib.call("t").unwrap() == "good"
    crib.write("shop/said.py", "SAID = 'evil'\n")
    error = crib.call("t").error
    assert error is not None
    assert error.code == "approval_required"


async def test_a_server_does_not_run_it(crib: Crib) -> None:
    crib.write("servers/said.py", "SAID = 'good'\n")
    crib.write("servers/s.py", f"from said import SAID\nassert SAID == 'good'\n{RAW}main()\n")
    plant(crib.root / "servers/said.py")
    server = {"command": "python3", "args": ["servers/s.py"], "permissions": {"fs": {"read": ["."]}}}
    write(crib, {"raw": server})
    crib.trust()
    await trust_offered(crib.root)
    async with Project.open(crib.root) as project:
        assert (await project.call("raw__hello")).unwrap() == "hello"
