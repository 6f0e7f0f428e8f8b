"""The projects that a command about approvals is for: the one here, or outside of one all of this user's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.cli.caller import given_token
from toolcrib.cli.options import open_project
from toolcrib.cli.output import one_line, print_note
from toolcrib.errors import NotFoundError, ProjectNotFound, ToolcribError, UsageError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.control.approvals import ApprovalSheet


def projects_of(root: str | None) -> tuple[list[Project], bool]:
    """Return the project of a command; outside of one all of this user's projects, and True.

    The code of Python files does not run.
    """
    try:
        return [open_project(root, load=False)], False
    except ProjectNotFound:
        if root is not None or os.environ.get("TOOLCRIB_ROOT") or given_token() is not None:
            raise
    return list(_every()), True


def _every() -> Iterator[Project]:
    """Yield each project of this user in which calls may wait. One that cannot be opened is named."""
    from toolcrib.project import Project, find
    from toolcrib.state import known_projects

    for path in known_projects():
        try:
            find(path)
        except (ToolcribError, OSError):  # It was removed, with what waited in it.
            continue
        try:
            project = Project.open(path, load=False)
            if project.has_state:
                yield project
        except ToolcribError as error:
            print_note(f"note: {one_line(str(path))} is left out: {one_line(error.message)}")


def sheets_of(
    projects: Sequence[Project], status: Any, limit: int, before: str | None = None
) -> list[tuple[Project, ApprovalSheet]]:
    """Return the approvals of these projects, the newest first."""
    found: dict[str, tuple[Project, ApprovalSheet]] = {}
    for project in projects:
        for sheet in project.approval_service.list(status, limit, before=before):
            # Projects that share a database have the same ones.
            found.setdefault(sheet.approval.id, (project, sheet))
    return [found[one] for one in sorted(found, reverse=True)[:limit]]


def where_of(project: Project) -> str:
    """Return the path of a project that is not around the working folder; else an empty text."""
    path = project.place.path
    return "" if Path.cwd().is_relative_to(path) else str(path)


def documents(found: Sequence[tuple[Project, ApprovalSheet]]) -> list[dict[str, Any]]:
    """Return approvals as JSON, each with the path of its project."""
    return [{**sheet.document, "project": str(project.place.path)} for project, sheet in found]


def one_of(projects: Sequence[Project], beginning: str | None) -> tuple[Project, str]:
    """Return the approval whose id begins so, or the newest that waits, and its project.

    Raises NotFoundError, and UsageError if several may be meant.
    """
    if beginning is None:
        for project, sheet in sheets_of(projects, "pending", 1):
            return project, sheet.approval.id
        raise NotFoundError("nothing waits for approval")
    found: dict[str, Project] = {}
    missing = NotFoundError(f"there is no approval {beginning!r}")
    for project in projects:
        try:
            found.setdefault(project.approval_service.approvals.resolve(beginning), project)
        except NotFoundError as error:
            missing = error
    if len(found) > 1:
        raise UsageError(f"several approvals begin with {beginning!r}", hint="Write more of the id.")
    for id, project in found.items():  # noqa: A001 - the field's name
        return project, id
    raise missing
