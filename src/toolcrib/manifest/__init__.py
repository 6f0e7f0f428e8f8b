"""Manifests: read from disk, held to the format, explained where they break it."""

from toolcrib.manifest.dialects.base import Draft, Entry, finish
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.dialects.registry import (
    DEFAULT_DIALECT,
    DIALECTS,
    entries,
    folder_dialects,
    load_folder,
    load_tools,
    own_files,
    read_dialect,
    reread,
)
from toolcrib.manifest.directory import load_directory, load_file
from toolcrib.manifest.kinds import KINDS, Kind, block_of, kind_of
from toolcrib.manifest.lint.runner import check_tool, lint_file, lint_tool, lint_tree
from toolcrib.manifest.native.cache import (
    CheckResult,
    LazyTools,
    ManifestCache,
    Mark,
    mark_of,
    new_mark_of,
    settled_mark_of,
)
from toolcrib.manifest.native.reader import (
    FILE_NAME,
    OTHER_NAME,
    Loaded,
    folders,
    parse_tool,
    read_folder,
    uncollected,
)
from toolcrib.manifest.native.schema import tool_schema
from toolcrib.manifest.team import check_team, read_team
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, failure, hide_lines, make, report
from toolcrib.manifest.yaml.files import ANY_FILE, SourceFiles
from toolcrib.manifest.yaml.form import Misfit
from toolcrib.manifest.yaml.rules import RULES
from toolcrib.manifest.yaml.source import MAX_BYTES, Document, dump, load, read

__all__ = [
    "ANY_FILE",
    "DEFAULT_DIALECT",
    "DIALECTS",
    "FILE_NAME",
    "KINDS",
    "MAX_BYTES",
    "OTHER_NAME",
    "RULES",
    "CheckResult",
    "Diagnostic",
    "Dialect",
    "Document",
    "Draft",
    "Entry",
    "Kind",
    "LazyTools",
    "Loaded",
    "ManifestCache",
    "Mark",
    "Misfit",
    "SourceFiles",
    "block_of",
    "check_team",
    "check_tool",
    "diagnostics_of",
    "dump",
    "entries",
    "failure",
    "finish",
    "folder_dialects",
    "folders",
    "hide_lines",
    "kind_of",
    "lint_file",
    "lint_tool",
    "lint_tree",
    "load",
    "load_directory",
    "load_file",
    "load_folder",
    "load_tools",
    "make",
    "mark_of",
    "new_mark_of",
    "own_files",
    "parse_tool",
    "read",
    "read_dialect",
    "read_folder",
    "read_team",
    "report",
    "reread",
    "settled_mark_of",
    "tool_schema",
    "uncollected",
]
