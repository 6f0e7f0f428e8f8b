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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import ManifestError, PermissionDenied, ToolUnavailable
from toolcrib.executors.output import ending, facts
from toolcrib.executors.trace.block import quoted
from toolcrib.executors.trace.reach import Access, Reach, is_folder, nearest, parent, there
from toolcrib.executors.trace.stderr_denials import Complaint, Wish, changes_folder, host_of, paths_of
from toolcrib.executors.workspace.workspace import Workspace, within
from toolcrib.sandbox import Completed, Confinement
from toolcrib.sandbox.files.grants import nameable
from toolcrib.sandbox.files.paths import beginning
from toolcrib.spec import CommandExec, Tool

__all__ = ["of_command", "of_exec", "of_python", "ungranted"]

_ACCESS: dict[str, Wish] = {"read": "read", "write": "write", "entry": "entry"}
_USUAL = (80, 443)
"""Ports that a host is granted with by its name alone."""
_LOOKED_AT = 16_384
"""Bytes at the end of standard error that are looked through."""
_LONGEST = 4_096
_SCRIPT = 65_536
"""Bytes of a script that are looked at."""
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_KEPT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


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
        return _no_network(workspace, tool, done, said, *asked, direct=cause.get("direct") is True)
    for path in (cause.get("filename"), cause.get("filename2")):
        if isinstance(path, str) and isinstance(number, int):
            wish = _ACCESS.get(str(cause.get("access")), "read")
            found = _denial(reach, Complaint(path, number, wish))
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
    complaints = list(paths_of(text, " ".join(job.argv)))
    elsewhere = bool(complaints) and _goes_elsewhere(reach, job.argv)
    for complaint in complaints:
        if elsewhere and complaint.path[:1] != "/":
            continue
        found = _denial(reach, complaint)
        if found is not None:
            return _denied(workspace, tool, done, _ended(done), found)
    asked = host_of(text) if tool.permissions.network.mode == "none" else None
    if asked is not None:
        host, port = asked
        return _no_network(workspace, tool, done, _ended(done), host, port or _port_of(host, job.argv))
    return None


def _goes_elsewhere(reach: Reach, argv: tuple[str, ...]) -> bool:
    """Whether the command, or a script of the project that it runs, changes its working folder."""
    if changes_folder(" ".join(argv)):
        return True
    places = [reach.place(word) for word in argv if nameable(word) and len(word) < _LONGEST]
    scripts = (beginning(place, _SCRIPT) for place in places if reach.in_project(place))
    return any(changes_folder(script.decode(errors="replace")) for script in scripts)


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
        found = _denial(reach, Complaint(path, errno.ENOENT, "read")) or _interpreter(reach, path)
    return None if found is None else _denied(workspace, tool, None, error.message, found)


def _denial(reach: Reach, told: Complaint) -> Denial | None:
    """Whether a failure is one of grants: the path is kept from the tool, and that is why it failed so."""
    path, number, wish = told.path, told.number, told.wish
    if number not in _ABSENT | _KEPT or not nameable(path):
        return None
    place = reach.place(path)
    if number == errno.EROFS and wish in ("read", "write"):
        wish = "entry" if told.folder and is_folder(place) else "write"
    access: Access = "read" if wish in ("read", "run") else "write"
    lexical = reach.absolute(path)
    if reach.of_kernel(lexical):  # The tool has its own, of which this machine's says nothing.
        return Denial(lexical, "write", True, lexical) if access == "write" else None
    if not reach.in_project(place):
        return None if wish == "run" else _outside(reach, lexical, wish)
    if wish == "run" and "/" not in path:  # A name is looked for elsewhere, and much is not found.
        return None
    target, there_now = place, os.path.lexists(place)
    if access == "write" and (wish == "entry" or not there_now):
        if not there_now and not told.sure:
            return None
        entry = reach.entry(path)
        if reach.verdict(entry, "write") == "closed":
            return Denial(entry, access, True, reach.written(entry))
        target = next((folder for folder in reach.scratch if within(entry, folder)), parent(entry))
    elif not there_now:
        return None
    target = reach.grantable(target)
    if target not in reach.scratch and not os.path.lexists(target):
        return None
    verdict = reach.verdict(target, access)
    if verdict not in ("closed", "missing"):
        return None
    return Denial(target, access, verdict == "closed", reach.written(_by_link(reach, lexical, target)))


def _by_link(reach: Reach, asked: str, target: str) -> str:
    """The path that a grant names: with the links by which the tool asked, or it would not see them."""
    found = (
        path for path in (asked, parent(asked)) if reach.in_project(path) and reach.place(path) == target
    )
    return next(found, target)


def _outside(reach: Reach, path: str, wish: Wish) -> Denial | None:
    """The same of a path outside of the project, as it was written: nobody looks whether anything is there,
    or where a link leads. That it is not granted is true in any case."""
    access: Access = "read" if wish == "read" else "write"
    if wish in ("make", "entry"):
        path = parent(path)
    if path == "/" or reach.of_system(path):
        return None
    verdict = reach.verdict(reach.place(path), access)
    if verdict not in ("closed", "missing"):
        return None
    return Denial(path, access, verdict == "closed", reach.written(path))


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
    first = beginning(reach.place(path), 256).partition(b"\n")[0]
    words = first[2:].split()
    if not first.startswith(b"#!") or not words or not there(os.fsdecode(words[0])):
        return None
    return _denial(reach, Complaint(os.fsdecode(words[0]), errno.ENOENT, "read"))


def ungranted(workspace: Workspace, tool: Tool, access: Access, path: str) -> PermissionDenied:
    """A file that Toolcrib itself is to open for a tool that has no permission of that kind."""
    reach = Reach.of_file(workspace, tool)
    found = _denial(reach, Complaint(path, errno.ENOENT, access))
    said = f"it has no fs.{access} permission"
    target = path if access == "read" else nearest(path)
    return _denied(workspace, tool, None, said, found or Denial(target, access, False, reach.written(target)))


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
        hint=f"If it shall, add {quoted(found.grant)} to {permission} in {where}. "
        f"`toolcrib trace {tool.name}` shows all that it needs.",
        details=details,
    )


def _no_network(
    workspace: Workspace,
    tool: Tool,
    done: Completed,
    said: str,
    host: str | None,
    port: int | None,
    direct: bool = False,
) -> PermissionDenied:
    from toolcrib.executors.direct_programs import DIRECT

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
    if direct or (isinstance(tool.config, CommandExec) and Path(tool.config.entrypoint).name in DIRECT):
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
