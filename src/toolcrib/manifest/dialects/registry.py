"""The formats that tools are written in: by which one is read is said, or found out by what a file holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import ManifestError, UsageError
from toolcrib.manifest.dialects import flexigpt, skill, sympozium, toolbox, toolbox_documents
from toolcrib.manifest.dialects.base import Draft, Entry, Translated, finish
from toolcrib.manifest.dialects.vega import conditions
from toolcrib.manifest.dialects.vega import reader as vega
from toolcrib.manifest.native import reader as native
from toolcrib.manifest.native.reader import Loaded, parse_tool
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, make
from toolcrib.manifest.yaml.json_source import load_json
from toolcrib.manifest.yaml.source import Document, load, read
from toolcrib.spec import Tool
from toolcrib.spec.naming import nearest

__all__ = [
    "DIALECTS",
    "FILES",
    "Dialect",
    "entries",
    "load_folder",
    "load_others",
    "load_tools",
    "other_files",
    "read_dialect",
    "reread",
]


class Dialect(NamedTuple):
    """One format."""

    name: str
    meaning: str
    load: Callable[[bytes, str], Document]
    entries: Callable[[Document], list[Entry]]
    detect: Callable[[Any], bool]


def _translated(
    drafts: Callable[[Document], list[Draft]], *, shared: bool = False
) -> Callable[[Document], list[Entry]]:
    """Entries of a format whose tools become native manifests; `shared`: a file may hold several of them, and
    what lies beside it belongs to none.
    """
    return lambda document: [finish(draft, shared=shared) for draft in drafts(document)]


def _native(document: Document) -> list[Entry]:
    folder = Path(document.path).parent.name if Path(document.path).name == native.FILE_NAME else None
    data = document.data if isinstance(document.data, dict) else {}
    whole = Translated(document, data, {(): ()})
    try:
        return [Entry(parse_tool(document, folder), whole)]
    except ManifestError as error:
        return [Entry(None, whole, diagnostics_of(error))]


def _no(_: Any) -> bool:
    return False


def _load_any(raw: bytes, path: str) -> Document:
    """JSON where the file says so by its name or its first sign, YAML otherwise."""
    begins = raw[:200].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return (
        load_json(raw, path)
        if path.endswith((".json", ".jsonc")) or begins in (b"{", b"[")
        else load(raw, path)
    )


def _load_toolbox(raw: bytes, path: str) -> Document:
    apart = toolbox_documents.detect(raw)
    return toolbox_documents.load_documents(raw, path) if apart else _load_any(raw, path)


DIALECTS: dict[str, Dialect] = {
    one.name: one
    for one in (
        Dialect("native", "Toolcrib's and Glee's tool.yml", load, _native,
                lambda data: isinstance(data, dict) and "kind" in data and "exec" in data),
        Dialect("vega", "Vega's definitions, one tool a file", vega.load_vega,
                lambda document: [vega.entry_of(document)], _no),
        Dialect("flexigpt", "FlexiGPT's tool.json", load_json, _translated(flexigpt.drafts), flexigpt.detect),
        Dialect("sympozium", "Sympozium's SkillPack, its sidecar's tools", _load_any,
                _translated(sympozium.drafts, shared=True), sympozium.detect),
        Dialect("skill", "a folder of Agent Skills, SKILL.md", skill.load_skill,
                _translated(skill.drafts), _no),
        Dialect("toolbox", "tools.yaml of MCP Toolbox", _load_toolbox,
                _translated(toolbox.drafts, shared=True),
                toolbox.detect),
    )
}  # fmt: skip
"""Every format that is read, by its name."""

FILES = {"tool.json": "flexigpt", "SKILL.md": "skill"}
"""Files of other formats that make a folder of its own a tool's folder."""


def detect(raw: bytes, path: str) -> tuple[Dialect, Document]:
    """The format of a file and its data. Raises ManifestError where it is none that is known."""
    if Path(path).name == skill.SKILL_FILE or (raw[:4] in (b"---\n", b"---\r") and path.endswith(".md")):
        return DIALECTS["skill"], skill.load_skill(raw, path)
    if toolbox_documents.detect(raw):
        return DIALECTS["toolbox"], toolbox_documents.load_documents(raw, path)
    if vega.detect(raw):
        return DIALECTS["vega"], vega.load_vega(raw, path)
    try:
        document = _load_any(raw, path)
    except ManifestError:
        if conditions.has_control_line(raw):  # which no YAML has, but Vega's
            return DIALECTS["vega"], vega.load_vega(raw, path)
        raise
    for dialect in DIALECTS.values():
        if dialect.detect(document.data):
            return dialect, document
    told, hint = _another(document.data)
    raise ManifestError(told, hint=hint, details={"diagnostics": [
        make(path, (1, 1), "dialect", told, hint=hint).as_dict()]})  # fmt: skip


_OTHERS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("mcpServers",), "these are MCP servers, whose tools only the servers know",
     "put them into `.mcp.json` at the project's root, or under `mcp_servers` in the settings"),
    (("openapi", "swagger"), "this is an OpenAPI document, whose operations become manifests first",
     "run `toolcrib import openapi FILE`"),
    (("members", "agents"), "this is a team, which says who may use which tools",
     "run `toolcrib list --team FILE --member NAME`"),
)  # fmt: skip
"""Files that hold no tools but something near to it: by one of their keys, what to say and what to do."""


