"""The Python file of a project: its code is run as an import does, and its toolset holds all the tools."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import dropwhile
from pathlib import Path
from types import ModuleType
from typing import Any

from toolcrib.core.toolset import ProgramRead, Toolset, reading_program
from toolcrib.errors import DefinitionError, UsageError
from toolcrib.project.root import Place, find
from toolcrib.spec.record import record


@record
class Program:
    """A Python file whose code has run in this process."""

    place: Place
    toolset: Toolset
    names: Mapping[str, Any]
    """The names of the module; its agents and workflows are those of the project."""

    @classmethod
    def load(cls, place: Place) -> Program:
        """Run the file of a place. Its toolset is the object that the place names, else the only one.

        Whoever names a file wants its code to run, so nothing is asked. Raises UsageError, and
        DefinitionError for a file that fails.
        """
        assert place.file is not None
        module = _import(place.file)
        file, found = place.file.name, vars(module)
        # By identity: one toolset may have several names in the module.
        toolsets = {id(one): one for one in found.values() if isinstance(one, Toolset)}
        chosen = found.get(place.toolset) if place.toolset else None
        if place.toolset and not isinstance(chosen, Toolset):
            raise UsageError(
                f"{place.toolset} in {file} is not a Toolset", hint=_named(module) or "Make one: Toolset()"
            )
        if chosen is None and len(toolsets) != 1:
            raise UsageError(
                f"{file} has {len(toolsets) or 'no'} Toolset{'s' if toolsets else ''}",
                hint=_named(module)
                or "Write `tools = Toolset()` in it, and `@tools.tool` above a function. A program with a"
                " Project serves it itself: run_stdio(serve_stdio(project)).",
            )
        return cls(place, chosen or next(iter(toolsets.values())), found)

    @classmethod
    def running(cls, toolset: Toolset) -> Program:
        """Return the program that this process runs, with its toolset. Raises UsageError without a file."""
        module = sys.modules["__main__"]
        file = getattr(module, "__file__", None)
        if file is None:
            raise UsageError(
                "the tools of a Python file are served, and this program is in none",
                hint="Write it into a file, or serve the toolset alone: run_stdio(serve_stdio(tools))",
            )
        return cls(find(file), toolset, vars(module))


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Send what a program prints to standard error: standard output is for results, and for MCP."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(private, 1)
        os.close(private)


def _import(path: Path) -> ModuleType:
    """Import a file under its own name, so that processes of its tools find it too."""
    # As for a script that Python starts: it imports the modules beside it.
    sys.path.insert(0, str(path.parent))
    # A file that is named like a module of the standard library must not take its place.
    name = path.stem if path.stem not in sys.stdlib_module_names else f"_{path.stem}"
    loader = SourceFileLoader(name, str(path))  # A script need not be called `.py`.
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = sys.modules[name] = module_from_spec(spec)
    reading = reading_program.set(True)
    try:
        with printing_to_stderr():
            loader.exec_module(module)
    except ProgramRead:  # What follows `tools.run()` would not run either.
        pass
    except Exception as error:
        hint = getattr(error, "hint", None)
        if isinstance(error, ModuleNotFoundError):
            hint = f"Install it where toolcrib runs: {sys.executable} -m pip install {error.name}"
        raise DefinitionError(f"{path.name} does not load: {_why(error, path)}", hint=hint) from error
    finally:
        reading_program.reset(reading)
    return module


def frames_of(error: BaseException, file: Path) -> str:
    """Return where an exception of a tool was raised, from the file of its program inward."""
    frames = dropwhile(lambda at: at.filename != str(file), traceback.extract_tb(error.__traceback__))
    return "".join(traceback.format_list(list(frames))).rstrip()


def _why(error: Exception, path: Path) -> str:
    """Return the exception of somebody's file with the line where that file raised it."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines = [error.lineno]
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"line {lines[-1]}: {type(error).__name__}: {text}" if lines else f"{type(error).__name__}: {text}"


def _named(module: ModuleType) -> str:
    file = Path(str(module.__file__)).name
    names = [f"{file}:{name}" for name, one in vars(module).items() if isinstance(one, Toolset)]
    return f"Name one: {', '.join(names)}" if names else ""
