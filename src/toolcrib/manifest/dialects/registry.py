"""The formats that tools are written in, by name, and the tools of files, folders and trees in them.

To add a format, write a folder with a `Dialect` and add a line to the table below, or name the record in the
entry point group `toolcrib.dialects` of an installed package.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from toolcrib.errors import ManifestError, UsageError
from toolcrib.manifest.dialects.base import Entry
from toolcrib.manifest.dialects.dialect import Dialect, load_any
from toolcrib.manifest.native import reader as native
from toolcrib.manifest.native.reader import FILE_NAME, OTHER_NAME, Loaded
from toolcrib.manifest.plugins import Registry
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, make
from toolcrib.manifest.yaml.source import ANY_FILE, Document, SourceFiles, read
from toolcrib.spec import Permissions, Tool
from toolcrib.spec.naming import suggestion

_FOLDER = "toolcrib.manifest.dialects"
DIALECTS: Registry[Dialect] = Registry(
    "toolcrib.dialects",
    Dialect,
    {
        "native": f"{_FOLDER}.native:DIALECT",
        "vega": f"{_FOLDER}.vega.dialect:DIALECT",
        "flexigpt": f"{_FOLDER}.flexigpt.dialect:DIALECT",
        "sympozium": f"{_FOLDER}.sympozium.dialect:DIALECT",
        "skill": f"{_FOLDER}.skill.dialect:DIALECT",
    },
)
"""Every format by its name."""
DEFAULT_DIALECT = "vega"
"""The format of a folder of tools that names none."""


def dialect_named(name: str) -> Dialect:
    """Return the format of that name. Raises UsageError with the nearest one."""
    dialect = DIALECTS.get(name)
    if dialect is None:
        hint = suggestion(name, DIALECTS.names(), f"Known: {', '.join(DIALECTS.names())}.")
        raise UsageError(f"there is no format {name!r}", hint=hint)
    return dialect


def folder_dialects(asked: object) -> tuple[str, ...]:
    """Return the formats that folders of tools may be in; one of an installed package if `asked` names it."""
    names = [dialect.name for dialect in DIALECTS.builtin if dialect.endings]
    if isinstance(asked, str) and not DIALECTS.is_builtin(asked):
        dialect = DIALECTS.get(asked)
        names += [asked] if dialect is not None and dialect.endings else []
    return tuple(names)


@cache
def own_files() -> dict[str, str]:
    """Return the names of files that make the folder around them a tool's own, each with its format."""
    return {dialect.own_file: dialect.name for dialect in DIALECTS.builtin if dialect.own_file is not None}


def detect(raw: bytes, path: str) -> tuple[Dialect, Document]:
    """Find out the format of a file, and read it. Raises ManifestError if no format fits."""
    # By text first: some formats are not YAML as a whole. Installed packages come last, so that none can take
    # over a format that is built in.
    for dialect in DIALECTS.builtin:
        if dialect.claims(raw, path):
            return dialect, dialect.load(raw, path)
    document = load_any(raw, path)
    for dialect in DIALECTS.builtin:
        if dialect.detect(document.data):
            return dialect, document
    for dialect in DIALECTS.installed:
        if dialect.claims(raw, path) or dialect.detect(document.data):
            return dialect, dialect.load(raw, path)
    message, hint = _hint(document.data)
    raise ManifestError(
        message,
        hint=hint,
        details={"diagnostics": [make(path, (1, 1), "dialect", message, hint=hint).as_dict()]},
    )


_OTHERS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("mcpServers",), "these are MCP servers, whose tools only the servers know",
     "put them into `.mcp.json` at the project's root, or under `mcp_servers` in the settings"),
    (("openapi", "swagger"), "this is an OpenAPI document, whose operations become manifests first",
     "run `toolcrib import openapi FILE`"),
    (("members", "agents"), "this is a team without tools of its own, which says who may use which tools",
     "run `toolcrib list --team FILE --member NAME`"),
)  # fmt: skip
"""Files without tools that are easily taken for one with tools: their keys, what they are, what to do."""


def _hint(data: Any) -> tuple[str, str]:
    for keys, message, hint in _OTHERS:
        if isinstance(data, dict) and any(key in data for key in keys):
            return message, hint
    return "the file is in no known format", f"name its format: {', '.join(DIALECTS.names())}"


def entries(path: str, raw: bytes, dialect: str | None = None) -> list[Entry]:
    """Return every tool of a file, usable or not. Raises ManifestError if the file cannot be read at all."""
    if dialect is None:
        found, document = detect(raw, path)
    else:
        found = dialect_named(dialect)
        document = found.load(raw, path)
    return [_spelled(entry, found) for entry in found.entries(document)]


def _spelled(entry: Entry, dialect: Dialect) -> Entry:
    tool = entry.tool
    if tool is None or tool.source is None or tool.source.spelling is dialect.spelling:
        return entry
    source = replace(tool.source, spelling=dialect.spelling)
    return replace(entry, tool=replace(tool, source=source))


