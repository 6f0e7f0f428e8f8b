"""The files that count as the code of a tool, a server, a helper command or middleware: one rule for all.

They are each file of the project that a word of the command names, and the folder of such a script, unless
that is the project's root or may be written; a module with its package; what `files` names; the lock of a
virtual environment. `__pycache__` never counts, and `caches` has it hidden. What a script loads is not read.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from toolcrib.errors import ToolUnavailable
from toolcrib.manifest.kinds import Start, kind_of
from toolcrib.sandbox.files.paths import Paths, within
from toolcrib.spec import Tool
from toolcrib.spec.naming import HOMES

_MAX_FILES = 2_000
_MAX_BYTES = 64 * 1024 * 1024
_CACHE = "__pycache__"
_SCRIPTS = (
    ".awk", ".bash", ".cjs", ".go", ".jar", ".jq", ".js", ".jsx", ".lua", ".mjs", ".mk", ".php", ".pl",
    ".py", ".pyz", ".r", ".rb", ".sh", ".so", ".sql", ".tcl", ".ts", ".tsx", ".wasm", ".zsh",
)  # fmt: skip
"""Endings of scripts. A file without one, and without `#!`, is no script: only the file itself counts."""


_MORE = re.compile(r"[\s();<>|&`'\"\\]")
"""Characters of a line that is more than one plain word."""


class CodeFile(NamedTuple):
    """One file that counts, by its absolute path: a real path, or that of a link."""

    kind: str
    """`files`: in the tool's own folder; `script` or `module`: named; `beside`: in the folder of one;
    `listed`: under `files`; `venv`: the lock of an environment; `file`: named, and not a script; `link`: a
    symbolic link on the way to one."""
    path: str
    written: str = ""
    """The path by which it was named."""


def words_of(line: str) -> list[str]:
    """Return the words of a shell line, and those of each line in a word."""
    if not _MORE.search(line):
        return [line] if line else []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&`")
    lexer.commenters, lexer.whitespace_split = "", True
    try:
        words = list(lexer)
    except ValueError:  # A quote that is not closed.
        words = line.split()
    return [one for word in words for one in ([word] if word == line or " " not in word else words_of(word))]


def _texts(start: Start) -> list[str]:
    """Return each word of a command, followed by the words in it."""
    texts = []
    for text in start.words:
        words = words_of(text)
        texts += words if words == [text] else [text, *words]
    return texts


def own_folder(tool: Tool, paths: Paths) -> str:
    """Return the real path of the folder that is the tool's alone; empty if it has none."""
    source = tool.source
    if source is None or source.shared or source.stored or source.shipped:
        return ""
    return paths.real(os.path.dirname(os.path.abspath(source.path)))


def code_of(tool: Tool, root: str, paths: Paths) -> list[CodeFile]:
    """Return every file that counts for a tool of the project at `root`, a real path.

    Raises ToolUnavailable if they are too many, a folder cannot be listed, or an environment is missing.
    """
    start = kind_of(tool).starts(tool.config)
    rule = _Rule(tool.name, root, paths, tool.permissions.write, own_folder(tool, paths))
    return rule.files(start, tool.files)


def code_of_start(name: str, start: Start, root: str, write: Iterable[str], paths: Paths) -> list[CodeFile]:
    """Return every file that counts for what the settings start; `name` is for messages. Raises as `code_of`.

    `write` are the paths that it may write.
    """
    return _Rule(name, root, paths, write).files(start)


def named_by(start: Start, root: str, write: Iterable[str], paths: Paths, own: str = "") -> list[CodeFile]:
    """Return the files that a command or a module names, and the folders of environments."""
    return list(dict.fromkeys(_Rule("", root, paths, write, own).named(start)))


def places_of(start: Start, root: str, own: str = "") -> list[str]:
    """Return the places at or below which the files lie that a command or a module names.

    No file is looked at. A place may be the beginning of a file's name: `lib/clean` of the module `clean`.
    """
    cwd, found = os.path.normpath(os.path.join(root, start.cwd)), dict[str, None]()
    texts = _texts(start)
    for place, text in enumerate(texts):
        if place and texts[place - 1] == "-m":
            found[f"{cwd}/{text.partition('.')[0]}"] = None
        for word in (text, text.partition("=")[2]):
            if _is_named(word, is_first=text == start.words[0]):
                for folder in (root, cwd):
                    path = os.path.normpath(os.path.join(folder, word))
                    # With the virtual environment that it may belong to.
                    found |= dict.fromkeys((path, os.path.dirname(os.path.dirname(path))))
    if start.module:
        folders = [own, *(f"{root}/{home}" for home in HOMES), cwd]
        found |= {f"{folder}/{start.module.partition('.')[0]}": None for folder in folders if folder}
    if start.venv:
        found[os.path.normpath(os.path.join(root, start.venv))] = None
    return [place for place in found if not within(root, place)]


