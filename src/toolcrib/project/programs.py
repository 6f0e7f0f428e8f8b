"""The programs that are run here, by the project's tools and by this process. No tool may write them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.guard.trust.digest_parts import module_files, script_files
from toolcrib.manifest import DEFAULT_DIALECT, DIALECTS
from toolcrib.project.config.secrets import helper_folders, helper_programs
from toolcrib.project.config.settings import Config
from toolcrib.project.config.sources import place_of
from toolcrib.project.root import Place
from toolcrib.spec import CommandExec, PythonExec, Tool

if TYPE_CHECKING:
    from toolcrib.executors.workspace.closed import ClosedFolder

__all__ = ["closed_folders", "programs_of", "running_from", "settled"]


def settled(config: Config, place: Place) -> list[str]:
    """Return definitions and helper commands that the settings name, each as written and as real path."""
    sources = [
        path for source in config.sources if not _holds(path := place_of(source, place.root), place.root)
    ]
    return _places((place.tools, place.config, *sources, *helper_programs(config.secret_sources, place.root)))


def closed_folders(config: Config, root: Path) -> tuple[ClosedFolder, ...]:
    """Return folders in which a new file is run by a helper command, or becomes a tool."""
    from toolcrib.executors.workspace.closed import ClosedFolder

    found = [
        ClosedFolder(
            folder,
            f"{told!r} of secrets.sources, run without a sandbox, loads code from there",
            folder != str(root),
        )
        for folder, told in helper_folders(config.secret_sources, root).items()
    ]
    for source in (one for one in config.sources if not one.is_file):
        path = place_of(source, root)
        deep = not _holds(path, root) or DIALECTS[source.dialect or DEFAULT_DIALECT].own_file is not None
        found.append(ClosedFolder(os.path.realpath(path), f"sources takes tools from {source.path!r}", deep))
    return tuple(found)


def _holds(path: Path, root: Path) -> bool:
    """Return True if the project is this folder or inside of it."""
    return root.is_relative_to(os.path.realpath(path))


def _places(written: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return these absolute paths as written, because a link on the way matters, and as real paths."""
    from toolcrib.sandbox.files.paths import Paths

    paths = Paths()
    return list(dict.fromkeys(place for path in written for place in paths.to_protect(os.fspath(path))))


def programs_of(tools: Iterable[Tool], root: Path) -> list[str]:
    """Return entrypoints, scripts, modules and virtual environments of these tools, and linked manifests.

    Each as written and as real path: with another link on the way something else would be run.
    """
    from toolcrib.sandbox.files.paths import Paths

    paths = Paths()
    names: dict[Path, frozenset[str]] = {}
    found: dict[str, None] = {}
    for tool in tools:
        for path in _written(tool, root, names):
            found |= dict.fromkeys(paths.to_protect(path))
        if isinstance(tool.config, PythonExec) and tool.config.venv is not None:
            from toolcrib.executors.python.executor import runs_in

            python = f"{paths.real(str(root / tool.config.venv))}/bin/python"
            found |= dict.fromkeys(runs_in(python, paths))
    return list(found)


def _written(tool: Tool, root: Path, names: dict[Path, frozenset[str]]) -> Iterator[str]:
    """Yield the programs of a tool as its manifest names them, and the manifest if a link leads to it."""
    config, own = tool.config, None
    if tool.source is not None:
        own = Path(tool.source.path).parent
        yield from (str(path) for path in (own, tool.source.path) if os.path.islink(path))  # noqa: PTH114
    if isinstance(config, CommandExec):
        if "/" in config.entrypoint:
            yield str(root / config.entrypoint)
        yield from script_files(config, root)
    elif isinstance(config, PythonExec):
        if config.venv is not None:
            yield str(root / config.venv)
        first = config.module.partition(".")[0]
        if own is not None:  # Its own files are closed to all tools; what is a link may lead out.
            yield from (path for path in (f"{own}/{first}", f"{own}/{first}.py") if os.path.islink(path))  # noqa: PTH114
        folder = root / config.cwd
        if folder not in names:
            names[folder] = _modules_in(folder)
        if first in names[folder]:
            yield from module_files(config, root, None)


def _modules_in(folder: Path) -> frozenset[str]:
    """Return the first names of modules in a folder."""
    try:
        return frozenset(name.partition(".")[0] for name in os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return frozenset()


@lru_cache(maxsize=4)
def running_from(root: str) -> tuple[str, ...]:
    """Return the files that this process runs: environment, interpreter, packages and code.

    As real paths, with the symbolic links on the way to them. Folders around the project at `root` are
    left out, or its tools could write nothing; the parts of a virtual environment stay.
    """
    from toolcrib.executors.python.executor import runs_in
    from toolcrib.executors.workspace.grants import within
    from toolcrib.sandbox.files.paths import Paths

    paths = Paths()
    base = getattr(sys, "_base_executable", None) or sys.executable
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    written = [sys.executable, package, os.path.dirname(package), *filter(os.path.isabs, sys.path)]  # noqa: PTH120
    if sys.prefix != sys.base_prefix:
        parts = ("bin", "lib", "lib64", "pyvenv.cfg")
        written += [sys.prefix, *(f"{sys.prefix}/{name}" for name in parts)]
    found = runs_in(base, paths)
    for path in written:
        found += [*paths.links(path), paths.real(path)]
    return tuple(place for place in dict.fromkeys(found) if not within(root, place))
