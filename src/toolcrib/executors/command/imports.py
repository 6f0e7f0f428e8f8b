"""The files that a Python, JavaScript or shell file loads by name: they run with it, so they are code.

The search begins where the language's own does: in the folders where Python looks, and for JavaScript where
a relative path leads. A package of JavaScript counts by its `package.json` and the lock file. For shell
scripts (`source`, `.`) every path in the line counts that exists from the script's or the working folder.
Installed packages of Python, and names that are computed, cannot be known from the text.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolcrib.sandbox.files.paths import Paths, beginning

_SCRIPTS = (".cjs", ".js", ".mjs", ".ts")
_SHELL = (".bash", ".sh", ".zsh")
IMPORTING = (".py", *_SCRIPTS, *_SHELL)
"""Endings of files that are read for their imports."""
_IMPORTED = re.compile(rb"""\b(?:require|import|from)\s*+(?:\(\s*+)?["'`]([^"'`\0\n]+)["'`]""")
_SOURCED = re.compile(rb"(?m)(?:^|[;&|({\s])(?:source|\.)[ \t]+([^\n;]+)")
_VARIABLE = re.compile(rb"\$\{[^}$]*+\}|\$\w+")
_PATH = re.compile(rb"[\w.@+-][\w.@+/-]*")
_LOCKS = ("npm-shrinkwrap.json", "package-lock.json", "pnpm-lock.yaml", "yarn.lock")

_LARGEST = 1 << 20
"""Bytes of a Python file that is read for its imports."""


def imported_files(
    files: Iterable[str],
    folders: Sequence[str],
    paths: Paths,
    working: Sequence[str] = (),
    code: Mapping[str, bytes] | None = None,
) -> list[str]:
    """Return the files that these import, and those in turn: Python's from `folders` and their packages.

    `working` are the working folders that a shell script may have. `code` are texts that are in no file, by
    the name that one in their place would have.
    """
    # Imports go in circles, so each file is read once.
    texts = dict(code or {})
    known = dict.fromkeys((*files, *texts))
    waiting = list(known)
    found = []
    while waiting:
        file = waiting.pop()
        # Not noted among the looks: the whole file is part of the digest.
        text = texts[file] if file in texts else beginning(paths.real(file), _LARGEST)
        modules = [module_files(module, base, paths) for base, module in _imports(text, file, folders)]
        for one in itertools.chain(
            *modules, _javascript(text, file, paths), _sourced(text, file, paths, working)
        ):
            if one not in known:
                known[one] = None
                found.append(one)
                if one.endswith(IMPORTING):
                    waiting.append(one)
    return found


def _javascript(text: bytes, file: str, paths: Paths) -> Iterator[str]:
    """Yield the files that JavaScript's imports lead to."""
    if file.endswith((".py", *_SHELL)):
        return
    for name in {match[1].decode(errors="surrogateescape") for match in _IMPORTED.finditer(text)}:
        if name.startswith(("./", "../")):
            path = os.path.normpath(os.path.join(os.path.dirname(file), name))
            yield from javascript_files(path, paths)
        else:
            yield from _package(name, file, paths)


def javascript_files(path: str, paths: Paths) -> Iterator[str]:
    """Yield the files that JavaScript could load by a path, which may leave out the ending or be a folder."""
    places = [path]
    described = f"{path}/package.json"
    if paths.is_source(described):
        yield described
        main = re.search(rb'"main"\s*:\s*"([^"\\\0]+)"', beginning(paths.real(described), _LARGEST))
        if main is not None:
            places.append(os.path.normpath(os.path.join(path, main[1].decode(errors="surrogateescape"))))
    ends = ("", *_SCRIPTS, *(f"/index{end}" for end in _SCRIPTS))
    # Each that is there, not only the one that Node would take: which it is depends on its settings.
    yield from (file for place in places for end in ends if paths.is_source(file := f"{place}{end}"))


def _package(name: str, file: str, paths: Paths) -> Iterator[str]:
    """Yield what pins an installed package: its description, and the lock files beside `node_modules`."""
    own = "/".join(name.split("/")[: 2 if name.startswith("@") else 1])
    folder = os.path.dirname(file)
    while folder.rpartition("/")[0]:
        described = f"{folder}/node_modules/{own}/package.json"
        if paths.is_source(described):
            yield described
            locks = (*_LOCKS, "node_modules/.package-lock.json")
            yield from (f"{folder}/{lock}" for lock in locks if paths.is_source(f"{folder}/{lock}"))
            return
        folder = os.path.dirname(folder)


def _sourced(text: bytes, file: str, paths: Paths, working: Sequence[str]) -> Iterator[str]:
    """Yield the files that a shell script names by `source` or `.`, from its own folder and these."""
    if file.endswith((".py", *_SCRIPTS)):
        return
    for line in _SOURCED.finditer(text):
        # A variable in the path is left out: the rest of the path is tried from each folder.
        for name in _PATH.findall(_VARIABLE.sub(b"", line[1])):
            for folder in (os.path.dirname(file), *working):
                path = os.path.normpath(os.path.join(folder, name.decode(errors="surrogateescape")))
                if paths.is_source(path):
                    yield path


def _imports(text: bytes, file: str, folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield where the search of each imported module begins, and its name from there."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # It does not run either.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from itertools.product(folders, (alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            base = file
            for _ in range(node.level):
                base = os.path.dirname(base)
            # `from a import b` loads the module a.b if a is a package and has no such name.
            inner = [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
            names = (name.removesuffix(".*") for name in inner)
            yield from itertools.product([base] if node.level else folders, names)


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
        base = os.path.join(base, part)
        names = [f"{base}/__init__.py", f"{base}.py", f"{base}.pyc"]
        names += [f"{base}/__main__.py"] if main and depth == len(parts) - 1 else []
        names += _extensions(base, paths)
        # Python skips a pipe, or a link to nothing, and looks further.
        found += [path for path in names if stat.S_ISREG(paths.leads_to(path))]
        if not paths.is_folder(base):
            break
    return found


def _extensions(base: str, paths: Paths) -> list[str]:
    """Return the compiled modules of a name (`x.cpython-312-x86_64-linux-gnu.so`)."""
    folder, _, name = base.rpartition("/")
    return [
        f"{folder}/{one}" for one in paths.names(folder) if one.startswith(f"{name}.") and one.endswith("so")
    ]
