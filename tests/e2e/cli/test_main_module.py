"""`python -m toolcrib` in a folder that somebody else has filled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SPY = "from pathlib import Path\nPath(__file__).with_name('imported').open('a').write(__name__ + ' ')\n"
WORDS = (["-m", "toolcrib"], ["-mtoolcrib"], ["-B", "-W", "ignore", "-m", "toolcrib"])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_nothing_is_imported_from_the_working_folder(tmp_path: Path, words: list[str]) -> None:
    for name in sys.stdlib_module_names - set(sys.builtin_module_names) - {"pathlib"}:
        (tmp_path / f"{name}.py").write_text(SPY)
    for folder in ("toolcrib", "click", "orjson"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(SPY)
    (tmp_path / "toolcrib" / "__main__.py").write_text(SPY)
    command = [sys.executable, *words, "run", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Usage: toolcrib run"), done.stderr
    assert not list(tmp_path.rglob("imported"))
