"""Additions of the site to docs/: a page of the examples, CONTRIBUTING.md, links, tables that scroll."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"\]\(\.\./examples/([\w.-]+?)(?:\.py)?\)")
TABLE = re.compile(r"<table\b.*?</table>", re.DOTALL)
NESTED = re.compile(r"\]\(docs/")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are files of the repository outside of docs/."""
    contributing = NESTED.sub("](", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    files.append(File.generated(config, "contributing.md", content=contributing))
    files.append(File.generated(config, "examples.md", content="\n\n".join(_examples())))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to those files to their pages."""
    return EXAMPLE.sub(r"](examples.md#\1)", markdown).replace("](../CONTRIBUTING.md)", "](contributing.md)")


def on_page_content(html: str, **_: Any) -> str:
    """Let a table scroll by itself where the screen is narrow."""
    return TABLE.sub(r'<div class="table-responsive">\g<0></div>', html)


def _examples() -> list[str]:
    parts = ["# Examples\n\nEach file runs as it is."]
    for path in sorted((ROOT / "examples").iterdir()):
        files = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
        parts += [f"## {path.stem} {{#{path.stem}}}"] if files else []
        for file in files:
            parts.append(f"```python\n{file.read_text(encoding='utf-8')}```")
    return parts
