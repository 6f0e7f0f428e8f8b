"""A format that tools are written in: everything that the other parts need to know of it, as one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any

from toolcrib.manifest.dialects.base import Entry
from toolcrib.manifest.kinds import kind_of
from toolcrib.manifest.yaml.source import Document, load
from toolcrib.spec import Permissions, Spelling, Tool
from toolcrib.spec.record import record


def load_any(raw: bytes, path: str) -> Document:
    """Read JSON if the name or the first sign of the file says so, else YAML."""
    begins = raw[:200].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not path.endswith((".json", ".jsonc")) and begins not in (b"{", b"["):
        return load(raw, path)
    from toolcrib.manifest.yaml.json_source import load_json

    return load_json(raw, path)


@record
class Dialect:
    """One format. Its functions import what is heavy inside."""

    _: KW_ONLY
    name: str
    """The name in settings, options and losses."""
    meaning: str
    """The format in a few words."""
    entries: Callable[[Document], list[Entry]]
    """Return every tool of a file, usable or not."""
    load: Callable[[bytes, str], Document] = load_any
    """Read a file. Raises ManifestError if it is not in the form of the format."""
    spelling: Spelling = Spelling.DOLLAR_BRACE
    """The way placeholders are written in its files."""

    claims: Callable[[bytes, str], bool] = lambda *_: False
    """Return True if a file is of this format, judged by its text and path."""
    detect: Callable[[Any], bool] = lambda _: False
    """Return True if a file is of this format, judged by its data."""

    base_ms: int | None = None
    """`Retry.base_ms` of a tool that gives no delay between attempts."""
    own_file: str | None = None
    """The name of a file that makes the folder around it a tool's own folder."""
    endings: tuple[str, ...] = ()
    """Endings of the files that are tools, in a folder of tools. Empty: it is not read from folders."""
    several: bool = False
    """A file may have several tools, and files beside it belong to none of them."""
    granted: Callable[[Tool, Permissions], Permissions] = lambda tool, granted: kind_of(tool).granted(
        tool, granted
    )
    """Return the permissions of a tool from a folder, or a file, that was granted these."""
    reread: Callable[[Tool], Document] | None = None
    """Return the document of a tool again, faster than by reading all of its file."""

    write: Callable[[Tool], bytes] | None = None
    """Return the file of a tool that is in its terms. None: the format is only read."""
    file_name: str = ""
    """The path of a written file below a folder; `{name}` is the tool's name."""
    terms: Callable[[Tool], Tool] = lambda tool: tool
    """Express a tool in its terms. Raises ManifestError for what it cannot say."""
    native_terms: Callable[[Tool], Tool] = lambda tool: tool
    """Express one of its tools in native terms. Raises ManifestError for what a manifest cannot say."""