def read_dialect(
    path: str, raw: bytes | None = None, dialect: str | None = None, files: SourceFiles = ANY_FILE
) -> Loaded:
    """Return the usable tools of a file, and the findings. Never raises for the content of the file."""
    try:
        made = entries(path, read(path, files) if raw is None else raw, dialect)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"the file cannot be read: {error.strerror}"
        return Loaded((), (make(path, (1, 1), "unreadable", message),))
    except ManifestError as error:
        return Loaded((), diagnostics_of(error))
    tools: dict[str, Tool] = {}
    found: list[Diagnostic] = []
    broken: dict[str, tuple[Diagnostic, ...]] = {}
    for entry in made:
        found += entry.found
        tool = entry.tool
        if tool is None:
            name = entry.document.data.get("name") if isinstance(entry.document.data, dict) else None
            if isinstance(name, str):
                broken[name] = entry.found
        elif tool.name in tools:
            message = f"a tool named {tool.name} is in this file already"
            found.append(entry.document.diagnostic("name", message, ("name",)))
        elif not entry.enabled:
            message = f"{tool.name} is switched off by its file"
            hint = "set isEnabled to true to use it"
            found.append(entry.document.diagnostic("disabled", message, hint=hint))
        else:
            tools[tool.name] = tool
    return Loaded(tuple(tools.values()), tuple(found), broken)


def reread(tool: Tool) -> Document | None:
    """Return the document of a tool again, with its positions; None if the tool is no longer in its file."""
    if tool.source is None:
        return None
    dialect = dialect_named(tool.source.dialect)
    if dialect.reread is not None:
        return dialect.reread(tool)
    made = entries(tool.source.path, tool.source.raw, tool.source.dialect)
    return next(
        (entry.document for entry in made if entry.tool is not None and entry.tool.name == tool.name), None
    )


def load_tools(tools_dir: Path) -> Loaded:
    """Return the tools of a folder, sorted by name: those of native manifests, and those of other formats.

    Never raises for a bad file; no folder holds no tools. Only the form is checked here; `check_tool` holds a
    tool to the rest before it is first listed or called.
    """
    base = os.fspath(tools_dir)
    found: list[Diagnostic] = []
    native_tools: list[Tool] = []
    others: list[Loaded | None] = []
    with native.uncollected():
        for name in native.folders(base, found):
            read_one = native.read_folder(f"{base}/{name}", name, found)
            if read_one is not None:
                native_tools.append(read_one[0])
            else:
                others.append(load_folder(f"{base}/{name}", ANY_FILE))
    whole = joined([Loaded(tuple(native_tools), tuple(found)), *filter(None, others)])
    return replace(whole, tools=tuple(sorted(whole.tools, key=lambda tool: tool.name)))


def joined(parts: Iterable[Loaded]) -> Loaded:
    """Join the tools of several files; of two tools with one name the first is used."""
    found: list[Diagnostic] = []
    tools: dict[str, Tool] = {}
    broken: dict[str, tuple[Diagnostic, ...]] = {}
    for part in parts:
        found += part.diagnostics
        broken |= part.broken
        for tool in part.tools:
            first = tools.setdefault(tool.name, tool)
            if first is not tool and first.source is not None and tool.source is not None:
                message = f"there is a tool named `{tool.name}` already: in {first.source.path}"
                hint = "give one of the two another name"
                found.append(make(tool.source.path, (1, 1), "name", message, hint=hint))
    return Loaded(tuple(tools.values()), tuple(found), broken)


def load_folder(folder: str, files: SourceFiles) -> Loaded | None:
    """Return the tools of a folder with a file of `own_files` instead of a manifest; None for any other."""
    for path, dialect in other_files(folder):
        return read_dialect(path, dialect=dialect, files=files)
    found = misplaced(folder, files)
    name = os.path.basename(folder).rpartition(".")
    return Loaded((), found, {name[0] or name[2]: found}) if found else None


def misplaced(path: str, files: SourceFiles) -> tuple[Diagnostic, ...]:
    """Return the error of a manifest that is not read, because only `NAME/tool.yml` is one here.

    `path` is an entry of the folder of tools: a file, or a folder without a manifest.
    """
    if os.path.isdir(path):
        return _in_folder(path, files)
    if (dialect := _format(path, files)) is None:
        return ()
    hint = "name it in `sources` in the settings"
    if (own := native.FILE_NAME if dialect == "native" else dialect_named(dialect).own_file) is not None:
        base, file = os.path.split(path)
        hint = f"move it to {base}/{file.rpartition('.')[0]}/{own}"
    return _not_read(path, "each tool here has a folder of its own", hint)


