"""Lint: check manifests without running them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.registry import entries, misplaced, other_files, reread
from toolcrib.manifest.native.reader import FILE_NAME, OTHER_NAME, folders, read_folder
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, make
from toolcrib.manifest.yaml.source import ANY_FILE, Document, SourceFiles, read
from toolcrib.spec import Tool

_MOST = 50
"""The most findings of one check about one tool."""


def check_tool(tool: Tool, document: Document | None = None, *, placed: bool = True) -> list[Diagnostic]:
    """Return the findings about a tool whose manifest fits the schema, in the order of the file.

    Costs a part of a millisecond, more where something is found, so it is done when the tool is first listed
    or called. A tool with an error among the findings must not be run. Without `document` the manifest's kept
    bytes are read again; a tool that was not read from a manifest has no findings. Without `placed` they have
    no positions, which take the longest to find.
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
    if not placed:
        document = Document(document.path, document.raw, "", document.data)
    return _sorted(finding for check in CHECKS for finding in islice(check(tool, document), _MOST))


def lint_tool(path: Path) -> list[Diagnostic]:
    """Return all findings about one manifest; `path` is its folder or the file itself."""
    folder = os.fspath(path.parent if path.name in (FILE_NAME, OTHER_NAME) and not path.is_dir() else path)
    found = _folder(folder, Path(folder).absolute().name)
    if found is None:
        message = f"there is no {FILE_NAME} here"
        return [make(f"{folder}/{FILE_NAME}", (1, 1), "unreadable", message)]
    return found


def lint_tree(tools_dir: Path, files: SourceFiles = ANY_FILE) -> list[Diagnostic]:
    """Return all findings about the manifests of a folder of tools, by file and position."""
    base = os.fspath(tools_dir)
    found: list[Diagnostic] = []
    for name in folders(base, found):
        found += _folder(f"{base}/{name}", name, files) or []
    return found


def lint_file(path: str, dialect: str | None = None, files: SourceFiles = ANY_FILE) -> list[Diagnostic]:
    """Return all findings about the tools of one file; the format is found out if not named."""
    found: list[Diagnostic] = []
    try:
        for entry in entries(path, read(path, files), dialect):
            found += entry.found
            if entry.tool is not None:
                found += check_tool(entry.tool, entry.document)
    except ManifestError as error:
        found += diagnostics_of(error)
    return _sorted(found)


def _folder(folder: str, name: str, files: SourceFiles = ANY_FILE) -> list[Diagnostic] | None:
    """Return the findings about one folder; None if it holds no manifest."""
    found: list[Diagnostic] = []
    read_one = read_folder(folder, name, found, files)
    if read_one is None and not found:
        for path, dialect in other_files(folder):
            return lint_file(path, dialect, files)
        return list(misplaced(folder, files)) or None
    if os.path.lexists(f"{folder}/{FILE_NAME}") and os.path.lexists(f"{folder}/{OTHER_NAME}"):
        message = f"{OTHER_NAME} is ignored, because {FILE_NAME} is beside it"
        found.append(
            make(f"{folder}/{OTHER_NAME}", (1, 1), "file-name", message, hint="remove one of the two")
        )
    if read_one is not None:
        from toolcrib.manifest.lint.checks import absent

        found += [*check_tool(*read_one), *absent(*read_one)]
    return _sorted(found)


def _sorted(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    return sorted(found, key=lambda finding: (finding.path, finding.line, finding.column))
