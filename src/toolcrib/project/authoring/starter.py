"""Makes a project of a folder, with example tools if wanted. Existing files are never changed."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from toolcrib.errors import ConflictError, StateUnavailable, UsageError
from toolcrib.guard import ToolDigest
from toolcrib.manifest import FILE_NAME, tool_schema
from toolcrib.project.config.mcp import FILE
from toolcrib.project.config.settings import load_config
from toolcrib.project.project import Project
from toolcrib.project.root import HOMES, Place, find, require_inside
from toolcrib.spec.record import record

SCHEMA_FILE = "schemas/tool.schema.json"
"""Below the home folder; manifests begin with `# yaml-language-server: $schema=../../schemas/…`."""
_NO_FOLDER = (errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR)
"""Errors that concern the name of the folder."""
_FILES = Path(__file__).parents[1] / "starter_files"
PROGRAMS = ("claude", "codex", "gemini")
"""The command-line agents that `add_program` knows how to call."""


@record
class Made:
    """A project and what was created in it, relative to its root."""

    root: Path
    created: tuple[Path, ...]
    new: bool
    """True if there were no tools and no settings before: then it is this user's own project."""


def make(folder: str | os.PathLike[str], *, examples: bool = False) -> Made:
    """Create the home folder and its settings; with `examples` three tools and a virtual environment."""
    root = Path(os.path.realpath(folder))
    try:
        root.mkdir(parents=True, exist_ok=True)
        new = _is_new(root)
        # First, because some folders cannot have one: then nothing is made.
        environment = _environment(root) if examples else []
        created = list(_copy(_FILES / "base", root, _home(root)))
        created += _schema(_home(root), root)
        if examples:
            created += _copy(_FILES / "examples", root, _home(root))
        created += environment
    except OSError as error:
        message = f"{error.filename or root} cannot be written: {error.strerror}"
        if error.errno in _NO_FOLDER:
            raise UsageError(message, hint="Name a folder, or where one can be made.") from None
        hint = "Fix that and run it again: existing files stay, and missing ones are made."
        raise StateUnavailable(message, hint=hint) from None
    return Made(root, tuple(created), new)


def add_program(place: Place, program: str) -> list[Path]:
    """Write the tool that runs a command-line agent; return the new files, relative to the root.

    Raises ConflictError if there is a tool of this name.
    """
    folder = place.tools / program
    if os.path.lexists(folder):
        raise ConflictError(f"{folder} exists already", hint="Remove it first to get the tool anew.")
    place.agents.mkdir(exist_ok=True)
    created = list(_copy(_FILES / "agents" / program, place.root, place.home))
    manifest = folder / "tool.yml"
    manifest.write_text(manifest.read_text().replace("HOME/", f"{place.home.name}/"))
    return created


def trust(made: Made, by: str) -> int:
    """Trust a project that `make` has made whole, and the tools that it wrote with all of their files.

    Return the number of tools. Raises AuditUnavailable or StateUnavailable if that cannot be stored.
    """
    place = find(made.root)
    names = {path.parent.name for path in made.created if path.name == FILE_NAME}
    if not made.new and not names:
        return 0
    project = Project(place, load_config(place.config))
    # A file that was there before may be anybody's, so a tool that uses one waits.
    made_here = tuple(f"{made.root / path}/" for path in made.created)

    def is_own(digest: ToolDigest) -> bool:
        inside = [f"{path}/" for path in digest.files if path.startswith(f"{made.root}/")]
        return all(path.startswith(made_here) for path in inside)

    tools = [tool for tool in project.tools() if tool.name in names]
    sheets = [one for one in map(project.trust.sheet, tools) if is_own(one.digest)]
    project.trust.accept(by, sheets, settings=made.new, channel="init")
    return len(sheets)


def _is_new(root: Path) -> bool:
    """Return True if the folder contains nothing of a project: no settings, tools, agents or workflows."""
    there = [home for name in HOMES if os.path.lexists(home := root / name)]
    empty = (home.is_dir() and not home.is_symlink() and not any(home.iterdir()) for home in there)
    return not os.path.lexists(root / FILE) and all(empty)


def _home(root: Path) -> Path:
    """Return the home folder: an existing one, so that a project never gets two."""
    found = [root / name for name in HOMES if (root / name).is_dir()]
    return found[0] if found else root / HOMES[0]


def _copy(source: Path, root: Path, home: Path) -> Iterator[Path]:
    for path in sorted(source.rglob("*")):
        if path.is_dir() or path.suffix == ".pyc":
            continue
        inside = path.relative_to(source)
        in_home = inside.parts[0] == "home"
        target = home.joinpath(*inside.parts[1:]) if in_home else root / inside
        target = target.with_name({"gitignore": ".gitignore"}.get(target.name, target.name))
        if _put(root, target, path.read_bytes()):
            if path.suffix == ".sh":
                target.chmod(target.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            yield target.relative_to(root)


def _put(root: Path, target: Path, data: bytes) -> bool:
    """Write a new file, whole or not at all, and by no link out of the root; False if it is there already."""
    require_inside(root, target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = target.open("xb")
    except FileExistsError:
        return False
    with file:
        try:
            file.write(data)
            file.flush()
        except OSError:
            target.unlink()
            raise
    return True


def _schema(home: Path, root: Path) -> list[Path]:
    """Write the JSON Schema of manifests, so that editors can complete them offline."""
    target = home / SCHEMA_FILE
    text = json.dumps(tool_schema(), indent=2, ensure_ascii=False) + "\n"
    return [target.relative_to(root)] if _put(root, target, text.encode()) else []


def _environment(root: Path) -> list[Path]:
    """Make the virtual environment of the example `repo_stats`, with pip where this Python can make one."""
    folder = root / ".venv"
    if folder.exists():
        return []
    import shutil
    import venv
    from importlib.util import find_spec
    from subprocess import CalledProcessError

    try:
        # Some systems have it in a package of its own.
        venv.create(folder, with_pip=find_spec("ensurepip") is not None, symlinks=True)
    except ValueError as error:  # a path with a colon, or with bytes that are not text
        message = f"a virtual environment cannot be made in {root}: {error}"
        raise UsageError(message, hint="Name another folder, or leave out the examples.") from None
    except CalledProcessError as error:  # of pip, such as a full disk
        shutil.rmtree(folder)  # One without pip would stay so.
        last = error.output.decode(errors="replace").strip().rpartition("\n")[2]
        message = f"pip cannot be installed in {folder}: {last}"
        raise StateUnavailable(message, hint="Free disk space, or leave out the examples.") from None
    return [Path(".venv")]
