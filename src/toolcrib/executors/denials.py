"""What a tool was kept from: its own failure, told as the permission that it lacks.

The kernel says only that there is no such file, or that it is read-only. Here the path that the tool's own
error names is held against the tool's grants and against this machine, and nothing is claimed that was not
found so. Outside of the project nothing is said of whether a path exists: who calls a tool need not be
somebody who may know.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from toolcrib.errors import ManifestError, PermissionDenied, ToolUnavailable
from toolcrib.executors.output import ending, facts
from toolcrib.executors.reach import Access, Reach, is_folder, parent, there
from toolcrib.executors.workspace import Workspace
from toolcrib.sandbox import Completed, Confinement
from toolcrib.sandbox.grants import nameable
from toolcrib.spec import CommandExec, Tool

__all__ = ["of_command", "of_exec", "of_python"]

Wish = Literal["read", "write", "entry", "run"]
"""`entry`: to make, rename or remove an entry of a folder."""
_ACCESS: dict[str, Wish] = {"read": "read", "write": "write", "entry": "entry"}
_USUAL = (80, 443)
"""Ports that a host is granted with by its name alone."""
_LOOKED_AT = 16_384
"""Bytes at the end of standard error that are looked through."""
_MOST = 20
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_KEPT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FAILURES = {
    "no such file or directory": errno.ENOENT,
    "no such file": errno.ENOENT,
    "directory nonexistent": errno.ENOENT,
    "permission denied": errno.EACCES,
    "read-only file system": errno.EROFS,
    "operation not permitted": errno.EPERM,
    "not found": errno.ENOENT,
}
"""As programs of C, Python, Go and Node and the shells say it."""
_LINE = re.compile(rf"^(.*?):? ?\(?({'|'.join(_FAILURES)})\b.*$", re.MULTILINE | re.IGNORECASE)
_QUOTED = re.compile("""['"\u2018`]([^'"\u2018\u2019`]+)['"\u2019`]""")
_MAKES = re.compile(r"\b(cannot (create|touch|overwrite|write)|creat|writ)", re.IGNORECASE)
_MOVES = re.compile(r"\b(cannot|can't) (remove|move|unlink|rename)|mkdir", re.IGNORECASE)
_NO_HOST = re.compile(
    r"(?:[Cc]ould not resolve host(?:name)?|[Uu]nable to resolve host(?: address)?|Name or service not known)"
    r"[:\s]+['\u2018\"]?([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)"
)


class Denial(NamedTuple):
    """One thing a tool was kept from."""

    path: str
    """Real path."""
    access: Access
    closed: bool
    """Whether no grant opens it."""
    grant: str
    """What a grant would name."""


# -- what failed ---------------------------------------------------------------------------------


def of_python(
    workspace: Workspace, tool: Tool, job: Confinement, done: Completed, answer: Mapping[str, Any]
) -> PermissionDenied | None:
    """What a Python tool that raised lacked, by what its interpreter told of the exception; None: nothing
    that is known."""
    cause = answer.get("cause")
    if not isinstance(cause, dict):
        return None
    reach = Reach.of(workspace, tool, job)
    said = f"{answer.get('error')}: {answer.get('message')}"
    host = cause.get("host")
    number = cause.get("errno")
    if tool.permissions.network.mode == "none" and cause.get("network") is True:
        port = cause.get("port")
        asked = (host if isinstance(host, str) else None, port if isinstance(port, int) else None)
        return _no_network(workspace, tool, done, said, *asked)
    for path in (cause.get("filename"), cause.get("filename2")):
        if isinstance(path, str) and isinstance(number, int):
            found = _denial(reach, path, number, _ACCESS.get(str(cause.get("access")), "read"))
            if found is not None:
                return _denied(workspace, tool, done, said, found)
    module = cause.get("module")
    if isinstance(module, str) and (found := _module(reach, module)) is not None:
        return _denied(workspace, tool, done, said, found)
    return None


def of_command(
    workspace: Workspace, tool: Tool, job: Confinement, done: Completed
) -> PermissionDenied | None:
    """What a command that failed lacked, by what it wrote to standard error; None: nothing that is known."""
    reach = Reach.of(workspace, tool, job)
    text = done.stderr[-_LOOKED_AT:].decode(errors="replace")
    for path, number, wish in _named(text):
        found = _denial(reach, path, number, wish)
        if found is not None:
            return _denied(workspace, tool, done, _ended(done), found)
    host = _NO_HOST.search(text)
    if host is not None and tool.permissions.network.mode == "none":
        name = host.group(1)
        return _no_network(workspace, tool, done, _ended(done), name, _port_of(name, job.argv))
    return None


def of_exec(
    workspace: Workspace, tool: Tool, job: Confinement, error: ToolUnavailable
) -> PermissionDenied | None:
    """Why a program that is there could not be started: the interpreter its first line names is not shown."""
    path = error.details.get("path")
    if "errno" not in error.details or not isinstance(path, str):
        return None
    reach = Reach.of(workspace, tool, job)
    found = None
    if "/" in path:
        found = _denial(reach, path, errno.ENOENT, "read") or _interpreter(reach, path)
    return None if found is None else _denied(workspace, tool, None, error.message, found)


def _named(text: str) -> Iterator[tuple[str, int, Wish]]:
    """What lines of standard error say of paths: a path, the error, and what was wanted.

    The end first: what a program says last is most often why it failed.
    """
    for match in [*_LINE.finditer(text)][: -_MOST - 1 : -1]:
        before, number = match.group(1), _FAILURES[match.group(2).lower()]
        wish: Wish = "write" if number == errno.EROFS or _MAKES.search(match.group(0)) else "read"
        if _MOVES.search(match.group(0)):
            wish = "entry"
        if match.group(2).lower() == "not found":
            wish = "run"
        quoted = _QUOTED.findall(match.group(0))
        words = before.split(": ")
        last = words[-1].split()
        for path in dict.fromkeys((*quoted[::-1], words[-1].strip(), *(last[-1:]))):
            if path and len(path) < 4096:
                yield path, number, wish


def _denial(reach: Reach, path: str, number: int, wish: Wish) -> Denial | None:
    """Whether a failure is one of grants: the path is kept from the tool, and that is why it failed so."""
    if number not in _ABSENT | _KEPT or not nameable(path):
        return None
    target = place = reach.place(path)
    if number == errno.EROFS and wish == "read":
        wish = "write"
    access: Access = "read" if wish in ("read", "run") else "write"
    ours = reach.in_project(place)
    if wish == "run" and not (ours and "/" in path):  # A name is looked for elsewhere, and much is not found.
        return None
    if ours and access == "write" and (wish == "entry" or not os.path.lexists(place)):
        target = parent(reach.entry(path))
    if target == "/" or (ours and not os.path.lexists(target)):
        return None
    verdict = reach.verdict(target, access)
    if verdict == "closed":
        return Denial(target, access, True, reach.written(target))
    # Outside of the project nobody looks whether anything is there; not to be granted is true in any case.
    if verdict != "missing" or (not ours and reach.of_system(path)):
        return None
    return Denial(target, access, False, reach.written(target))


def _module(reach: Reach, name: str) -> Denial | None:
    """A module that lies in the working folder, where the tool does not see it."""
    base = "/".join((reach.cwd, *name.split(".")))
    if not nameable(base):
        return None
    for place in (reach.place(f"{base}.py"), reach.place(base)):
        if (
            there(place)
            and place.endswith(".py") != is_folder(place)
            and reach.in_project(place)
            and reach.verdict(place, "read") == "missing"
        ):
            return Denial(place, "read", False, reach.written(place))
    return None


def _interpreter(reach: Reach, path: str) -> Denial | None:
    """The program that the first line of a script names, if it is one that the tool is not shown."""
    try:
        with Path(reach.place(path)).open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    words = first[2:].split()
    if not first.startswith(b"#!") or not words or not there(os.fsdecode(words[0])):
        return None
    return _denial(reach, os.fsdecode(words[0]), errno.ENOENT, "read")


# -- how it is told ------------------------------------------------------------------------------


def _denied(
    workspace: Workspace, tool: Tool, done: Completed | None, said: str, found: Denial
) -> PermissionDenied:
    path, access = found.path, found.access
    if workspace.watch is not None:
        workspace.watch.denied(path, access)
    details: dict[str, Any] = {} if done is None else {**facts(done), "stderr": _tail(done)}
    details |= {"path": path, "access": access, "grant": None, "said": said[:1_000]}
    if found.closed:
        return PermissionDenied(
            f"{tool.name} may not {access} {path}, which is closed to every tool: {said}",
            hint="No grant opens it. Have the tool use another path.",
            details=details,
        )
    permission = f"permissions.fs.{access}"
    where, line = _place(workspace, tool, ("permissions", "fs", access))
    details |= {"grant": {"permission": permission, "value": found.grant}, "manifest": where, "line": line}
    return PermissionDenied(
        f"{tool.name} may not {access} {path}, which its permissions do not grant: {said}",
        hint=f"If it shall, add {found.grant!r} to {permission} in {where}. "
        f"`toolcrib trace {tool.name}` shows all that it needs.",
        details=details,
    )


def _no_network(
    workspace: Workspace, tool: Tool, done: Completed, said: str, host: str | None, port: int | None
) -> PermissionDenied:
    from toolcrib.manifest.checks import DIRECT

    if workspace.watch is not None and host is not None:
        workspace.watch.record_host(host, port, False)
    where, line = _place(workspace, tool, ("permissions", "network"))
    named = host or "HOST"
    if port not in (None, *_USUAL):
        named = f"[{named}]:{port}" if ":" in named else f"{named}:{port}"
    value: Any = {"allow": [named]}
    hint = (
        f"If it shall, write `network: {{allow: [{named}]}}` under permissions in {where}. That leads "
        "through a proxy for HTTP and SOCKS; what speaks neither needs `network: host`."
    )
    if isinstance(tool.config, CommandExec) and Path(tool.config.entrypoint).name in DIRECT:
        value = "host"
        hint = (
            f"If it shall, write `network: host` under permissions in {where}: this machine's own network, "
            "which a person has to approve. It speaks neither HTTP nor SOCKS, so a list of hosts does not do."
        )
    details = {
        **facts(done),
        "stderr": _tail(done),
        "host": host,
        "access": "network",
        "grant": {"permission": "permissions.network", "value": value},
        "manifest": where,
        "line": line,
        "said": said[:1_000],
    }
    return PermissionDenied(
        f"{tool.name} may not reach {host or 'the network'}: its permissions grant no network: {said}",
        hint=hint,
        details=details,
    )


def _port_of(host: str, argv: Iterable[str]) -> int | None:
    """The port of the host that the command line names."""
    named = re.compile(rf"(?<![\w.-]){re.escape(host)}:(\d{{1,5}})(?!\d)")
    return next((int(found.group(1)) for word in argv for found in named.finditer(word)), None)


def _ended(done: Completed) -> str:
    """The command's own account, as it would be told without any of this."""
    stderr = _tail(done)
    return f"it {ending(done)}" + (f": {stderr}" if stderr else "")


def _tail(done: Completed) -> str:
    return done.stderr[-4_000:].decode(errors="replace").strip()


def _place(workspace: Workspace, tool: Tool, keys: tuple[str, ...]) -> tuple[str, int | None]:
    """Where in the manifest a grant is to be written: `file:line` of the nearest key there is."""
    from toolcrib.manifest import load

    if tool.source is None:
        return "its manifest", None
    path = os.path.realpath(tool.source.path)
    shown = path.removeprefix(f"{workspace.root}/")
    try:
        document = load(tool.source.raw, tool.source.path)
    except ManifestError:
        return shown, None
    data: Any = document.data
    known: tuple[str, ...] = ()
    for key in keys:
        if not isinstance(data, dict) or key not in data:
            break
        data = data[key]
        known = (*known, key)
    if not known:
        return shown, None
    line, _ = document.locate(known, key=True)
    return f"{shown}:{line}", line
