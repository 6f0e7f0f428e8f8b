"""The site of the documentation: all pages, no dead links, nothing from other sites."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FETCHED = re.compile(r'(?:src|<link[^>]*href)="((?:https?:)?//[^"]*)"')


def test_the_site_builds_strictly_and_needs_no_other_site(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("mkdocs")),
        "build",
        "--strict",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} <= {
        one.parent.name for one in pages
    }
    scrolling = re.compile(r'(?<!<div class="table-responsive">)<table')
    # The theme's own list of keys is in each page.
    assert {page for page in pages if len(scrolling.findall(page.read_text())) > 1} == set()
    assert {page: found for page in pages if (found := FETCHED.findall(page.read_text()))} == {}
