"""The start of a server: what the first list of tools must not load or read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crib import Crib

NEEDLESS = ("toolcrib.egress", "toolcrib.runs", "toolcrib.sandbox.job", "toolcrib.search")
SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from toolcrib.project import McpCatalog, Project

async def main(root, data):
    async with Project.open(root, data=Path(data)) as project:
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
    words = [sys.executable, "-c", SCRIPT, str(crib.root), str(tmp_path / "data"), *NEEDLESS]
    subprocess.run(words, capture_output=True, timeout=60, check=True)  # writes the cache
    found = json.loads(subprocess.run(words, capture_output=True, timeout=60, check=True).stdout)
    assert ("get" in found["names"]) is bool(most)
    assert bool(found["errors"]) is bool(most)
    assert most or found["loaded"] == []
