"""`python -m toolcrib` in a folder that somebody else has filled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import PROGRAM, Forked
from tests.crib import Crib

SPY = "from pathlib import Path\nPath(__file__).with_name('imported').open('a').write(__name__ + ' ')\n"
WORDS = (["-m", "toolcrib"], ["-mtoolcrib"], ["-B", "-W", "ignore", "-m", "toolcrib"])


def plant(folder: Path) -> None:
    """Make a file or folder for each module that could be imported from here by mistake."""
    for name in sys.stdlib_module_names - set(sys.builtin_module_names) - {"pathlib"}:
        (folder / f"{name}.py").write_text(SPY)
    for package in ("toolcrib", "click", "orjson"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(SPY)
    (folder / "toolcrib" / "__main__.py").write_text(SPY)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_nothing_is_imported_from_the_working_folder(tmp_path: Path, words: list[str]) -> None:
    plant(tmp_path)
    command = [sys.executable, *words, "run", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Usage: toolcrib run"), done.stderr
    assert not list(tmp_path.rglob("imported"))


def test_a_worker_imports_nothing_from_the_working_folder(tmp_path: Path) -> None:
    crib = Crib(tmp_path)
    plant(tmp_path)
    with Forked([PROGRAM, "worker"], cwd=crib.root, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        said = worker.stderr.readline()
        worker.terminate()
        _, rest = worker.communicate()
    assert said.startswith("serving "), said + rest
    assert not list(tmp_path.rglob("imported"))
