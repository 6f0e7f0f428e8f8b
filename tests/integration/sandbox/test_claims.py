"""Each promise of the sandbox, tried by whoever runs the tests and, if that is root, by an ordinary user."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolcrib.sandbox
from tests import patience
from tests.conftest import need
from tests.integration.sandbox import claims
from tests.integration.sandbox.ground import Ground, said, shell

NOBODY = 65534


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.__name__)
def test_claim(claim: claims.Claim, ground: Ground) -> None:
    claim(ground)


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder an ordinary user can read, with what the claims need in it, and one he can write."""
    with tempfile.TemporaryDirectory(prefix="claims-") as name:
        base = Path(name)
        base.chmod(0o755)
        package = base / "toolcrib"
        package.mkdir()
        (package / "__init__.py").touch()
        source = Path(toolcrib.sandbox.__file__).parent
        for used in ("errors.py", "first_use.py"):
            shutil.copy(source.with_name(used), package)
        shutil.copytree(source, package / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
        spec = source.with_name("spec")
        shutil.copytree(spec, package / "spec", ignore=shutil.ignore_patterns("__pycache__"))
        copies = base / "tests/integration/sandbox"
        copies.mkdir(parents=True)
        for module in ("ground.py", "claims.py", "watch_claims.py", "account_claims.py", "limit_claims.py"):
            shutil.copy(Path(__file__).with_name(module), copies)
        shutil.copy(inspect.getfile(patience), base / "tests")
        (base / "room").mkdir()
        os.chown(base / "room", NOBODY, NOBODY)
        yield base


def as_nobody(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def interpreter() -> str | None:
    """A Python new enough that an ordinary user may run."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (os.path.realpath(sys.executable), f"/usr/bin/{version}", "/usr/bin/python3"):
        try:
            done = as_nobody(path, "-c", "import sys, ctypes; sys.exit(sys.version_info < (3, 11))")
        except OSError:
            continue
        if done.returncode == 0:
            return path
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="the claims above were tried by an ordinary user already")
def test_every_claim_as_an_ordinary_user(base: Path) -> None:
    python = interpreter()
    need("a Python that an ordinary user may run", python is not None)
    assert python is not None
    script = str(base / "tests/integration/sandbox/claims.py")
    done = as_nobody(python, script, str(base), str(base / "room"))
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["uid"] == NOBODY
    assert outcome["tried"] == len(claims.CLAIMS)
    assert not outcome["failed"], "\n".join(outcome["failed"].values())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that belongs to another user")
def test_a_setuid_program_gives_nothing(ground: Ground) -> None:
    program = ground.project / "id"
    shutil.copy("/usr/bin/id", program)
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o6755)
    done = shell(ground, "./id -u && ./id -ru", read=(str(ground.project),))
    assert done.stdout == b"0\n0\n", said(done)


UNREADABLE = """
import asyncio, sys
sys.path[:0] = sys.argv[1:2]
from toolcrib.sandbox import Confinement, run
from toolcrib.errors import ToolcribError
seen = []
program = sys.argv[2]
job = Confinement(argv=(program, "/etc/passwd"), cwd="/tmp", read=(program,), watch=seen.append)
try:
    print(asyncio.run(run(job)).exit_code, seen[-1])
except ToolcribError as error:
    print(error.code, error.message)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program that its user may not read")
def test_a_watched_program_that_may_not_be_looked_into_is_ended(base: Path) -> None:
    python = interpreter()
    need("a Python that an ordinary user may run", python is not None)
    assert python is not None
    program = base / "closed"
    shutil.copy("/bin/cat", program)
    program.chmod(0o755)
    readable = as_nobody(python, "-c", UNREADABLE, str(base), str(program))
    assert readable.stdout.startswith("0 "), readable
    program.chmod(0o711)
    closed = as_nobody(python, "-c", UNREADABLE, str(base), str(program))
    assert closed.stdout.startswith("sandbox_unavailable"), closed
    assert "Permission denied" in closed.stdout
