"""Packages that uvx and npx have downloaded: found in their caches, never fetched."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.launch.line import MachineView
from toolcrib.sandbox.files.paths import beginning, first_line, within

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_NPM = re.compile(r"((?:@[a-z0-9._~-]+/)?[a-z0-9._~-]+)(?:@([A-Za-z0-9.+^~*_-]+))?", re.IGNORECASE)
_MOST_BYTES = 1_048_576


def text_of(path: str) -> str:
    """Return the beginning of a text file; nothing if it cannot be read."""
    return beginning(path, _MOST_BYTES).decode(errors="replace")


def missing(launcher: str, package: str, line: Sequence[str]) -> ToolUnavailable:
    """Return the error for a package that has to be downloaded first, by the command `line`."""
    return ToolUnavailable(
        f"the package {package} is not on this machine, and {launcher} would download it",
        hint=f"Download it once, without running it: {shlex.join(line)}",
        details={"package": package, "download": list(line)},
    )


def requirement(text: str) -> Requirement:
    """Read `NAME`, `NAME[EXTRA]`, `NAME<2` (bounds) or `NAME@VERSION`; nothing else is supported."""
    from packaging.requirements import InvalidRequirement, Requirement

    name, at, version = text.partition("@")
    exact = f"=={version.strip()}" if at and version.strip() != "latest" else ""
    try:
        found = Requirement(name + exact)
    except InvalidRequirement:
        raise _unsupported("uvx", text) from None
    if found.marker is not None or (exact and len(found.specifier) > 1):
        raise _unsupported("uvx", text)
    return found


def _is_installed(wanted: Requirement, site: Path) -> bool:
    """Return True if a folder of packages has a version that is wanted."""
    # By the name of the folder: its METADATA may be in any encoding, or missing. PEP 503: case and these
    # characters do not distinguish names; the first `-` comes before the version.
    plain = re.sub(r"[-_.]+", "_", wanted.name).lower()
    for entry in site.glob("*.dist-info"):
        name, _, version = entry.stem.partition("-")
        if re.sub(r"[-_.]+", "_", name).lower() == plain:
            return wanted.specifier.contains(version, prereleases=True)
    return False


def uv_environment(
    wanted: Sequence[Requirement], command: str, python: str | None, machine: MachineView
) -> str | None:
    """Return the newest environment of uv that has these packages and this program."""
    # It becomes a part of a glob pattern below.
    if python is not None and not re.fullmatch(r"\d+(\.\d+)?", python):
        raise _unsupported("uvx --python", python)
    env, home = machine.env, machine.home
    tools = env.get("UV_TOOL_DIR") or f"{home}/.local/share/uv/tools"
    cache = env.get("UV_CACHE_DIR") or f"{env.get('XDG_CACHE_HOME') or f'{home}/.cache'}/uv"
    cached = (one.parent for one in Path(cache).glob("archive-v*/*/pyvenv.cfg"))
    for place in (Path(tools, wanted[0].name), *sorted(cached, key=_changed, reverse=True)):
        sites = list(place.glob(f"lib/python{python or 3}*/site-packages"))
        has_all = any(all(_is_installed(one, site) for one in wanted) for site in sites)
        if has_all and "/" not in command and os.access(f"{place}/bin/{command}", os.X_OK):
            return str(place)
    return None


class NpmSpec(NamedTuple):
    """A Node package as npx takes it."""

    written: str
    name: str
    version: str | None
    """The exact version, if one is named; a tag or a range is satisfied by what was downloaded."""

    @classmethod
    def of(cls, text: str) -> NpmSpec:
        """Read `NAME` or `NAME@VERSION`; an address, a folder or anything else is not supported."""
        found = _NPM.fullmatch(text)
        if found is None:
            raise _unsupported("npx", text)
        exact = found[2] if found[2] and re.fullmatch(r"\d+\.\d+\.\d+\S*", found[2]) else None
        return cls(text, found[1], exact)

    def folder(self, modules: str) -> str | None:
        """Return its folder below a `node_modules`, if it is there in this version."""
        folder = f"{modules}/{self.name}"
        about = _json(f"{folder}/package.json")
        fits = about and self.version in (None, about.get("version"))
        return folder if fits else None


def npm_script(
    wanted: Sequence[NpmSpec], command: str | None, node: str, cwd: str, machine: MachineView
) -> str | None:
    """Return the script of the program `command`, or of the package's own one; None if it is not there."""
    for modules in _node_modules(node, cwd, machine):
        folders = [one.folder(modules) for one in wanted]
        if all(folders):
            found = (
                _bin(str(folder), command, one.name) for folder, one in zip(folders, wanted, strict=True)
            )
            script = next((one for one in found if one is not None), None)
            if script is not None:
                return script
    return None


def _node_modules(node: str, cwd: str, machine: MachineView) -> Iterator[str]:
    """Yield the folders in which npx looks: the project's, the machine's, and those it has made itself."""
    yield f"{cwd}/node_modules"
    yield f"{os.path.dirname(os.path.dirname(os.path.realpath(node)))}/lib/node_modules"
    own = re.search(r"(?m)^cache\s*=\s*(/\S+)", text_of(f"{machine.home}/.npmrc"))
    cache = machine.env.get("npm_config_cache") or (own[1] if own else f"{machine.home}/.npm")
    made = sorted(Path(cache, "_npx").glob("*/node_modules"), key=_changed, reverse=True)
    yield from map(str, made)


def _bin(folder: str, command: str | None, package: str) -> str | None:
    """Return the file of a package's program, as its `package.json` names it."""
    named = (_json(f"{folder}/package.json") or {}).get("bin")
    short = package.rpartition("/")[2]
    programs = {short: named} if isinstance(named, str) else named if isinstance(named, dict) else {}
    name = command or (short if short in programs or len(programs) != 1 else next(iter(programs)))
    path = os.path.normpath(f"{folder}/{programs.get(name, '')}") if name in programs else ""
    # A package may name a file outside of its own folder by `..`.
    return path if within(path, folder) and os.path.isfile(path) else None


def is_for_node(script: str) -> bool:
    """Return True for a script that Node runs."""
    first = first_line(script)
    return not first.startswith(b"#!") or b"node" in first


def _json(path: str) -> dict[str, Any]:
    try:
        found = json.loads(text_of(path) or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _unsupported(launcher: str, text: str) -> ToolUnavailable:
    return ToolUnavailable(
        f"{launcher} is given {text!r}, and only packages by name can be started",
        hint="Install it into a virtual environment or a folder, and name the program there as `command`.",
        details={"package": text},
    )
