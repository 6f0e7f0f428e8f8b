"""Places that a command line names for the data of its program, such as `data` in `--db-path data/x.db`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence

from toolcrib.executors.command.interpreters import base_name, interpreter
from toolcrib.executors.mcp.launch.launchers import is_launcher
from toolcrib.executors.mcp.launch.line import Launch, MachineView
from toolcrib.sandbox.files.paths import Paths, within

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
