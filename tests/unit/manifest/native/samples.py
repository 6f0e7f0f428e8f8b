"""Small manifests that tests change."""

from __future__ import annotations

from toolcrib.errors import ManifestError
from toolcrib.manifest import Diagnostic, check_tool, diagnostics_of, load, parse_tool
from toolcrib.spec import Tool

HTTP = """\
name: find
description: Finds things
kind: http
version: 1
inputs:
  schema:
    type: object
    additionalProperties: false
    required: [query]
    properties:
      query: {type: string, description: What to find}
exec:
  http:
    url: https://api.example.com/find
    query:
      q: ${query}
permissions:
  network: true
"""

COMMAND = """\
name: scan
description: Scans a folder
kind: command
version: 1
inputs:
  schema:
    type: object
    properties:
      path:
        type: string
        description: Folder to scan
exec:
  command:
    entrypoint: ./scan.sh
    args: ["${path}"]
"""

FILE = """\
name: note
description: Keeps a note
kind: file
version: 1
inputs:
  schema:
    type: object
    properties:
      text: {type: string, description: The note}
exec:
  file:
    action: write
    path: notes/today.txt
    content: ${text}
permissions:
  fs:
    write: [notes]
"""

PYTHON = """\
name: stats
description: Counts lines
kind: python
version: 1
exec:
  python:
    module: tools.stats
    function: run
"""


def tool(text: str, folder: str | None = None) -> Tool:
    """The tool that a manifest's text says."""
    return parse_tool(load(text.encode(), "tool.yml"), folder)


def findings(text: str, folder: str | None = None) -> list[Diagnostic]:
    """Everything that lint would say about a manifest's text."""
    try:
        document = load(text.encode(), "tool.yml")
        return check_tool(parse_tool(document, folder), document)
    except ManifestError as error:
        return list(diagnostics_of(error))


def change(text: str, old: str, new: str) -> str:
    """The text with one place changed."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
    return text.replace(old, new)
