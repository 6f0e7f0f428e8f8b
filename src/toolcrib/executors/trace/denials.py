"""Permission errors for what a tool was refused.

A path is known from the exception of a Python tool, from the words of a program that failed, from the first
line of a script that could not start, or because Toolcrib itself was to open the file. For a path outside of
the project no error depends on its existence, because the caller may not be entitled to know.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from toolcrib.errors import PermissionDenied, ToolUnavailable
from toolcrib.executors.output import error_facts
from toolcrib.executors.trace.block import quoted
from toolcrib.executors.trace.reach import Access, Reach, nearest
from toolcrib.executors.workspace.grants import FileGrants
from toolcrib.executors.workspace.workspace import Workspace, manifest_line
from toolcrib.sandbox import Completed, Confinement
from toolcrib.sandbox.files.grants import nameable
from toolcrib.sandbox.files.paths import first_line, within
from toolcrib.spec import Tool
from toolcrib.spec.naming import DRAFTS

READ_ONLY = re.compile(r"EROFS|read-only file ?system|unable to open database", re.IGNORECASE)
_NOT_MADE = re.compile(
    r"cannot create .*: directory nonexistent|cannot (?:create|touch) .*: permission denied", re.IGNORECASE
)
"""The words for a file that is not made: in a folder that is hidden or missing, or at level landlock."""
_ABSENT = re.compile(r"EACCES|EPERM|ENOENT|permission denied|not permitted|no such file", re.IGNORECASE)
_OFFLINE = re.compile(
    r"resolve host|name resolution|name or service not known|bad hostname|getaddrinfo|EAI_AGAIN|\bENOTFOUND"
    r"|ENETUNREACH|network is unreachable|connection: \[Errno (?:1|13)\]|urlopen error \[Errno (?:1|13)\]"
    r"|socket\b.*(?:permission denied|not permitted)|PermissionError: \[Errno 13\] Permission denied$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"""['"`\u2018\u201c]([^'"`\u2018\u2019\u201c\u201d\n]+)['"`\u2019\u201d]""")
_PLAIN = re.compile(r"(?<![\w.:/])(/[^\s'\"`:,;()<>\[\]]+)")
_URL = re.compile(r"https?://[^\s'\"<>]+")
_HOST = re.compile(
    r"(?:resolve host\w*(?: address)?:?|getaddrinfo \w+|bad hostname) ['\"\u2018]?([\w.-]+\.[\w-]+)",
    re.IGNORECASE,
)
MOST = 50
"""Lines, paths or URLs read from one text, which a program can make as long as it likes."""


def refused_paths(text: str) -> Iterator[tuple[str, int]]:
    """Yield each path that a text may name as refused, and the number of the error; the last line first.

    The kernel does not report what it refuses. So what a text names is only a candidate: the caller compares
    it with the tool's permissions, and reports nothing that they allow.
    """
    for line in reversed(text.splitlines()[-MOST:]):
        is_written = READ_ONLY.search(line) or _NOT_MADE.search(line)
        number = errno.EROFS if is_written else errno.EACCES
        if is_written or _ABSENT.search(line):
            yield from ((path, number) for path in dict.fromkeys(_candidates(line)))


def _candidates(line: str) -> Iterator[str]:
    found = [*_QUOTED.findall(line)[:MOST], *(path.rstrip(".") for path in _PLAIN.findall(line)[:MOST])]
    if found:
        yield from found
        return
    # `cat: notes.txt: No such file or directory`: the program comes first, the reason last.
    parts = [part.strip() for part in line.split(": ")]
    for part in reversed(parts[1:-1] if len(parts) > 2 else parts[:-1]):
        yield part.rpartition(" ")[2]
        yield part


def is_offline(text: str) -> bool:
    """Return True if a text says that a name was not resolved, or a socket not made."""
    return any(_OFFLINE.search(line) for line in text.splitlines()[-MOST:])


def named_hosts(text: str) -> list[str]:
    """Return the hosts that a text names, in URLs or as not resolved."""
    hosts = [host for url in _URL.findall(text)[:MOST] if (host := _host(url))]
    return list(dict.fromkeys((*hosts, *_HOST.findall(text)[:MOST])))


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return None if parts.hostname is None else parts.netloc.rpartition("@")[2]
    except ValueError:
        return None


_MAX_NAME = 255
"""Characters of a name at most; a longer one has another error."""
_REFUSALS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})


class Denial(NamedTuple):
    """One path that a tool may not use."""

    path: str
    access: Access
    grant: str | None
    """The path as a manifest would grant it; None if no grant allows it."""


def of_exception(
    workspace: Workspace, tool: Tool, job: Confinement, done: Completed, answer: Mapping[str, Any]
) -> PermissionDenied | None:
    """Return the error for the exception that ended a Python tool; None if no permission would prevent it.

    `answer` is what the tool's interpreter wrote: `cause` has the exception's `errno` and `filename`.
    """
    cause, reason = answer.get("cause"), f"{answer.get('error')}: {answer.get('message')}"
    path, number = (cause.get("filename"), cause.get("errno")) if isinstance(cause, Mapping) else (None, None)
    if not isinstance(path, str) or not isinstance(number, int):
        return of_text(workspace, tool, job, reason, reason, error_facts(done))
    reach = Reach.of(workspace, tool, job)
    # Landlock alone refuses a new file so. Where it could be made without the sandbox, nothing else does.
    number = errno.EROFS if number == errno.EACCES and nameable(path) and reach.may_make(path) else number
    denial = denial_of(reach, path, number)
    return denial and _error(workspace, tool, denial, reason, error_facts(done))


