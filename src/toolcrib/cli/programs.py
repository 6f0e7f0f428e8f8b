"""A toolset of a Python file that is named on the command line: `FILE.py[:OBJECT]`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from itertools import dropwhile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from toolcrib.cli.caller import given_token
from toolcrib.errors import DefinitionError, InvalidToken, NotFoundError, UsageError

if TYPE_CHECKING:
    from toolcrib.core.toolset import Toolset


def is_program(text: str | None) -> bool:
    """Return True for `FILE.py` and `FILE.py:OBJECT`."""
    return text is not None and text.partition(":")[0].endswith(".py")


def no_program(text: str) -> UsageError:
    """Return the error of a word in place of a program that does not name a Python file."""
    file, *name = text.split(":", 1)
    there = Path(f"{file}.py").is_file()
    hint = f"Write {':'.join([f'{file}.py', *name])}" if there else f"For another project: --root {text}"
    return UsageError(f"{text} is not a Python file", hint=hint)


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


def load_program(text: str) -> Toolset:
    """Run a file as an import does, and return its toolset: the object that is named, else the only one.

    Whoever names a file wants its code to run, so nothing is asked. Raises NotFoundError, UsageError,
    DefinitionError for a file that fails, and InvalidToken for a caller with a token.
    """
    from toolcrib.core.toolset import Toolset

    if given_token() is not None:
        raise InvalidToken("a Python file is run for this machine's own user, not for a token")
    file, _, name = text.partition(":")
    path = Path(file)
    if not path.is_file():
        raise NotFoundError(f"there is no file {file}")
    module = _import(path.resolve())
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, Toolset):
            raise UsageError(
                f"{name} in {file} is not a Toolset", hint=_named(module) or "Make one: Toolset()"
            )
        return found
    # By identity: one toolset may have several names in the module.
    toolsets = {id(one): one for one in vars(module).values() if isinstance(one, Toolset)}
    if len(toolsets) != 1:
        raise UsageError(
            f"{file} has {len(toolsets) or 'no'} Toolset{'s' if toolsets else ''}",
            hint=_named(module)
            or "Write `tools = Toolset()` in it, and `@tools.tool` above a function. A program with a Project"
            " serves it itself: run_stdio(serve_stdio(project)).",
        )
    return next(iter(toolsets.values()))


def _import(path: Path) -> ModuleType:
    """Import a file under its own name, so that processes of its tools find it too."""
    from toolcrib.core.toolset import ProgramRead, reading_program

    # As for a script that Python starts: it imports the modules beside it.
    sys.path.insert(0, str(path.parent))
    # A file that is named like a module of the standard library must not take its place.
    name = path.stem if path.stem not in sys.stdlib_module_names else f"_{path.stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    reading = reading_program.set(True)
    try:
        with printing_to_stderr():
            spec.loader.exec_module(module)
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


def frames_of(error: BaseException, text: str) -> str:
    """Return where an exception of a tool was raised, from the program `FILE.py[:OBJECT]` inward."""
    path = str(Path(text.partition(":")[0]).resolve())
    frames = dropwhile(lambda at: at.filename != path, traceback.extract_tb(error.__traceback__))
    return "".join(traceback.format_list(list(frames))).rstrip()


def _why(error: Exception, path: Path) -> str:
    """Return the exception of somebody's file with the line where that file raised it."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines = [error.lineno]
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"line {lines[-1]}: {type(error).__name__}: {text}" if lines else f"{type(error).__name__}: {text}"


def _named(module: ModuleType) -> str:
    from toolcrib.core.toolset import Toolset

    file = Path(str(module.__file__)).name
    names = [f"{file}:{name}" for name, one in vars(module).items() if isinstance(one, Toolset)]
    return f"Name one: {', '.join(names)}" if names else ""
