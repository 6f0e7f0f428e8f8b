"""The tutorial, typed at a terminal exactly as it is printed, by somebody who has done nothing before."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.e2e.docs.test_docs_blocks import ROOT, blocks, pattern, plain
from tests.e2e.terminal import terminal

pytestmark = pytest.mark.usefixtures("kernel")

ANSWER = re.compile(r"^(.+?[?)\]]) ([\w ]*⏎|y|n)$", re.MULTILINE)
"""A question of the page and the key that answers it."""


def test_the_tutorial_happens_as_it_is_printed(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("TOOLCRIB", "XDG"))}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    env = kept | {"HOME": str(tmp_path), "PATH": path, "TERM": "xterm", "NO_COLOR": "1"}
    for block in blocks(ROOT / "docs/tutorial.md"):
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True)
            (folder / block.file).write_text(block.text)
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            with terminal(["/bin/bash", "-c", command], folder, env, 200, accepted=False) as screen:
                for question, key in ANSWER.findall(expected):
                    screen.read_until(question)
                    screen.type(f"{key.strip('⏎')}\n")
                screen.end()
            shown = "\n".join(line.rpartition("\r")[2] for line in screen.text.split("\n"))
            assert pattern(expected.replace("⏎", "")).fullmatch(plain(shown) + "\n"), (command, shown)
