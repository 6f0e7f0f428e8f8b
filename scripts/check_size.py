"""Check sizes: `check_size.py FOLDER...`.

A module has at most 600 lines and a function 60, a folder of the package 14 modules, and the class `Project`,
where all parts are put together, 300 lines.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES = 600
FUNCTION_LINES = 60
PROJECT_LINES = 300
FOLDER_MODULES = 14
"""Without `__init__.py`. Tests and examples are not counted."""

EXCEPTIONS: frozenset[str] = frozenset()
"""Places that may be longer, as `path` or `path:function`. It must stay empty."""


def functions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function with its dotted name, also those inside classes and functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)


def too_long(path: Path) -> Iterator[str]:
    """Yield one line for each thing in the file that is longer than allowed."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > MODULE_LINES and str(path) not in EXCEPTIONS:
        yield f"{path}:1: module has {lines} lines, at most {MODULE_LINES} are allowed"
    tree = ast.parse(text, str(path))
    for name, node in functions(tree):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES and f"{path}:{name}" not in EXCEPTIONS:
            yield f"{path}:{node.lineno}: {name} has {length} lines, at most {FUNCTION_LINES} are allowed"
    for part in tree.body:
        if isinstance(part, ast.ClassDef) and part.name == "Project":
            length = (part.end_lineno or part.lineno) - part.lineno + 1
            if length > PROJECT_LINES:
                yield f"{path}:{part.lineno}: Project has {length} lines, at most {PROJECT_LINES} are allowed"


def too_full(paths: list[Path]) -> Iterator[str]:
    """Yield one line for each folder of the package with more modules than allowed."""
    modules = [path for path in paths if path.parts[0] == "src" and path.name != "__init__.py"]
    for folder, number in sorted(Counter(path.parent for path in modules).items()):
        if number > FOLDER_MODULES:
            yield f"{folder}: folder has {number} modules, at most {FOLDER_MODULES} are allowed"


def main(folders: list[str]) -> int:
    """Print what is too large in the folders; the exit status is 1 if anything is."""
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    found = [*too_full(paths), *(line for path in paths for line in too_long(path))]
    for line in found:
        print(line)
    print(f"check_size: {len(paths)} modules, {len(found)} findings")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
