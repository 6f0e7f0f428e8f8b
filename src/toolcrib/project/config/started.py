"""The programs, scripts and modules inside the project that its settings start, and their digest.

They are part of the digest that trust is bound to, and of `toolcrib.lock`. A file that is only an argument
(`--db-path data/x.db`) is data and does not count. Nor does the content of what is outside of the project:
nobody changes that by a commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from toolcrib.errors import ToolUnavailable
from toolcrib.guard import Digests, ToolDigest
from toolcrib.manifest.kinds import CodeFile
from toolcrib.sandbox.files.paths import Paths

OUTSIDE = "outside of the project"
"""The text in place of the digest of a file that is not in the project."""
_UNREADABLE = "cannot be checked"


class CommandLine(NamedTuple):
    """A command that the settings start, and where."""

    argv: tuple[str, ...]
    cwd: str = "."
    """As written, from the project's root."""
    env: Mapping[str, str] = {}
    unconfined: str = ""
    """The real path of its program, if that is started without a sandbox."""
    data: tuple[str, ...] = ()
    """Folders of the project that it may write because it names them."""


def code_inside(line: CommandLine, root: Path, paths: Paths) -> list[CodeFile]:
    """Return the files of code inside the project that a command starts, as written, and its environments."""
    from toolcrib.executors.command.code_files import code_files

    found = code_files(_resolved(line.argv, root), str(root), line.cwd, paths, line.env)
    return [
        file for file in found if paths.exists(str(root / file.path)) and _is_ours(root / file.path, root)
    ]


def digest_of(line: CommandLine, root: Path) -> ToolDigest:
    """Return the digest of the code inside the project that a command starts, with paths from the root.

    Raises ToolUnavailable if a file cannot be read.
    """
    found = Digests(root).of_code(" ".join(line.argv), lambda paths: code_inside(line, root, paths))
    parts = {}
    for part, value in found.parts.items():
        kind, _, path = part.partition("/")
        inside = Path(path).is_relative_to(root)
        # Relative, so that trust and the lock are the same wherever the project is.
        parts[f"{kind}/{os.path.relpath(path, root) if inside else path}"] = value if inside else OUTSIDE
    parts |= {f"write/{path}": "named on its command line or in its env" for path in line.data}
    return ToolDigest(found.digest, parts, found.files)


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
