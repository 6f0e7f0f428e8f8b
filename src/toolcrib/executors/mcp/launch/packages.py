"""Packages that lines of uvx and npx name: downloaded once, without running any of their code.

Each comes into a folder of its own, by uv or npm themselves. uvx and npx would run code of the package while
they prepare it: its `.pth` files, or a program of it that is named `sh`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.launch.line import Launch
from toolcrib.manifest.dialects.mcp_servers import Resolved
from toolcrib.sandbox.files.paths import beginning, first_line, within
from toolcrib.spec.record import record

_PYTHON = re.compile(r"([a-z\d][\w.-]*)(\[[\w,.-]+\])?(?:@([\w.!+-]+)|([<>=!~][^@/;]*))?", re.ASCII | re.I)
_NPM = re.compile(r"((?:@[a-z0-9._~-]+/)?[a-z0-9._~-]+)(?:@([a-z0-9.+^~*_-]+))?", re.I)
_MOST_BYTES = 1_048_576
_MOST_WHY = 400
"""Characters at the end of a failed download's standard error that its error shows."""
_LIMIT_S = 600


def text_of(path: str) -> str:
    """Return the beginning of a text file; nothing if it cannot be read."""
    return beginning(path, _MOST_BYTES).decode(errors="replace")


@record
class Package:
    """The package of a launcher's line, and how it is downloaded."""

    line: tuple[str, ...]
    """The launcher and its words, up to the program's own arguments."""
    names: tuple[str, ...]
    command: str
    """The program of it; empty for the one that a Node package has of its own name."""
    steps: tuple[tuple[str, ...], ...]
    """The commands that download it into their working folder."""
    node: str = ""
    """Node's own program; empty for a package of Python."""

    def install(self, folder: str) -> tuple[str, ...]:
        """Download it; return the command line of its program. Raises ToolUnavailable."""
        python = ""
        if self.node:  # npm would look for a project in the folders above.
            Path(folder, "package.json").write_text("{}")
        for step in self.steps:
            _run(step, folder)
            # Of the empty environment: a package could replace the link.
            python = python or os.path.realpath(f"{folder}/bin/python")
        program = f"{folder}/bin/{self.command}"
        if self.node:
            found = self.of_node(f"{folder}/node_modules")
        else:
            found = (program,) if "/" not in self.command and os.access(program, os.X_OK) else None
            # The server cannot write there. With `-S` no `.pth` file runs; some files may be broken.
            with suppress(ToolUnavailable):
                _run((python, "-I", "-S", "-m", "compileall", "-qq", "-j0", "lib"), folder)
        if found is None:
            raise ToolUnavailable(
                f"the package {self.names[0]} has no program {self.command or 'of its name'}",
                hint="Name one that it has: uvx --from PACKAGE PROGRAM, or npx -p PACKAGE PROGRAM",
            )
        return found

    def of_node(self, modules: str) -> tuple[str, ...] | None:
        """Return the command line of its program in a `node_modules`; None if it is not there."""
        for name in self.names:
            named, short = about(modules, name).get("bin"), name.rpartition("/")[2]
            programs = {short: named} if isinstance(named, str) else named if isinstance(named, dict) else {}
            only = next(iter(programs)) if len(programs) == 1 else short
            path = os.path.normpath(f"{modules}/{name}/{programs.get(self.command or only, '')}")
            # A package may name a file outside of its own folder by `..`.
            if within(path, f"{modules}/{name}") and os.path.isfile(path):
                first = first_line(path)
                return (path,) if first.startswith(b"#!") and b"node" not in first else (self.node, path)
        return None


class Unresolved(ToolUnavailable):
    """A launcher's package was not downloaded when its server was trusted, or is gone."""

    def __init__(self, package: Package, launch: Launch) -> None:
        self.package = package
        self.launch = launch
        """The command line, with the launcher in place of the program."""
        found, name = launch.resolved, package.names[0]
        was_there = found is not None and found.line == package.line
        super().__init__(
            f"the package {name} is gone from {found.folder}" if found is not None and was_there
            else f"the package {name} has not been downloaded for this server, and no start does that",
            hint=f"To download it, without running any of its code: toolcrib trust {launch.server}".rstrip(),
            details={"package": name},
        )  # fmt: skip

    def resolve(self, parent: Path) -> Resolved:
        """Download it into a new folder below `parent`, named after the server. Raises ToolUnavailable."""
        folder = mkdtemp(prefix=f"{self.launch.server}.", dir=parent)
        try:
            return Resolved(self.package.line, self.package.install(folder), folder)
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise


def program_of(launch: Launch, package: Package, args: Sequence[str], path: str) -> Launch:
    """Return the command line of what a package was resolved to, with these arguments.

    Raises Unresolved; `path` is the launcher.
    """
    found = launch.resolved
    if found is None or found.line != package.line or not all(map(os.path.exists, found.argv)):
        raise Unresolved(package, replace(launch, argv=(path, *args)))
    return replace(launch, argv=(*found.argv, *args))


def python_spec(text: str) -> tuple[str, str]:
    """Return the name of a package and what uv installs.

    It is `NAME`, `NAME[EXTRA]`, `NAME<2` (bounds) or `NAME@VERSION`; nothing else is supported.
    """
    if (found := _PYTHON.fullmatch(text)) is None:
        raise unsupported("uvx", text)
    name, extras, version, bounds = found.groups(default="")
    return name, f"{name}{extras}{f'=={version}' if version not in ('', 'latest') else bounds}"


def node_spec(text: str) -> tuple[str, str]:
    """Return the name and the version, range or tag of a package, if there is one; no address, no folder."""
    if (found := _NPM.fullmatch(text)) is None:
        raise unsupported("npx", text)
    return found[1], found[2] or ""


def _run(line: Sequence[str], folder: str) -> None:
    """Run a download in a folder. Raises ToolUnavailable with what it says if it fails."""
    import subprocess

    # uv would compile in a Python that runs the package's `.pth` files.
    more: Any = {"cwd": folder, "env": {**os.environ, "UV_COMPILE_BYTECODE": "0"}, "timeout": _LIMIT_S}
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, **more)
        failed, why = done.returncode != 0, " ".join(done.stderr.split())
    except (OSError, subprocess.TimeoutExpired) as error:
        failed, why = True, str(error)
    if failed:
        why = why if len(why) <= _MOST_WHY else f"…{why[-_MOST_WHY:]}"
        raise ToolUnavailable(f"its package could not be downloaded: {why or f'{line[0]} failed'}")


def about(modules: str, package: str) -> dict[str, Any]:
    """Return what the `package.json` of a package says; nothing if it cannot be read."""
    try:
        found = json.loads(text_of(f"{modules}/{package}/package.json") or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def unsupported(launcher: str, text: str) -> ToolUnavailable:
    """Return the error for a package that is not named by its name."""
    return ToolUnavailable(
        f"{launcher} is given {text!r}, and only packages by name can be started",
        hint="Install it into a virtual environment or a folder, and name the program there as `command`.",
        details={"package": text},
    )
