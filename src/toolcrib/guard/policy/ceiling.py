"""The permissions of an agent's tool beyond the project's ceiling, `security.max_permissions`.

Everything that the tool would open is compared by its real path or its host: its permissions, and what its
`exec` block makes readable by itself (a program, a virtual environment).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.errors import Violation
from toolcrib.manifest.kinds import kind_of
from toolcrib.spec import Network, Permissions, Tool

if TYPE_CHECKING:
    from toolcrib.egress import HostRule

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""Programs and libraries that every confined tool can read."""
_WIDTH = {"none": 0, "hosts": 1, "any": 2, "host": 3}
_port_of = re.compile(r"[a-z]+://[^/?#]*?:(\d+)(?:[/?#]|\Z)", re.IGNORECASE).match


def excess(tool: Tool, ceiling: Permissions | None, root: Path) -> list[Violation]:
    """Return every permission of the tool beyond the ceiling, with its place in the manifest.

    Without a ceiling no permission is allowed. Relative paths start at `root`, the project's root; `..` and
    symbolic links are followed first.
    """
    ceiling = ceiling or Permissions()
    asked = tool.permissions
    found = list(_network(tool, ceiling.network))
    found += _paths(asked.read, (*ceiling.read, *ceiling.write), root, "$.permissions.fs.read", "read")
    found += _paths(asked.write, ceiling.write, root, "$.permissions.fs.write", "write")
    for name in _beyond((secret.name for secret in asked.secrets), (one.name for one in ceiling.secrets)):
        found.append(_violation(f"$.permissions.secrets.{name}", f"the secret {name}", "secrets"))
    for name in _beyond(asked.env, ceiling.env):
        found.append(_violation("$.permissions.env", f"the environment variable {name}", "env"))
    for place, path in opened(tool, root):
        found += _paths((path,), (*ceiling.read, *ceiling.write), root, place, "read")
    return found


def _violation(place: str, what: str, key: str) -> Violation:
    return Violation(place, f"{what} is beyond security.max_permissions.{key}")


def _beyond(asked: Iterable[str], allowed: Iterable[str]) -> list[str]:
    given = set(allowed)
    return [name for name in asked if name not in given]


def _network(tool: Tool, ceiling: Network) -> Iterator[Violation]:
    asked, place = tool.permissions.network, "$.permissions.network"
    if asked.mode == "none" or ceiling.mode == "host":
        return
    if asked.mode != "hosts":
        if _WIDTH[asked.mode] > _WIDTH[ceiling.mode]:
            what = "this machine's own network" if asked.mode == "host" else "any public host"
            yield _violation(place, what, "network")
        return
    from toolcrib.egress import HostRule

    port, allowed = _own_port(tool), [HostRule.parse(entry) for entry in ceiling.allow]
    for number, entry in enumerate(asked.allow):
        try:
            rule = HostRule.parse(entry, port)
        except ValueError as error:
            yield Violation(f"{place}.allow[{number}]", str(error))
            continue
        # A host that is named exactly may be a private address; "any" means public ones.
        if ceiling.mode == "any" and rule.named:
            yield Violation(
                f"{place}.allow[{number}]",
                f"{entry} is named exactly, so it may have a private address, which is beyond"
                " security.max_permissions.network; `true` or a `*.` entry allow public ones only",
            )
        elif ceiling.mode != "any" and not any(_covers(one, rule) for one in allowed):
            yield _violation(f"{place}.allow[{number}]", f"the host {entry}", "network")


def _own_port(tool: Tool) -> int | None:
    """Return the port in the tool's own URL, which its list of hosts covers as well."""
    found = _port_of(kind_of(tool).url(tool.config))
    return int(found[1]) if found is not None else None


def _covers(allowed: HostRule, asked: HostRule) -> bool:
    """Return True if one entry allows everything that another does. `*.host` names no host exactly."""
    if not asked.ports <= allowed.ports:
        return False
    if not allowed.wildcard:
        return not asked.wildcard and asked.host == allowed.host
    return asked.wildcard and (asked.host == allowed.host or asked.host.endswith(f".{allowed.host}"))


def _paths(
    asked: Iterable[str], allowed: Iterable[str], root: Path, place: str, access: str
) -> Iterator[Violation]:
    folders = [os.path.realpath(root / path) for path in allowed]
    for path in asked:
        try:
            real = os.path.realpath(root / path)
        except (OSError, ValueError):
            yield Violation(place, f"{path!r} is not a valid path")
            continue
        if not any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders):
            leads = "" if real == os.path.normpath(root / path) else f", which leads to {real},"
            yield _violation(place, f"to {access} {path!r}{leads}", f"fs.{access}")


def opened(tool: Tool, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the paths that an `exec` block makes readable by itself, each with its place.

    System paths and the interpreter that Toolcrib itself runs on are left out.
    """
    start, at = kind_of(tool).starts(tool.config), f"$.exec.{tool.kind}"
    if start.words and "/" in start.words[0] and not _is_system(root, start.words[0]):
        yield f"{at}.entrypoint", start.words[0]
    if start.venv and not _is_system(root, start.venv):
        yield f"{at}.venv", start.venv
    python = f"{start.venv}/bin/python"
    if start.venv and not _is_system(root, python) and _leads_elsewhere(root, start.venv, python):
        yield f"{at}.venv", python


def _leads_elsewhere(root: Path, venv: str, python: str) -> bool:
    """Return True for an interpreter outside its virtual environment that Toolcrib does not run on."""
    ours = getattr(sys, "_base_executable", None) or sys.executable
    try:
        folder, real = os.path.realpath(root / venv), os.path.realpath(root / python)
    except (OSError, ValueError):
        return False
    return not real.startswith(f"{folder}/") and real != os.path.realpath(ours)


def _is_system(root: Path, path: str) -> bool:
    try:
        real = os.path.realpath(root / path)
    except (OSError, ValueError):
        return False
    return any(real.startswith(f"{folder}/") for folder in _SYSTEM)