def of_text(
    workspace: Workspace, tool: Tool, job: Confinement, text: str, reason: str, facts: dict[str, Any]
) -> PermissionDenied | None:
    """Return the error for the path or the network that a failed program says it was refused.

    None if the tool's permissions do not explain it. `facts` are for its details.
    """
    if job.network == "none" and is_offline(text):
        return _no_network(workspace, tool, named_hosts(text), reason, facts)
    reach = Reach.of(workspace, tool, job)
    denial = next(iter(denials_of(reach, refused_paths(text))), None)
    return denial and _error(workspace, tool, denial, reason, facts)


def _no_network(
    workspace: Workspace, tool: Tool, hosts: list[str], reason: str, facts: dict[str, Any]
) -> PermissionDenied:
    from toolcrib.egress import grant_line

    manifest, line = _location(workspace, tool, ("permissions", "network"))
    where = f"builtins.{tool.name} in config.yml" if tool.is_builtin else _written(manifest, line)
    what = grant_line(hosts) if hosts else "permissions.network with the hosts that it needs"
    return PermissionDenied(
        f"{tool.name} may not use the network, which its permissions do not grant: {reason}",
        hint=f"To allow it, write in {where}: {what}",
        details={**facts, "network": False, "hosts": hosts, "said": reason[:1_000]},
    )


def of_interpreter(
    workspace: Workspace, tool: Tool, job: Confinement, error: ToolUnavailable
) -> PermissionDenied | None:
    """Return the error for a script that could not start because its interpreter is not granted."""
    path = error.details.get("path")
    if "errno" not in error.details or not isinstance(path, str) or "/" not in path:
        return None
    reach = Reach.of(workspace, tool, job)
    first = first_line(reach.place(path))
    words = first[2:].split() if first.startswith(b"#!") else []
    if not words or not os.path.exists(os.fsdecode(words[0])):
        return None
    denial = denial_of(reach, os.fsdecode(words[0]), errno.ENOENT)
    return denial and _error(workspace, tool, denial, error.message, {})


def of_file(
    workspace: Workspace, tool: Tool, grants: FileGrants, access: Access, path: str
) -> PermissionDenied:
    """Return the error for a file tool without any permission of this kind."""
    reach = Reach.of(workspace, tool, grants)
    denial = denial_of(reach, path, errno.EROFS if access == "write" else errno.ENOENT)
    denial = denial or Denial(path, access, reach.written(path))
    return _error(workspace, tool, denial, f"it has no fs.{access} permission", {})


def denials_of(reach: Reach, refused: Iterable[tuple[str, int]]) -> list[Denial]:
    """Return the denials behind paths and errnos that a program has named, the likeliest first."""
    found = [denial_of(reach, path, number) for path, number in refused]
    # Any word could be a file that is missing in the working folder.
    return sorted((one for one in found if one is not None), key=lambda one: one.path == reach.cwd)


def denial_of(reach: Reach, path: str, number: int) -> Denial | None:
    """Return the denial behind an errno; None if the tool's permissions do not explain it.

    A hidden path is reported as absent (ENOENT), one that is only readable as EROFS.
    """
    if number not in _REFUSALS or not nameable(path) or max(map(len, path.split("/"))) > _MAX_NAME:
        return None
    access: Access = "write" if number == errno.EROFS else "read"
    name, place = reach.name(path), reach.place(path)
    if reach.of_kernel(os.path.normpath(path)):  # The tool sees a /proc of its own.
        return None
    # Outside of the project no answer may depend on what exists there.
    if reach.in_project(place):
        if not os.path.lexists(place):
            if access == "read":
                return None
            name = next((folder for folder in reach.scratch if within(name, folder)), nearest(name))
            place = reach.place(name)
    elif reach.of_system(name):
        return None
    verdict = reach.verdict(place, access)
    if verdict == "closed":
        return Denial(name, access, None)
    if verdict == "missing":
        return Denial(name, access, reach.written(reach.to_name(place) or name))
    return None


def _error(
    workspace: Workspace, tool: Tool, denial: Denial, reason: str, facts: dict[str, Any]
) -> PermissionDenied:
    path, access, value = denial
    details = {**facts, "path": path, "access": access, "grant": None, "said": reason[:1_000]}
    if value is None:
        return PermissionDenied(
            f"{tool.name} may not {access} {path}, which is closed to every tool: {reason}",
            hint="No permission opens this path. Let the tool use another one.",
            details=details,
        )
    permission = f"permissions.fs.{access}"
    manifest, line = _location(workspace, tool, ("permissions", "fs", access))
    details |= {
        "grant": {"permission": permission, "value": value},
        "manifest": _written(manifest, line),
        "line": line,
    }
    hint = f"To allow it, add {quoted(value)} to {permission} in {details['manifest']}. "
    hint += f"`toolcrib trace {tool.name}` with the same arguments shows all that it needs."
    if tool.bundle == DRAFTS:
        hint = f"To allow it, watch the run, and take the permission to {access} {quoted(value)}."
    if tool.is_builtin:
        hint = f"To allow it, add {quoted(value)} to `roots` in config.yml."
    return PermissionDenied(
        f"{tool.name} may not {access} {path}, which its permissions do not grant: {reason}",
        hint=hint,
        details=details,
    )


def _written(manifest: str, line: int | None) -> str:
    return manifest if line is None else f"{manifest}:{line}"


def _location(workspace: Workspace, tool: Tool, keys: tuple[str, ...]) -> tuple[str, int | None]:
    """Return the manifest's path from the project root, and the line of the nearest of `keys` that it has."""
    if tool.source is None:
        return "its manifest", None
    shown = os.path.realpath(tool.source.path).removeprefix(f"{workspace.root}/")
    return shown, manifest_line(tool.source, keys)
