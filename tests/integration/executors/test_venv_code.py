"""Code that a virtual environment runs at start (`.pth` files): inside a call only, and never as our own."""

from __future__ import annotations

import asyncio
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.integration.sandbox.ground import eventually
from toolcrib.sandbox import Warmth, configure
from toolcrib.sandbox.host.pool import shared

FORGED = """
import os, stat, socket, sys
def forge():
    for fd in range(3, 256):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            sock = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with sock:
            for message in (b"watch", b"listener", b"ready x", b"exit x", b"fail x", b"exit 0", b"other"):
                sock.send(message)
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    configure(Warmth())
    yield
    configure(Warmth())


def environment(crib: Crib, pth: str) -> Path:
    """Give the project a virtual environment with a `.pth` file, and return its packages."""
    venv.create(crib.root / "env", with_pip=False, symlinks=True)
    (packages,) = (crib.root / "env/lib").glob("python*/site-packages")
    (packages / "begin.pth").write_text(f"import os, sys; {pth}\n")
    return packages


def test_it_runs_after_the_word_to_start_with_what_the_call_has(crib: Crib) -> None:
    log = crib.write("out/log", "")
    # Python reads the files of an environment twice.
    line = f"open({str(log)!r}, 'a').write(os.environ.get('LANG', '-') + '\\n')"
    environment(crib, f"hasattr(sys, 'begun') or {line}; sys.begun = True")
    crib.python("def run():\n    return 1", config={"venv": "env"}, permissions={"fs": {"write": ["out"]}})

    async def calls() -> None:
        async with crib.open() as project:
            for count in range(1, 5):
                assert (await project.call("py", {})).value == 1
                if count > 1:
                    assert await asyncio.to_thread(eventually, lambda: shared().waiting() > 0)
                    await asyncio.sleep(0.2)
                assert log.read_text() == "C.UTF-8\n" * count

    asyncio.run(calls())


def test_it_cannot_reach_the_servers_socket(crib: Crib) -> None:
    packages = environment(crib, "import forge; forge.forge()")
    (packages / "forge.py").write_text(FORGED)
    crib.python("def run():\n    return 1", config={"venv": "env"})

    async def calls() -> list[Any]:
        trouble: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
        async with crib.open() as project:
            for _ in range(4):
                assert (await project.call("py", {})).value == 1
                await asyncio.sleep(0.3)
        return trouble

    assert not asyncio.run(calls())


def test_it_is_under_the_time_limit_and_has_an_audit_line(crib: Crib) -> None:
    environment(crib, "import time; time.sleep(60)")
    crib.python("def run():\n    return 1", config={"venv": "env", "timeout_ms": 800})
    for _ in range(3):
        result = crib.call("py")
        assert result.error is not None
        assert result.error.code == "timed_out", result.error
        assert crib.last().event == "TOOL_EXECUTED"