def _another(data: Any) -> tuple[str, str]:
    for keys, told, hint in _OTHERS:
        if isinstance(data, dict) and any(key in data for key in keys):
            return told, hint
    return "the file is in no format that is known", f"say which: {', '.join(DIALECTS)}"


def entries(path: str, raw: bytes, dialect: str | None = None) -> list[Entry]:
    """Every tool of a file, usable or not. Raises ManifestError where the file cannot be read as a whole."""
    if dialect is None:
        found, document = detect(raw, path)
    else:
        found = _named(dialect)
        document = found.load(raw, path)
    return found.entries(document)


def read_dialect(path: str, raw: bytes | None = None, dialect: str | None = None) -> Loaded:
    """The tools of a file that can be used, and what was found. Never raises for what the file holds."""
    try:
        made = entries(path, read(path) if raw is None else raw, dialect)
    except (FileNotFoundError, NotADirectoryError) as error:
        return Loaded((), (make(path, (1, 1), "unreadable", f"the file cannot be read: {error.strerror}"),))
    except ManifestError as error:
        return Loaded((), diagnostics_of(error))
    tools: list[Tool] = []
    found: list[Diagnostic] = []
    broken: dict[str, tuple[Diagnostic, ...]] = {}
    seen: set[str] = set()
    for entry in made:
        found += entry.found
        tool = entry.tool
        if tool is None:
            name = entry.document.data.get("name") if isinstance(entry.document.data, dict) else None
            if isinstance(name, str):
                broken[name] = entry.found
            continue
        if tool.name in seen:
            told = f"a tool called {tool.name} stands in the file before"
            found.append(entry.document.diagnostic("name", told, ("name",)))
        elif not entry.enabled:
            told = f"{tool.name} is switched off by its file"
            found.append(entry.document.diagnostic("disabled", told, hint="set isEnabled to true to use it"))
        else:
            seen.add(tool.name)
            tools.append(tool)
    return Loaded(tuple(tools), tuple(found), broken)


def reread(tool: Tool) -> Document | None:
    """The document of a tool again, with the places of its file; None when it is not in it any more."""
    if tool.source is None:
        return None
    if tool.source.dialect == "native":
        return load(tool.source.raw, tool.source.path)
    if tool.source.dialect == "vega":
        return vega.document_of(tool)
    made = entries(tool.source.path, tool.source.raw, tool.source.dialect)
    return next(
        (entry.document for entry in made if entry.tool is not None and entry.tool.name == tool.name), None
    )


def load_tools(tools_dir: Path) -> Loaded:
    """As `native.load_tools`, and what `load_others` gives."""
    loaded = native.load_tools(tools_dir)
    known = {tool.name for tool in loaded.tools}
    base = os.fspath(tools_dir)
    others = load_others(base, [name for name in native.folders(base, []) if name not in known])
    found = [*loaded.diagnostics, *others.diagnostics]
    tools = list(loaded.tools)
    for tool in others.tools:
        if tool.name in known:
            path = "" if tool.source is None else tool.source.path
            found.append(make(path, (1, 1), "name", f"a tool called {tool.name} is in another folder"))
        else:
            tools.append(tool)
    return Loaded(tuple(sorted(tools, key=lambda tool: tool.name)), tuple(found))


def load_others(base: str, names: Iterable[str]) -> Loaded:
    """The tools of those folders in `base` that hold a file of `FILES` instead of a manifest."""
    tools: dict[str, Tool] = {}
    found: list[Diagnostic] = []
    for name in names:
        other = load_folder(f"{base}/{name}")
        if other is None:
            continue
        found += other.diagnostics
        for tool in other.tools:
            if tool.name in tools:
                path = "" if tool.source is None else tool.source.path
                found.append(make(path, (1, 1), "name", f"a tool called {tool.name} is in another folder"))
            else:
                tools[tool.name] = tool
    return Loaded(tuple(tools.values()), tuple(found))


def load_folder(folder: str) -> Loaded | None:
    """The tools of a folder that holds a file of `FILES` instead of a manifest; None for any other."""
    for path, dialect in other_files(folder):
        return read_dialect(path, dialect=dialect)
    return None


def other_files(folder: str) -> list[tuple[str, str]]:
    """The file of another format that makes a folder a tool's, with its format; none beside a manifest."""
    if any(os.path.lexists(f"{folder}/{name}") for name in (native.FILE_NAME, native.OTHER_NAME)):
        return []
    return [
        (f"{folder}/{name}", dialect)
        for name, dialect in FILES.items()
        if os.path.lexists(f"{folder}/{name}")
    ][:1]


def _named(name: str) -> Dialect:
    if name not in DIALECTS:
        close = nearest(name, DIALECTS)
        hint = f"Did you mean {close}?" if close else f"Known: {', '.join(DIALECTS)}."
        raise UsageError(f"there is no format {name!r}", hint=hint)
    return DIALECTS[name]
