"""The programs that are run here, by the project's tools and by this process. No tool may write them."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import toolcrib
from toolcrib.errors import ToolcribError
from toolcrib.executors.workspace.grants import ClosedFolder
from toolcrib.manifest import DEFAULT_DIALECT, DIALECTS, Facts, kind_of
from toolcrib.manifest.code import named_by, own_folder, places_of
from toolcrib.manifest.kinds import Start
from toolcrib.project.config.secrets import helper_folders, helper_programs
from toolcrib.project.config.settings import Config
from toolcrib.project.config.sources import place_of
from toolcrib.project.root import HOMES, Place
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import Tool

CODE_PLACES = (
    "GCONV_PATH", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD", "OPENSSL_CONF", "OPENSSL_MODULES",
    "PYTHONHOME", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONUSERBASE",
)  # fmt: skip
"""Variables that name code for the C library, OpenSSL or Python."""


def settled(config: Config, place: Place) -> list[str]:
    """Return definitions and helper commands that the settings name, each as written and as real path."""
    places, paths = [place_of(source, place.root) for source in config.sources], Paths()
    written = [place.tools, place.config, *(one for one in places if not _holds(one, place.root))]
    helpers = helper_programs(config.secret_sources, place.root)
    # As written too, because a link on the way matters.
    return list(
        dict.fromkeys(one for path in (*map(str, written), *helpers) for one in paths.to_protect(path))
    )


def closed_folders(config: Config, root: Path) -> tuple[ClosedFolder, ...]:
    """Return folders in which a new file is run by a helper command, or becomes a tool."""
    found = [
        ClosedFolder(folder, f"{start!r} of secrets.sources loads code from there", folder != str(root))
        for folder, start in helper_folders(config.secret_sources, root).items()
    ]
    for source in (one for one in config.sources if not one.is_file):
        path = place_of(source, root)
        deep = not _holds(path, root) or DIALECTS[source.dialect or DEFAULT_DIALECT].own_file is not None
        found.append(ClosedFolder(os.path.realpath(path), f"sources takes tools from {source.path!r}", deep))
    return tuple(found)


def _holds(path: Path, root: Path) -> bool:
    """Return True if the project is this folder or inside of it."""
    return root.is_relative_to(os.path.realpath(path))


class ToolPrograms:
    """The programs of a project's tools: what one tool runs, another must not be able to write.

    With thousands of tools, their programs are looked up only where the calling tool may write. `facts` are
    of the tools that `get` returns by name; `others` are all others, and `fixed` further paths.
    """

    def __init__(
        self,
        root: Path,
        others: Sequence[Tool],
        facts: Mapping[str, Facts],
        get: Callable[[str], Tool],
        fixed: tuple[str, ...],
    ) -> None:
        self._root, self._others, self._facts, self._get, self._fixed = root, others, facts, get, fixed

    def under(self, write: tuple[str, ...]) -> list[str]:
        """Return the programs that a tool could change which may write these real paths."""
        found = list(self._others) if write else []
        for name in self._facts if write else ():
            facts = self._facts.get(name)  # Tools come and go while calls are made in other threads.
            if facts is not None and any(_meet(place, grant) for place in facts.code for grant in write):
                with suppress(ToolcribError):  # One that does not load runs nothing.
                    found.append(self._get(name))
        return [*programs_of(found, self._root), *self._fixed]


def _meet(place: str, grant: str) -> bool:
    """Return True if a file at or below the place, or whose name it begins, may be in the grant."""
    return place.startswith(grant) or grant.startswith(place)


def code_places(start: Start, manifest: str, root: Path, paths: Paths) -> list[str]:
    """Return the places at or below which the code of a tool may lie, and where links lead to now.

    Those that are closed to all tools are left out. Of a place that cannot be looked at the root of all is
    returned: it may be anywhere.
    """
    named = places_of(start, str(root), os.path.dirname(manifest))
    found = dict.fromkeys(named)
    try:
        for place in (manifest, *named):
            # Nearly all are no links: for ten thousand tools it counts not to follow each from the top.
            above, kind = os.path.dirname(place), paths.look(place).kind
            if kind == stat.S_IFLNK or paths.real(above) != above:
                found |= dict.fromkeys((*paths.links(place), paths.real(place)))
                kind = paths.leads_to(place)
            if kind == stat.S_IFDIR and paths.exists(f"{place}/pyvenv.cfg"):
                found |= dict.fromkeys(_interpreter(place, paths))
    except ToolcribError:
        return ["/"]
    closed = _closed_homes(root)
    return [place for place in found if not closed(place)]


def _interpreter(environment: str, paths: Paths) -> list[str]:
    """Return the files by which a virtual environment starts Python."""
    from toolcrib.executors.python.interpreter import runs_in

    return runs_in(f"{paths.real(environment)}/bin/python", paths)


def _closed_homes(root: Path) -> Callable[[str], bool]:
    """Return a function that says if a path is in a home folder; tools may write only `scratch/` there."""
    homes = tuple(f"{root}/{name}/" for name in HOMES)
    scratch = tuple(f"{home}scratch/" for home in homes)
    return lambda path: path.startswith(homes) and not path.startswith(scratch)


def programs_of(tools: Iterable[Tool], root: Path) -> list[str]:
    """Return entrypoints, scripts, modules and virtual environments of these tools, and linked manifests.

    Each as written and as real path: with another link on the way something else would be run.
    """
    paths = Paths()
    found: dict[str, None] = {}
    for tool in tools:
        for path in _written(tool, root, paths):
            found |= dict.fromkeys(paths.to_protect(path))
            if paths.exists(f"{path}/pyvenv.cfg"):
                found |= dict.fromkeys(_interpreter(path, paths))
    return list(found)


def _written(tool: Tool, root: Path, paths: Paths) -> Iterator[str]:
    """Yield the code of a tool that it names, and what of its own folder is a link."""
    own, start = None, kind_of(tool).starts(tool.config)
    if tool.source is not None:
        own = Path(tool.source.path).parent
        yield from (str(path) for path in (own, tool.source.path) if os.path.islink(path))
    closed = _closed_homes(root)
    named = named_by(start, str(root), tool.permissions.write, paths, own_folder(tool, paths))
    code = [written for kind, _, written in named if kind not in ("file", "link")]
    if start.words and "/" in start.words[0]:
        code.append(os.path.join(root, start.words[0]))
    yield from (path for path in code if not closed(paths.real(path)))
    if own is not None and start.module:
        # Its own files are closed to all tools; what is a link may lead out.
        first = start.module.partition(".")[0]
        yield from (path for path in (f"{own}/{first}", f"{own}/{first}.py") if os.path.islink(path))


def named_in(variable: str) -> list[str]:
    """Return the files and folders that a variable of this process names."""
    text = os.environ.get(variable, "")
    # Only LD_PRELOAD may have blanks between its files (ld.so(8)).
    return [place for place in re.split("[: ]" if variable == "LD_PRELOAD" else ":", text) if place]


@lru_cache(maxsize=4)
def running_from(root: str) -> tuple[str, ...]:
    """Return the files that this process runs: environment, interpreter, packages and code.

    As real paths, with the symbolic links on the way to them. Folders around the project at `root` are
    left out, or its tools could write nothing; the parts of a virtual environment stay.
    """
    from toolcrib.executors.python.interpreter import runs_in
    from toolcrib.sandbox.files.paths import within

    paths = Paths()
    # In a virtual environment `sys.executable` is a link to this one.
    base = getattr(sys, "_base_executable", None) or sys.executable
    package = os.path.dirname(os.path.abspath(toolcrib.__file__))
    written = [sys.executable, package, os.path.dirname(package), *filter(os.path.isabs, sys.path)]
    if sys.prefix != sys.base_prefix:
        parts = ("bin", "lib", "lib64", "pyvenv.cfg")
        written += [sys.prefix, *(f"{sys.prefix}/{name}" for name in parts)]
    written += [os.path.abspath(place) for name in CODE_PLACES for place in named_in(name)]
    found = runs_in(base, paths)
    for path in written:
        found += [*paths.links(path), paths.real(path)]
    return tuple(place for place in dict.fromkeys(found) if not within(root, place))
