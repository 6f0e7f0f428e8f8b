"""The programs that settings start: servers, helper commands and middleware, and the digest of their code.

It is part of the digest that trust is bound to, and of `toolcrib.lock`. Which files count is the one rule of
`manifest.code`: nothing outside of the project does, because nobody changes that by a commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from toolcrib.errors import ToolUnavailable
from toolcrib.guard import Digests, ToolDigest
from toolcrib.manifest.code import CodeFile, named_by
from toolcrib.manifest.kinds import Start
from toolcrib.sandbox.files.paths import Paths

_UNREADABLE = "cannot be checked"


class CommandLine(NamedTuple):
    """A command that the settings start, and where."""

    argv: tuple[str, ...]
    cwd: str = "."
    """As written, from the project's root."""
    unconfined: str = ""
    """The real path of its program, if that is started without a sandbox."""
    data: tuple[str, ...] = ()
    """Folders of the project that it may write because it names them."""
    write: tuple[str, ...] = ()
    """All that it may write."""
    variables: tuple[str, ...] = ()
    """Values of its variables, if it is started without a sandbox: files that they name count too."""

    def start(self, root: Path) -> Start:
        """Return the words of it that may name files of the project."""
        return Start((*_resolved(self.argv, root), *self.variables), self.cwd)


def code_named(line: CommandLine, root: Path) -> list[CodeFile]:
    """Return the files inside the project that a command names, and the folders of its environments."""
    return named_by(line.start(root), str(root), line.write, Paths())


def scripts_in(variables: tuple[str, ...], root: Path) -> list[str]:
    """Return the scripts and libraries inside the project that values of variables name."""
    found = named_by(Start(("", *variables)), str(root), (), Paths())
    return [path for kind, path, _ in found if kind == "script"]


def digest_of(line: CommandLine, root: Path) -> ToolDigest:
    """Return the digest of the code inside the project that a command starts, with paths from the root.

    Raises ToolUnavailable if a file cannot be read, or there are too many.
    """
    found = Digests(root).of_start(" ".join(line.argv), line.start(root), line.write)
    parts = dict(found.parts)
    parts |= {f"write/{path}": "named on its command line or in its env" for path in line.data}
    return ToolDigest(found.digest, parts, found.files, found.names)


def parts_of(lines: Mapping[str, CommandLine], root: Path) -> dict[str, str]:
    """Return the parts of all that these commands start, by the name of the setting and the path."""
    found: dict[str, str] = {}
    for name, line in lines.items():
        try:
            parts = digest_of(line, root).parts
        except ToolUnavailable as error:  # It will not be started, and is not what it was.
            parts = {_UNREADABLE: error.message}
        found |= {f"{name}/{part}": value for part, value in parts.items()}
    return found


def _resolved(argv: tuple[str, ...], root: Path) -> tuple[str, ...]:
    """Return a command line with the path of its program, if that is found in the project by `PATH`."""
    import shutil

    # With a virtual environment or `node_modules/.bin` in PATH, a name alone may lead into the project.
    program = None if "/" in argv[0] else shutil.which(argv[0])
    if program is None or not _is_ours(Path(program).absolute(), root):
        return argv
    return (str(Path(program).absolute()), *argv[1:])


def _is_ours(path: Path, root: Path) -> bool:
    """Return True for a path in the project, or one that a link in the project leads to."""
    return any(Path(one).is_relative_to(root) for one in (os.path.normpath(path), os.path.realpath(path)))
