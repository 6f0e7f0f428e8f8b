"""The environment that rows run in, with the peers beside Toolcrib, and that of ContextForge.

Both are made when first needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "bench-venv"
LOCK = ROOT / "benchmarks" / "requirements-peers.lock"
PROJECT = ROOT / "pyproject.toml"
GATEWAY = ROOT / "build" / "bench-gateway"
"""ContextForge needs version 1 of the MCP SDK."""
GATEWAY_LOCK = ROOT / "benchmarks" / "requirements-gateway.lock"
SECONDS = 600
"""Limit of one step of making it."""

Say = Callable[[str], None]


class NotMade(Exception):
    """The environment cannot be made here and now."""


def python_with_peers(say: Say) -> Path | None:
    """The interpreter of an environment with Toolcrib (editable) and the peers; None if it cannot be made."""
    try:
        with _one_at_a_time():
            _packages(FOLDER, LOCK, say)
            if not _fresh(FOLDER, "project", LOCK, PROJECT):
                _install_project()
                _stamp(FOLDER, "project", LOCK, PROJECT)
    except NotMade as error:
        say(f"it cannot be made; is the package index reachable?\n{error}")
        return None
    return _python(FOLDER)


def bin_of_gateway(say: Say) -> Path | None:
    """Return the programs of ContextForge; None if its environment cannot be made."""
    try:
        with _one_at_a_time():
            _packages(GATEWAY, GATEWAY_LOCK, say)
    except NotMade as error:
        say(f"it cannot be made; is the package index reachable?\n{error}")
        return None
    return _python(GATEWAY).parent


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _packages(folder: Path, lock: Path, say: Say) -> None:
    """Make an environment of the packages of a lock file, if it is not there."""
    if _fresh(folder, "packages", lock):
        return
    say(f"making {folder.relative_to(ROOT)} with what {lock.relative_to(ROOT)} names")
    shutil.rmtree(folder, ignore_errors=True)
    _uv("venv", "--python", sys.executable, str(folder))
    sync = ("pip", "sync", "--require-hashes", str(lock), "--python", str(_python(folder)))
    try:
        # What was fetched before serves again; the network is asked only for the rest.
        _uv(*sync, "--offline")
    except NotMade:
        _uv(*sync)
    _stamp(folder, "packages", lock)


def _install_project() -> None:
    editable = ("--offline", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    _uv("pip", "install", *editable, "--python", str(_python(FOLDER)))


def _uv(*arguments: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise NotMade("there is no uv")
    command = [uv, "--quiet", *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    except subprocess.TimeoutExpired:
        raise NotMade(f"uv {arguments[0]} took longer than {SECONDS} s") from None
    if done.returncode != 0:
        raise NotMade(done.stderr.strip())


def _fresh(folder: Path, step: str, *files: Path) -> bool:
    """Return True if this step was done for these files as they are."""
    stamp = folder / f".{step}"
    return _python(folder).exists() and stamp.exists() and stamp.read_text() == _fingerprint(*files)


def _stamp(folder: Path, step: str, *files: Path) -> None:
    (folder / f".{step}").write_text(_fingerprint(*files))


def _fingerprint(*files: Path) -> str:
    """Return a digest of all that a step depends on: the interpreter, the place, the files."""
    parts = [sys.version.encode(), os.fsencode(ROOT), *(file.read_bytes() for file in files)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two runs at once must not make the same folder."""
    FOLDER.parent.mkdir(exist_ok=True)
    with (FOLDER.parent / "bench-venv.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
