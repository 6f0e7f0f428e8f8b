"""The files that a program reads because of what it is, and the folders that its command line names for data.

What it reads is its interpreter, environment and packages. Each is known by a landmark that a project
cannot make outside of itself (`pyvenv.cfg`, `lib/python3.X/os.py`, `node_modules`). A home folder, and
folders around it or the project, are never among them.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from toolcrib.executors.command.interpreters import base_name, interpreter
from toolcrib.executors.mcp.launch.launchers import is_launcher, launched
from toolcrib.executors.mcp.launch.line import Launch, MachineView
from toolcrib.executors.python.interpreter import home_of
from toolcrib.sandbox.files.paths import Paths, beginning, first_line, within

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*t?")
_NODE = ("node", "nodejs")
_CODE = (".cjs", ".js", ".mjs", ".py", ".pyz", ".rb", ".sh", ".ts")
_PACKAGE = ("package.json", "pyproject.toml", "setup.py", "requirements.txt")
_DEEPEST = 5


def launch_of(launch: Launch, machine: MachineView) -> tuple[Launch, tuple[str, ...]]:
    """Return what a command line really starts, and the files and folders that it reads by itself.

    Those are what its program and the scripts among its arguments are made of. Raises ToolUnavailable if a
    launcher's package is not resolved, or if the line cannot be read.
    """
    launch = launched(launch, machine)
    finder = _Finder(machine)
    if launch.argv[0].startswith("/"):
        finder.program(launch.argv[0])
    for path in scripts_outside(launch, machine):
        finder.script(path)
    if launch.project:
        finder.package(finder.paths.real(launch.project))
    read = finder.read
    outermost = (one for one in read if not any(one != other and within(one, other) for other in read))
    return replace(launch, path=tuple(dict.fromkeys((*launch.path, *finder.path)))), tuple(outermost)


def scripts_outside(launch: Launch, machine: MachineView) -> list[str]:
    """Return the scripts outside of the project that a command line names, by the endings of their files."""
    named = (machine.absolute(word, launch.cwd) for word in launch.argv[1:])
    # By the real path: a package's program is often a link without an ending.
    real = {path: os.path.realpath(path) for path in named if os.path.isfile(path)}
    return [path for path, at in real.items() if at.endswith(_CODE) and not machine.is_inside(at)]


class _Finder:
    """Collects places in `read` and folders of programs in `path`."""

    def __init__(self, machine: MachineView) -> None:
        self._machine = machine
        self.paths = Paths()
        self.read: dict[str, None] = {}
        self.path: dict[str, None] = {}

    def _grant(self, path: str) -> None:
        # A link in /usr may lead to a file that the sandbox does not show.
        system = self._machine.is_system(path) and self._machine.is_system(self.paths.real(path))
        if not system and os.path.exists(path):
            self.read[path] = None

    def program(self, path: str, depth: int = 0) -> None:
        """Add a program: the file, the environment that it is part of, and the interpreter of a script."""
        real = self.paths.real(path)
        # The interpreter of a script may be a script, even the same one.
        if depth >= _DEEPEST or not stat.S_ISREG(self.paths.leads_to(real)):
            return
        self._grant(path)
        # In a virtual environment the program may be a link: the environment is around the link, not
        # around its target.
        for place in dict.fromkeys((path, real)):
            self._environment(place)
        name = os.path.basename(real)
        start = first_line(real)
        if start.startswith(b"#!") and (words := start[2:].decode(errors="replace").split()):
            self._interpreter(words, depth)
        if start.startswith(b"\x7fELF") and _PYTHON.fullmatch(name):
            self._python(path)
        elif start.startswith(b"\x7fELF") and name in _NODE:
            folder = os.path.dirname(real)
            self._grant(f"{os.path.dirname(folder)}/lib/node_modules")
            if not self._machine.is_system(real):
                self.path[folder] = None
        around, found, _ = real.partition("/node_modules/")
        if found and around:  # The outermost one.
            self._grant(f"{around}/node_modules")

    def _interpreter(self, words: list[str], depth: int) -> None:
        """Add the interpreter that the first line of a script names, or has `env` search."""
        if os.path.basename(words[0]) != "env":
            self.program(words[0], depth + 1)
            return
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = self._machine.which(names[0]) if names else None
        if found is not None:
            real = launched(Launch((found,)), self._machine).argv[0]
            self.path[os.path.dirname(real)] = None
            self.program(real, depth + 1)

    def _environment(self, path: str) -> None:
        """Add the virtual environment that a program is installed in."""
        folder = os.path.dirname(os.path.dirname(path))
        if os.path.isfile(f"{folder}/pyvenv.cfg") and not self._machine.is_too_wide(folder):
            self._grant(folder)
            self.path[f"{folder}/bin"] = None
            self._python(f"{folder}/bin/python")

    def _python(self, python: str) -> None:
        """Add an interpreter with its libraries. The folder around them may be a home folder, so not that."""
        real = self.paths.real(python)
        if not beginning(real, 4).startswith(b"\x7fELF"):
            return
        prefix = os.path.dirname(os.path.dirname(real))
        self._grant(real)
        self._libraries(prefix)
        for home in home_of(python, self.paths):
            # A project may have written this. It counts only where it leads to an interpreter's libraries.
            self._libraries(os.path.dirname(home), home)

    def _libraries(self, prefix: str, folder: str = "") -> None:
        if self._machine.is_inside(prefix) or not any(Path(prefix).glob("lib*/python3*/os.py")):
            return
        for name in ("lib", "lib64"):
            self._grant(f"{prefix}/{name}")
        if folder:
            for name in ("python", "python3"):
                self._grant(f"{folder}/{name}")

    def script(self, path: str) -> None:
        """Add a script outside of the project: with its package if it has one, else the file alone."""
        real = self.paths.real(path)
        if self._machine.is_inside(real):
            return
        before = len(self.read)
        if not real.endswith(_CODE) and not os.access(real, os.X_OK):
            return
        self.program(path)
        if "/node_modules/" not in real and len(self.read) == before + 1:
            folder = os.path.dirname(real)
            self.package(folder) or self.package(os.path.dirname(folder))

    def package(self, folder: str) -> bool:
        """Add a folder outside of the project that holds a package, and is neither hidden nor a home."""
        below_home = folder.removeprefix(f"{self._machine.home}/")
        hidden = "/." in f"/{below_home}" or self._machine.is_too_wide(folder)
        found = any(os.path.isfile(f"{folder}/{name}") for name in _PACKAGE) and not hidden
        if found:
            self._grant(folder)
        return found


_DATA = (".db", ".db3", ".duckdb", ".jsonl", ".log", ".ndjson", ".sqlite", ".sqlite3")
"""Endings of files that programs write, often with others beside them, such as a journal."""
_RUNTIMES = ("bun", "deno", "dotnet", "go", "java", "ts-node", "tsx")
"""Further programs that run a script or archive named among their arguments."""
_INSTEAD = "name a folder below the project's root, such as data, or state permissions.fs"


def data_named(
    launch: Launch, machine: MachineView, code: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders in which the program keeps its data, relative to the project's root.

    That is a folder among its arguments, or the folder of a data file there or in a variable. None is hidden,
    is reached by a link, or holds or lies in any of `code`, which are files and folders by absolute paths.
    With them comes a line about each place that may not be written: its text, why, and what to do.
    """
    paths = Paths()
    code = [place for path in code for place in (os.path.normpath(path), os.path.realpath(path))]
    found: dict[str, None] = {}
    refused: dict[str, None] = {}
    for text in _texts(launch, machine, code):
        place = machine.absolute(text, launch.cwd)
        is_file = text.lower().endswith(_DATA)
        folder = os.path.dirname(place) if is_file else place
        if "://" in text or not (is_file or paths.is_folder(folder)):
            continue
        if why := _why_not(text, folder, machine, code, paths):
            refused[f"{text}: {why}"] = None
        else:
            found[os.path.relpath(folder, machine.root)] = None
    return tuple(found), tuple(refused)


