"""Permission errors for paths that are known to be refused.

A path is known from the exception of a Python tool, from the first line of a script that could not start, or
because Toolcrib itself was to open the file. Nothing is guessed from a tool's output. For a path outside of
the project no error depends on its existence, because the caller may not be entitled to know.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolcrib.errors import PermissionDenied, ToolUnavailable
from toolcrib.executors.output import error_facts
from toolcrib.executors.trace.block import quoted
from toolcrib.executors.trace.reach import Access, Reach, nearest
from toolcrib.executors.workspace.grants import FileGrants
from toolcrib.executors.workspace.network import manifest_line
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Completed, Confinement
from toolcrib.sandbox.files.grants import nameable
from toolcrib.sandbox.files.paths import first_line, within
from toolcrib.spec import Tool

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
    cause = answer.get("cause")
    if not isinstance(cause, Mapping):
        return None
    path, number = cause.get("filename"), cause.get("errno")
    if not isinstance(path, str) or not isinstance(number, int):
        return None
    denial = denial_of(Reach.of(workspace, tool, job), path, number)
    reason = f"{answer.get('error')}: {answer.get('message')}"
    return denial and _error(workspace, tool, denial, reason, error_facts(done))


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


def denial_of(reach: Reach, path: str, number: int) -> Denial | None:
    """Return the denial behind an errno; None if the tool's permissions do not explain it.

    A hidden path is reported as absent (ENOENT), one that is only readable as EROFS.
    """
    if number not in _REFUSALS or not nameable(path):
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
            if name == reach.cwd:  # The path may be relative to another folder (`dir_fd`).
                return None
            place = reach.place(name)
    elif reach.of_system(name):
        return None
    verdict = reach.verdict(place, access)
    if verdict == "closed":
        return Denial(name, access, None)
    if verdict == "missing":
        return Denial(name, access, reach.written(reach.repository(place) or name))
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
        "manifest": manifest if line is None else f"{manifest}:{line}",
        "line": line,
    }
    return PermissionDenied(
        f"{tool.name} may not {access} {path}, which its permissions do not grant: {reason}",
        hint=f"To allow it, add {quoted(value)} to {permission} in {details['manifest']}. "
        f"`toolcrib trace {tool.name}` shows all permissions that it needs.",
        details=details,
    )


def _location(workspace: Workspace, tool: Tool, keys: tuple[str, ...]) -> tuple[str, int | None]:
    """Return the manifest's path from the project root, and the line of the nearest of `keys` that it has."""
    if tool.source is None:
        return "its manifest", None
    shown = os.path.realpath(tool.source.path).removeprefix(f"{workspace.root}/")
    return shown, manifest_line(tool.source, keys)
