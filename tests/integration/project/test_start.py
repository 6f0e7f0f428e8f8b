"""The start of a server: what the first list of tools must not load or read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crib import Crib, accept
from toolcrib.project.catalog.bundles import Wish
from toolcrib.spec import Caller

NEEDLESS = ("toolcrib.egress", "toolcrib.runs", "toolcrib.sandbox.job", "toolcrib.search")
SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from toolcrib.project import Project
from toolcrib.project.mcp_catalog import McpCatalog

async def main(root, data):
    async with Project.open(root, data=data) as project:
        names = [tool.name for tool in McpCatalog(project).tools()]
        loaded = [name for name in sys.argv[3:] if name in sys.modules]
        print(json.dumps({"names": names, "loaded": loaded, "errors": len(project.errors)}))

asyncio.run(main(*sys.argv[1:3]))
"""


@pytest.mark.parametrize("most", [0, 100])
def test_the_first_list_loads_only_what_it_needs(most: int, tmp_path: Path) -> None:
    """Behind the meta-tools no manifest is read, so a wrong one does not show yet."""
    crib = Crib(tmp_path / "project")
    crib.tool("get", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}})
    crib.tool("wrong", "file", {"action": "read", "path": "${nobody}"})
    crib.write(".toolcrib/config.yml", f"mcp: {{max_listed: {most}}}")
    accept(crib.root, tmp_path / "data")
    words = [sys.executable, "-c", SCRIPT, str(crib.root), str(tmp_path / "data"), *NEEDLESS]
    subprocess.run(words, capture_output=True, check=True)  # writes the cache
    found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    assert ("get" in found["names"]) is bool(most)
    assert bool(found["errors"]) is bool(most)
    assert most or found["loaded"] == []


COUNTED = """
import asyncio, collections, json, sys
from pathlib import Path
from toolcrib.project import Project

counts = collections.Counter()

def note(frame, event, what):
    if event == "c_call" and what.__name__ in ("lstat", "readlink", "listdir", "scandir", "stat"):
        counts[what.__name__] += 1
    elif event == "call" and frame.f_code.co_name in ("tool_of", "programs_of", "_written"):
        counts[frame.f_code.co_name] += 1

def is_own(event, args):
    return event == "open" and str(args[0]).startswith(sys.argv[1])

async def main(root, data):
    sys.addaudithook(lambda event, args: counts.update([event] if is_own(event, args) else ()))
    async with Project.open(root, data=Path(data), accept="all") as project:
        assert (await project.call("t7")).unwrap().strip() == "seven"

sys.setprofile(note)
asyncio.run(main(*sys.argv[1:3]))
sys.setprofile(None)
print(json.dumps(counts))
"""


@pytest.mark.parametrize("write", [[], ["out"]])
def test_a_call_costs_the_same_among_many_tools(write: list[str], tmp_path: Path) -> None:
    """Only the manifest of the tool itself is read; of each other one it is seen that it has not changed."""
    found = []
    for count in (10, 300):
        crib = Crib(tmp_path / f"project{count}")
        (crib.root / "out").mkdir()
        for number in range(count):
            script = crib.write(f".toolcrib/tools/t{number}/run.sh", "echo seven")
            config = {
                "entrypoint": "sh",
                "args": [str(script.relative_to(crib.root)), f"scripts/{number}.sh"],
            }
            granted = {"fs": {"read": ["."], "write": write}}
            crib.tool(f"t{number}", "command", config, permissions=granted, outputs={"format": "text"})
        words = [sys.executable, "-c", COUNTED, str(crib.root), str(tmp_path / "data")]
        subprocess.run(words, capture_output=True, check=True)  # It writes the cache.
        run = subprocess.run(words, capture_output=True, check=False)
        assert run.returncode == 0, run.stderr.decode()
        found.append(json.loads(run.stdout))
    few, many = found
    # A few looks more or less, because some of them happen beside the call.
    assert abs(many.pop("stat") - few.pop("stat") - 290) <= 20
    assert few["tool_of"] >= 1
    assert many.keys() == few.keys()
    assert all(abs(number - few[name]) <= 20 for name, number in many.items()), (few, many)


TOOLSET = """
import json, sys
before = set(sys.modules)
from toolcrib import Toolset
print(json.dumps(sorted(sys.modules.keys() - before)))
"""
RUN = """
import atexit, json, sys
from toolcrib.cli import main
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
main()
"""


def third_party(modules: list[str]) -> set[str]:
    found = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    # What Python loads in an environment by itself begins with an underscore.
    return {name for name in found if name[0] != "_" and name not in ("toolcrib", "sitecustomize")}


def own(modules: list[str]) -> int:
    return sum(name.startswith("toolcrib.") for name in modules)


def test_the_toolset_of_a_program_loads_what_it_needs() -> None:
    ran = subprocess.run([sys.executable, "-c", TOOLSET], capture_output=True, check=True)
    modules = json.loads(ran.stdout)
    assert third_party(modules) == {"orjson"}
    assert {"email", "importlib.metadata", "sqlite3", "toolcrib.manifest", "toolcrib.state"} & {
        *modules
    } == set()
    assert own(modules) <= 58


def test_a_run_loads_what_the_call_needs(tmp_path: Path) -> None:
    """The first run has checked the manifest; later ones read the result."""
    crib = Crib(tmp_path / "project")
    config = {"entrypoint": "echo", "args": ["--", "${q}"]}
    crib.tool("echo", "command", config, {"q": {"type": "string"}}, outputs={"format": "text"})
    accept(crib.root, tmp_path / "data")
    words = [sys.executable, "-c", RUN, "run", "echo", "q=hi"]
    env = {**os.environ, "TOOLCRIB_DATA": str(tmp_path / "data")}
    _, ran = (
        subprocess.run(words, cwd=crib.root, env=env, capture_output=True, check=True) for _ in range(2)
    )
    modules = json.loads(ran.stderr)
    assert ran.stdout == b"-- hi\n"
    assert third_party(modules) <= {"click", "jsonschema_rs", "orjson", "ryaml"}
    assert own(modules) <= 255


def test_the_list_of_secrets_reads_no_tool_without_one(crib: Crib) -> None:
    crib.shell("look")
    crib.shell("keyed", permissions={"secrets": {"SHOP_KEY": {"type": "string"}}})
    project = crib.open()
    assert [tool.name for tool in project.catalog.with_secrets()] == ["keyed"]
    assert project.catalog.registry.unused("look") is not None


def test_a_search_asks_about_each_tool_only_for_a_token_that_sees_some(crib: Crib) -> None:
    crib.shell("look")
    crib.shell("seek")
    bundles = crib.open().bundles
    every, some, none = (
        Caller("ann", frozenset(("read",))),
        Caller("ann", frozenset(("read",)), ("look*",)),
        Caller("ann", frozenset()),
    )
    assert bundles.sees(Wish(identity=every)) is None
    names = [bundles.names(Wish(identity=caller)) for caller in (every, some, none)]
    assert names == [["look", "seek"], ["look"], []]