def _why_not(text: str, folder: str, machine: MachineView, code: Sequence[str], paths: Paths) -> str:
    """Return why a folder named by this text may not be written, and what to do; empty if it may."""
    parts = os.path.relpath(folder, machine.root).split("/")
    if text.startswith("~"):
        return f"a server's home folder is empty, and is deleted when it ends; {_INSTEAD}"
    if not machine.is_inside(folder):
        return f"it is outside of the project; {_INSTEAD}"
    if parts == ["."]:
        return f"the root stays read-only, as code and settings are in it; {_INSTEAD}"
    if any(part.startswith(".") or part == "node_modules" for part in parts):
        return f"it is in a hidden folder or a folder of code; {_INSTEAD}"
    if any(within(one, folder) or within(folder, one) for one in code):
        return f"its folder has code or settings; {_INSTEAD}"
    if not paths.is_folder(folder):
        return f"its folder does not exist; create it: mkdir -p {shlex.quote(folder)}"
    return "" if paths.real(folder) == folder else "it is reached by a link; name the folder itself"


def _texts(launch: Launch, machine: MachineView, code: Iterable[str]) -> Iterator[str]:
    """Yield the arguments that may be paths; those of an interpreter count from its script on."""
    argv = launch.argv
    runs_script = not is_launcher(argv[0]) and (interpreter(argv[0]) or base_name(argv[0]) in _RUNTIMES)
    code = frozenset(code)
    started = [
        at
        for at, word in enumerate(argv)
        if at > 0 and (machine.absolute(word, launch.cwd) in code or argv[at - 1] == "-m")
    ]
    start = 0 if not runs_script else started[-1] if started else len(argv)
    for word in argv[start + 1 :]:
        option, equals, value = word.partition("=")
        text = value if equals and option.startswith("-") else word
        if text and not text.startswith("-") and text.isprintable():
            yield text
    yield from (text for text in launch.env.values() if text.lower().endswith(_DATA) and text.isprintable())
