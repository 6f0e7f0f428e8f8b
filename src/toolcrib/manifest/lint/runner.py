"""Lint: everything that can be said about manifests without running them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.registry import entries, other_files, reread
from toolcrib.manifest.native.reader import FILE_NAME, OTHER_NAME, folders, read_folder
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, make
from toolcrib.manifest.yaml.source import Document, read
from toolcrib.spec import Tool

__all__ = ["check_tool", "lint_file", "lint_tool", "lint_tree"]

_MOST = 50
"""Findings of one check about one tool; more tell nothing new."""


def check_tool(tool: Tool, document: Document | None = None) -> list[Diagnostic]:
    """What is wrong with a tool whose manifest has the right form, in the order of the file.

    Costs a part of a millisecond, more where something is found, so it is done when the tool is first listed
    or called. A tool with an error among the findings must not be run. Without `document` the manifest's kept
    bytes are read again; a tool that was not read from a manifest has no findings.
    """
    from toolcrib.manifest.lint.checks import CHECKS

    if document is None:
        if tool.source is None:
            return []
        try:
            document = reread(tool)
        except ManifestError as error:
            return list(diagnostics_of(error))
        if document is None:
            return []
    return _sorted(finding for check in CHECKS for finding in islice(check(tool, document), _MOST))


def lint_tool(path: Path) -> list[Diagnostic]:
    """All findings about one manifest: `path` is its folder or the file itself."""
    folder = os.fspath(path.parent if path.name in (FILE_NAME, OTHER_NAME) and not path.is_dir() else path)
    found = _folder(folder, Path(folder).absolute().name)
    if found is None:
        told = f"there is no {FILE_NAME} here"
        return [make(f"{folder}/{FILE_NAME}", (1, 1), "unreadable", told)]
    return found


def lint_tree(tools_dir: Path) -> list[Diagnostic]:
    """All findings about all manifests of a folder of tools, sorted by file and place."""
    base = os.fspath(tools_dir)
    found: list[Diagnostic] = []
    for name in folders(base, found):
        found += _folder(f"{base}/{name}", name) or []
    return found


def lint_file(path: str, dialect: str | None = None) -> list[Diagnostic]:
    """All findings about the tools of one file in any format; which one is found out unless it is said."""
    found: list[Diagnostic] = []
    try:
        for entry in entries(path, read(path), dialect):
            found += entry.found
            if entry.tool is not None:
                found += check_tool(entry.tool, entry.document)
    except ManifestError as error:
        found += diagnostics_of(error)
    return _sorted(found)


def _folder(folder: str, name: str) -> list[Diagnostic] | None:
    """The findings about one folder; None when it holds no manifest."""
    found: list[Diagnostic] = []
    read_one = read_folder(folder, name, found)
    if read_one is None and not found:
        others = other_files(folder)
        return (
            [finding for path, dialect in others for finding in lint_file(path, dialect)] if others else None
        )
    if os.path.lexists(f"{folder}/{FILE_NAME}") and os.path.lexists(f"{folder}/{OTHER_NAME}"):
        told = f"{OTHER_NAME} is not read, because {FILE_NAME} stands beside it"
        found.append(make(f"{folder}/{OTHER_NAME}", (1, 1), "file-name", told, hint="remove one of the two"))
    if read_one is not None:
        found += check_tool(*read_one)
    return _sorted(found)


def _sorted(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    return sorted(found, key=lambda finding: (finding.path, finding.line, finding.column))
