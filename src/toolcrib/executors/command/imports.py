"""The modules beside a Python or JavaScript file that it imports by name: they run with it, so they are code.

The search begins where the language's own does: in the folder of the Python script, and for JavaScript where
a relative path leads. Installed packages, and names that are computed, cannot be known from the text.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator

from toolcrib.sandbox.files.paths import Paths, beginning

_SCRIPTS = (".cjs", ".js", ".mjs", ".ts")
IMPORTING = (".py", *_SCRIPTS)
"""Endings of files that are read for their imports."""
_RELATIVE = re.compile(rb"""\b(?:require|import|from)\s*\(?\s*["'](\.\.?/[^"'\0\n]+)["']""")

_LARGEST = 1 << 20
"""Bytes of a Python file that is read for its imports."""


def imported_files(files: Iterable[str], folder: str, paths: Paths) -> list[str]:
    """Return the files that these import, and those in turn: Python's from `folder` and their packages."""
    known = dict.fromkeys(files)
    waiting = list(known)
    found = []
    while waiting:
        file = waiting.pop()
        # Not noted among the looks: the whole file is part of the digest.
        text = beginning(paths.real(file), _LARGEST)
        modules = [module_files(module, base, paths) for base, module in _imports(text, file, folder)]
        for one in itertools.chain(*modules, _relatives(text, file, paths)):
            if one not in known:
                known[one] = None
                found.append(one)
                if one.endswith(IMPORTING):
                    waiting.append(one)
    return found


def _relatives(text: bytes, file: str, paths: Paths) -> Iterator[str]:
    """Yield the files that the relative paths in JavaScript's imports lead to."""
    for name in {match[1].decode(errors="surrogateescape") for match in _RELATIVE.finditer(text)}:
        path = os.path.normpath(os.path.join(os.path.dirname(file), name))  # noqa: PTH118, PTH120
        ends = ("", *_SCRIPTS, *(f"/index{end}" for end in _SCRIPTS))
        yield from (f"{path}{end}" for end in ends if stat.S_ISREG(paths.leads_to(f"{path}{end}")))


def _imports(text: bytes, file: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield where the search of each imported module begins, and its name from there."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # It does not run either.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((folder, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = file if node.level else folder
            for _ in range(node.level):
                base = os.path.dirname(base)  # noqa: PTH120 - texts are faster
            inner = [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
            yield from ((base, name.removesuffix(".*")) for name in inner)


def module_files(module: str, folder: str, paths: Paths, *, main: bool = False) -> list[str]:
    """Return the files that an import of this module from a folder could run, links not followed.

    They are the module and the packages above it; with `main` also the `__main__` of a package.
    """
    found: list[str] = []
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        return []
    base = folder
    for depth, part in enumerate(parts):
        base = os.path.join(base, part)  # noqa: PTH118
        names = [f"{base}/__init__.py", f"{base}.py", f"{base}.pyc"]
        names += [f"{base}/__main__.py"] if main and depth == len(parts) - 1 else []
        names += _extensions(base, paths)
        found += [path for path in names if stat.S_ISREG(paths.leads_to(path))]
    return found


def _extensions(base: str, paths: Paths) -> list[str]:
    """Return the compiled modules of a name (`x.cpython-312-x86_64-linux-gnu.so`)."""
    folder, _, name = base.rpartition("/")
    return [
        f"{folder}/{one}" for one in paths.names(folder) if one.startswith(f"{name}.") and one.endswith("so")
    ]