def _is_named(word: str, *, is_first: bool) -> bool:
    """Return True if a word may name a file of the project: it is literal, and no program of the system."""
    is_literal = bool(word) and not any(one in word for one in ("\0", "${", "{{"))
    return is_literal and not (is_first and "/" not in word)


def caches(files: Iterable[CodeFile], paths: Paths) -> tuple[str, ...]:
    """Return the `__pycache__` folders beside these files: a program must not find compiled code there."""
    folders = dict.fromkeys(os.path.dirname(path) for kind, path, _ in files if kind not in ("venv", "link"))
    return tuple(path for folder in folders if paths.exists(path := f"{folder}/{_CACHE}"))


class _Rule:
    """Collects the files of one tool or start."""

    def __init__(self, name: str, root: str, paths: Paths, write: Iterable[str], own: str = "") -> None:
        self._name, self._root, self._paths, self._own = name, root, paths, own
        self._write = [paths.real(os.path.join(root, path)) for path in write]
        self._homes = [home for one in HOMES if paths.is_folder(home := f"{root}/{one}")]
        # Folders of everything, not of one script.
        self._wide = {root, *(paths.real(one) for home in self._homes for one in (home, f"{home}/tools"))}
        self._found: dict[str, str] = {}
        self._bytes = 0

    def files(self, start: Start, listed: Iterable[str] = ()) -> list[CodeFile]:
        """Return all that counts; with `listed` the folders of scripts do not."""
        if self._own:
            self._below(self._own, "files")
        named, listed = [*self.named(start)], [os.path.join(self._root, one) for one in listed]
        for kind, path, _ in named:
            if kind == "venv":
                self._found |= dict.fromkeys(_environment(path, self._paths), kind)
            else:
                self._add(path, kind, path)
        for path in listed:
            for one in self._file(path):
                self._add(one, "listed", one)
            if self._paths.is_folder(path) and within(self._paths.real(path), self._root):
                self._below(self._paths.real(path), "listed")
        for folder in {self._folder(*one[:2]): None for one in named if not listed}:
            if folder:
                self._below(folder, "beside")
        return [CodeFile(kind, path) for path, kind in self._found.items()]

    def named(self, start: Start) -> Iterator[CodeFile]:
        """Yield the files that the words or the module name, and the folders of environments."""
        texts = _texts(start)
        root, cwd = self._root, os.path.normpath(os.path.join(self._root, start.cwd))
        for place, text in enumerate(texts):
            if place and texts[place - 1] == "-m":
                yield from self._module(text, [cwd])
            for word in dict.fromkeys((text, text.partition("=")[2])):
                for folder in dict.fromkeys((root, cwd)):
                    yield from self._word(word, folder, is_first=text == start.words[0])
        if start.module:
            folders = [self._own, *self._homes, cwd]
            yield from self._module(start.module, filter(None, folders))
        if start.venv:
            path = os.path.join(root, start.venv)
            yield CodeFile("venv", self._paths.real(path), path)

    def _word(self, word: str, folder: str, *, is_first: bool) -> Iterator[CodeFile]:
        """Yield the file inside the project that a literal word names."""
        if not _is_named(word, is_first=is_first):
            return
        path = os.path.join(folder, word)
        for one in self._file(path):
            if self._paths.is_folder(one):
                yield CodeFile("link", one, path)
            elif is_first or self._is_script(path) or self._is_script(self._paths.real(one)):
                yield CodeFile("script", one, path)
            elif not within(self._paths.real(one), *self._write):  # What it writes is its data.
                yield CodeFile("file", one, path)
            if self._is_environment(above := self._paths.real(os.path.dirname(os.path.dirname(path)))):
                yield CodeFile("venv", above, above)

    def _file(self, path: str) -> Iterator[str]:
        """Yield a file of the project, and the links of the project on the way to it."""
        real = self._paths.real(path)
        if self._paths.is_folder(path):
            return
        yield from (link for link in self._paths.links(path) if within(link, self._root))
        if within(real, self._root) and self._paths.exists(real):
            yield real

    def _is_script(self, path: str) -> bool:
        is_named = os.path.splitext(path)[1].lower() in _SCRIPTS
        return is_named or self._paths.text(path, 4).startswith((b"#!", b"\x7fELF"))

    def _is_environment(self, folder: str) -> bool:
        return stat.S_ISREG(self._paths.leads_to(f"{folder}/pyvenv.cfg"))

    def _module(self, name: str, folders: Iterable[str]) -> Iterator[CodeFile]:
        """Yield the module and the packages above it, from the first folder that has any of them."""
        parts = name.split(".")
        for folder in folders if all(part.isidentifier() for part in parts) else ():
            places, base = [], os.path.normpath(folder)
            for part in parts:
                names = [one for one in self._paths.names(base) if one.startswith(f"{part}.")]
                places += [f"{base}/{one}" for one in names if one.endswith((".py", ".pyc", ".so"))]
                base = f"{base}/{part}"
                places += [f"{base}/__init__.py", f"{base}/__main__.py"]
            if files := [(one, path) for path in places for one in self._file(path)]:
                for one, path in files:
                    yield CodeFile("link" if self._paths.is_folder(one) else "module", one, path)
                return

    def _folder(self, kind: str, path: str) -> str:
        """Return the folder that counts with a script; for a module its outermost package; empty for none."""
        folder = os.path.dirname(path)
        above = os.path.dirname(folder)
        while kind == "module" and above not in self._wide and self._paths.exists(f"{above}/__init__.py"):
            folder, above = above, os.path.dirname(above)
        alone = folder in self._wide or within(folder, *self._write) or kind not in ("script", "module")
        return "" if alone or self._is_environment(os.path.dirname(folder)) else folder

    def _below(self, folder: str, kind: str) -> None:
        """Add everything below a folder that is not a folder; empty folders do not count."""
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            if not os.access(here, os.R_OK | os.X_OK):
                raise ToolUnavailable(
                    f"{self._name} cannot be checked: {here}: this user may not list it",
                    hint="It is part of the tool, so this user must be able to read it.",
                    details={"path": here},
                )
            for name in self._paths.names(here):
                path = f"{here}/{name}"
                if self._paths.look(path).kind != stat.S_IFDIR:
                    if path not in self._write:
                        self._add(path, kind, folder)
                elif name != _CACHE and (kind == "files" or not self._is_other(here, path)):
                    waiting.append(path)

    def _is_other(self, above: str, path: str) -> bool:
        """Return True for a folder in that of a script that is not its code: packages, git's, its data."""
        parts = (os.path.basename(above), os.path.basename(path))
        return (
            "node_modules" in parts[:1]
            or parts[1] == ".git"
            or within(path, *self._write, *self._homes)
            or self._is_environment(path)
        )

    def _add(self, path: str, kind: str, folder: str) -> None:
        if path in self._found:
            return
        self._found[path] = kind
        with suppress(OSError):
            self._bytes += os.lstat(path).st_size
        if len(self._found) > _MAX_FILES or self._bytes > _MAX_BYTES:
            raise ToolUnavailable(
                f"{self._name} has more code than is checked: over {_MAX_FILES:,} files, or"
                f" {_MAX_BYTES // 1024**2} MiB, with those in {folder}",
                hint="Name the files and folders of its code under `files` in its manifest, or move its"
                " script to a folder of its own.",
                details={"path": folder, "most": _MAX_FILES},
            )


def _environment(folder: str, paths: Paths) -> Iterator[str]:
    """Yield the files that define the packages of a virtual environment.

    They are its settings, the links to its interpreter, each package's list of files with their digests
    (RECORD), and the files that Python runs when it starts (`.pth`).
    """
    settings = f"{folder}/pyvenv.cfg"
    if not stat.S_ISREG(paths.leads_to(settings)):
        raise ToolUnavailable(
            f"the virtual environment {folder} does not exist",
            hint=f"Create it: python3 -m venv {folder}",
            details={"path": folder},
        )
    yield settings
    yield from (link for link in paths.links(f"{folder}/bin/python") if within(link, folder))
    libraries = [f"{folder}/{name}" for name in paths.names(folder) if name.startswith("lib")]
    versions = (f"{library}/{name}" for library in libraries for name in paths.names(library))
    sites = {paths.real(f"{version}/site-packages") for version in versions}
    for site in sorted(sites):
        for name in paths.names(site):
            path = f"{site}/{name}"
            if name.endswith(".dist-info"):
                lists = (f"{path}/{one}" for one in ("RECORD", "METADATA"))
                yield next((one for one in lists if paths.exists(one)), path)
            elif name.endswith((".pth", ".py", ".egg-link")):
                yield path
