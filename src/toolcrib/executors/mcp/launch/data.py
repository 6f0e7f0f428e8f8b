"""Folders that a command line names for the data of its program, such as `data` in `--db-path data/x.db`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from toolcrib.executors.command.programs import base_name, known_program
from toolcrib.executors.mcp.launch.launchers import is_launcher
from toolcrib.executors.mcp.launch.line import Launch, MachineView, is_within
from toolcrib.sandbox.files.paths import Paths

_DATA = (".db", ".db3", ".duckdb", ".jsonl", ".log", ".ndjson", ".sqlite", ".sqlite3")
"""Endings of files that programs write, often with others beside them, such as a journal."""


def data_folders(launch: Launch, machine: MachineView, code: Iterable[str]) -> tuple[str, ...]:
    """Return the folders below the project's root, relative to it, in which the program keeps its data.

    That is a folder among its arguments, or the folder of a data file there or in a variable. None is hidden,
    is reached by a link, or holds or lies in any of `code`, which are files and folders by absolute paths.
    """
    paths = Paths()
    code = [place for path in code for place in (os.path.normpath(path), os.path.realpath(path))]
    found: dict[str, None] = {}
    for text in _texts(launch, machine, code):
        place = machine.absolute(text, launch.cwd)
        folder = os.path.dirname(place) if text.lower().endswith(_DATA) else place
        parts = os.path.relpath(folder, machine.root).split("/")
        if any(part.startswith(".") or part == "node_modules" for part in parts):  # also `.` and `..`
            continue
        mixed = any(is_within(one, folder) or is_within(folder, one) for one in code)
        if not mixed and paths.real(folder) == folder and paths.is_folder(folder):
            found["/".join(parts)] = None
    return tuple(found)


def _texts(launch: Launch, machine: MachineView, code: Iterable[str]) -> Iterator[str]:
    """Yield the arguments that may be paths; those of an interpreter count from its script on."""
    argv = launch.argv
    program = None if is_launcher(argv[0]) else known_program(base_name(argv[0]))
    modules = () if program is None else program.modules.split()
    code = frozenset(code)
    started = [
        at
        for at, word in enumerate(argv)
        if at > 0 and (machine.absolute(word, launch.cwd) in code or argv[at - 1] in modules)
    ]
    start = 0 if program is None else started[-1] if started else len(argv)
    for word in argv[start + 1 :]:
        option, equals, value = word.partition("=")
        text = value if equals and option.startswith("-") else word
        if text and not text.startswith("-") and text.isprintable():
            yield text
    yield from (text for text in launch.env.values() if text.lower().endswith(_DATA))
