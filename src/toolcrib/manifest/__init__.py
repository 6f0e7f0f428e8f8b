"""Manifests: read from disk, held to the format, explained where they break it."""

from toolcrib.manifest.diagnostics import Diagnostic, diagnostics_of, failure, report
from toolcrib.manifest.dialects import DIALECTS, entries, load_tools, read_dialect
from toolcrib.manifest.lint import check_tool, lint_file, lint_tool, lint_tree
from toolcrib.manifest.native import FILE_NAME, Loaded, parse_tool
from toolcrib.manifest.rules import RULES, Rule
from toolcrib.manifest.shape import tool_schema
from toolcrib.manifest.source import MAX_BYTES, Document, load, read

__all__ = [
    "DIALECTS",
    "FILE_NAME",
    "MAX_BYTES",
    "RULES",
    "Diagnostic",
    "Document",
    "Loaded",
    "Rule",
    "check_tool",
    "diagnostics_of",
    "entries",
    "failure",
    "lint_file",
    "lint_tool",
    "lint_tree",
    "load",
    "load_tools",
    "parse_tool",
    "read",
    "read_dialect",
    "report",
    "tool_schema",
]