def _in_folder(folder: str, files: SourceFiles) -> tuple[Diagnostic, ...]:
    """Return the error of the first manifest in a folder that has another name, or lies one folder deeper."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    if native.FILE_NAME in names or native.OTHER_NAME in names:
        return ()  # It is read, and its own errors are reported.
    for name in names:
        path, place = f"{folder}/{name}", f"{folder}/{native.FILE_NAME}"
        if os.path.isfile(below := f"{path}/{native.FILE_NAME}"):
            hint = f"move its folder to {os.path.dirname(folder)}/{name}"
            return _not_read(below, "it is one folder too deep", hint)
        if _format(path, files) == "native":
            return _not_read(path, f"a manifest has the name {native.FILE_NAME}", f"rename it to {place}")
    return ()


def _format(path: str, files: SourceFiles) -> str | None:
    """Return the format of a file; `native` for YAML that cannot be read, None for any other file."""
    if not path.endswith((".yml", ".yaml", ".json")):
        return None
    try:
        return detect(read(path, files), path)[0].name
    except ManifestError as error:
        return "native" if diagnostics_of(error)[0].rule.startswith("yaml") else None
    except OSError:
        return None


def _not_read(path: str, why: str, hint: str) -> tuple[Diagnostic, ...]:
    return (make(path, (1, 1), "file-place", f"the file is not read, because {why}", hint=hint),)


def other_files(folder: str) -> list[tuple[str, str]]:
    """Return the file of `own_files` in a folder and its format; none beside a manifest."""
    if any(os.path.lexists(f"{folder}/{name}") for name in (native.FILE_NAME, native.OTHER_NAME)):
        return []
    paths = ((f"{folder}/{name}", dialect) for name, dialect in own_files().items())
    return [(path, dialect) for path, dialect in paths if os.path.lexists(path)][:1]


def load_directory(
    folder: Path, granted: Permissions, dialect: str = DEFAULT_DIALECT, files: SourceFiles = ANY_FILE
) -> Loaded:
    """Return every tool of a folder, by the names of its files. Never raises for a bad file.

    `granted` is what programs and files of its tools may touch; only `files` are read.
    """
    found: list[Diagnostic] = []
    form = dialect_named(dialect)
    loaded = joined(
        _read(path, granted, dialect, files, own=own) for path, own in _files(folder, form, found)
    )
    return Loaded(loaded.tools, (*found, *loaded.diagnostics), loaded.broken)


def load_file(path: Path, granted: Permissions, dialect: str | None, files: SourceFiles) -> Loaded:
    """Return every tool of one file. Never raises for a bad file; the format is found out if not named."""
    if path.name not in (FILE_NAME, OTHER_NAME):
        loaded = _read(os.fspath(path), granted, dialect, files, own=_is_own(path.name))
        if all(tool.source is not None and tool.source.dialect != "native" for tool in loaded.tools):
            return loaded
    message = "this is a manifest of Toolcrib's own format"
    hint = "put it into a folder of its own in the project's folder of tools: tools/NAME/tool.yml"
    return Loaded((), (make(os.fspath(path), (1, 1), "dialect", message, hint=hint),))


def _is_own(name: str) -> bool:
    """Return True for a file whose name is its whole ending: all of its folder belongs to it."""
    return any(name in dialect.endings for dialect in DIALECTS.builtin)


def _read(path: str, granted: Permissions, dialect: str | None, files: SourceFiles, *, own: bool) -> Loaded:
    """Read one file; `own` if its folder belongs to its tool alone."""
    loaded = read_dialect(path, dialect=dialect, files=files)
    tools = tuple(_placed(tool, granted, own=own) for tool in loaded.tools)
    return Loaded(tools, loaded.diagnostics, loaded.broken)


def _placed(tool: Tool, granted: Permissions, *, own: bool) -> Tool:
    """Return the tool with what its folder was granted, beside what its file says."""
    source = tool.source
    assert source is not None
    permissions = DIALECTS[source.dialect].granted(tool, granted)
    return replace(tool, permissions=permissions, source=source if own else replace(source, shared=True))


def _files(folder: Path, dialect: Dialect, found: list[Diagnostic]) -> list[tuple[str, bool]]:
    """Return the paths of a folder's files that are tools, with True for those in a folder of their own."""
    base = os.fspath(folder)
    try:
        with os.scandir(base) as entries:
            names = sorted((entry.name, entry.is_dir()) for entry in entries if entry.name[0] != ".")
    except OSError as error:
        message = f"the folder of tools cannot be listed: {error.strerror}"
        found.append(make(base, (1, 1), "unreadable", message))
        return []
    paths: list[tuple[str, bool]] = []
    for name, is_dir in names:
        if not is_dir and name.endswith(dialect.endings):
            paths.append((f"{base}/{name}", _is_own(name)))
        elif is_dir and dialect.own_file is not None and os.path.lexists(f"{base}/{name}/{dialect.own_file}"):
            paths.append((f"{base}/{name}/{dialect.own_file}", True))
    return paths
