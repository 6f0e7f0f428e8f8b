"""The public conformance suite, and the address of the fixture server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import need
from tests.crib import accept
from tests.third_party import NODE_22, node_packages
from toolcrib.guard import Tokens
from toolcrib.state import Vault

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PACKAGE = "node_modules/@modelcontextprotocol/conformance"


@pytest.fixture(scope="module")
def suite() -> list[str]:
    """The command of the suite."""
    need("npm", shutil.which("npm") is not None)
    folder = node_packages()
    patience = str(HERE / "patience.cjs")
    return [str(folder / NODE_22), "--require", patience, str(folder / PACKAGE / "dist" / "index.js")]


def requirements(suite: list[str], version: str) -> list[str]:
    """Return the names of the server scenarios that a revision requires, frozen at its release."""
    text = (Path(suite[-1]).parents[1] / "requirements" / f"{version}.yaml").read_text()
    return re.findall(r"- (\S+)", text.partition("\nserver:")[2].partition("\nclient:")[0])


def passed_of_required(suite: list[str], address: str, version: str) -> tuple[int, int]:
    """Run the server scenarios that a revision requires; give how many pass, and how many there are."""
    required, failed = required_and_failed(suite, address, version)
    return len(required) - len(failed), len(required)


def required_and_failed(suite: list[str], address: str, version: str) -> tuple[list[str], list[str]]:
    """Run the server scenarios that a revision requires; give their names, and the names of those that fail.

    The suite exits with 0 if none does.
    """
    required = requirements(suite, version)
    with tempfile.TemporaryDirectory() as folder:
        command = [*suite, "server", "--url", address, "--requirements", version, "--output-dir", folder]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        checks = [one for path in Path(folder).glob("*/checks.json") for one in json.loads(path.read_text())]
    for one in checks:
        if one["status"] == "FAILURE":
            print(f"{one['id']}: {one.get('errorMessage')}")
    passed = set(re.findall(r"^✓ (\S+): [1-9]", ran.stdout.partition("=== SUMMARY ===")[2], re.MULTILINE))
    failed = [name for name in required if name not in passed]
    assert (ran.returncode == 0) == (not failed), ran.stdout[-4_000:] + ran.stderr
    print(f"{version}: {len(required) - len(failed)} of {len(required)} pass; not {failed}\n{ran.stdout}")
    return required, failed


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the fixture server."""
    folder = tmp_path_factory.mktemp("conformance")
    root, data = folder / "project", folder / "data"
    shutil.copytree(HERE / "project" / "tools", root / ".toolcrib" / "tools")
    shutil.copytree(HERE / "project" / "texts", root / "texts")
    accept(root, data)
    with serving("server", root, data) as url:
        yield url


@contextmanager
def serving(module: str, root: Path, data: Path) -> Iterator[str]:
    """Run one of our servers with a token of its own; yields its address."""
    tokens = Tokens(Vault(root, data))
    token = tokens.create("suite", ("invoke",), owner="olga")
    tokens.close()
    command = [sys.executable, "-m", f"tests.conformance.{module}", "--root", str(root), "--data", str(data)]
    environment = {**os.environ, "CONFORMANCE_TOKEN": token}
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
