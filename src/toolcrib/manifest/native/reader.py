"""Native manifests: one folder per tool, `tool.yml` in it, to `Tool`."""

from __future__ import annotations

import gc
import hashlib
import os
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from toolcrib.errors import ConfigError, ManifestError
from toolcrib.manifest.kinds import KINDS, made_of
from toolcrib.manifest.native.schema import fits, kind_names, misfits
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, failure, make, quoted
from toolcrib.manifest.yaml.source import ANY_FILE, Document, SourceFiles, load, read, read_with_facts
from toolcrib.spec import (
    Annotations,
    ApprovalRule,
    Auth,
    Example,
    Hmac,
    Limits,
    McpForms,
    Network,
    OAuth2,
    Output,
    Permissions,
    Retry,
    SecretSpec,
    Source,
    Tool,
)
from toolcrib.spec.naming import INKLESS, printable
from toolcrib.spec.record import record
from toolcrib.spec.tools.tool import PLAIN

FILE_NAME = "tool.yml"
OTHER_NAME = "tool.yaml"

_NO_INPUTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


@record
class Loaded:
    """The content of a folder of tools: the usable tools, and the findings about all."""

    tools: tuple[Tool, ...]
    diagnostics: tuple[Diagnostic, ...]
    broken: Mapping[str, tuple[Diagnostic, ...]] = field(default_factory=dict)
    """Name of an unusable tool to the findings about it."""


_frozen = False
"""True once something has been found to be frozen."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the cycle collector from walking, again and again, the many objects that loading makes and keeps.

    Afterwards they are moved among the old ones (freezing and thawing does that without walking them).
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _age()
        gc.enable()


def _age() -> None:
    global _frozen
    # What a server has frozen stays so. Counting walks all of it (10 ms), so that is done once.
    _frozen = _frozen or gc.get_freeze_count() > 0
    if not _frozen:
        gc.freeze()
        gc.unfreeze()


def folders(base: str, found: list[Diagnostic]) -> list[str]:
    """Return the names in a folder of tools, sorted; if it cannot be listed, add that to `found`."""
    try:
        with os.scandir(base) as entries:
            return sorted([entry.name for entry in entries if entry.name[0] != "."])
    except FileNotFoundError:
        return []
    except OSError as error:
        if not os.path.lexists(base):  # It would lie below a Python file.
            return []
        message = f"the folder of tools cannot be listed: {error.strerror}"
        found.append(make(base, (1, 1), "unreadable", message))
        return []


def read_folder(
    folder: str, name: str, found: list[Diagnostic], files: SourceFiles = ANY_FILE
) -> tuple[Tool, Document] | None:
    """Return the tool of one folder; None without a usable manifest, whose faults are added to `found`."""
    read_one = read_document(folder, name, found, files)
    if read_one is None:
        return None
    document, _ = read_one
    return tool_of(document.data, document.path, document.raw), document


def read_document(
    folder: str, name: str, found: list[Diagnostic], files: SourceFiles = ANY_FILE
) -> tuple[Document, os.stat_result | None] | None:
    """Return the document of one folder, which has the form of a tool, and the state of its file.

    None as for `read_folder`. A file that is not called `FILE_NAME` has no state.
    """
    path = f"{folder}/{FILE_NAME}"
    facts: os.stat_result | None
    try:
        try:
            raw, facts = read_with_facts(path, files)
        except FileNotFoundError:
            other = _other_file(path, f"{folder}/{OTHER_NAME}", found, files)
            if other is None:
                return None
            (path, raw), facts = other, None
        document = load(raw, path)
        _check_form(document, name)
        return document, facts
    except NotADirectoryError:
        return None
    except ManifestError as error:
        found += diagnostics_of(error)
        return None


def _other_file(
    path: str, other: str, found: list[Diagnostic], files: SourceFiles
) -> tuple[str, bytes] | None:
    """Return the file in the place of `tool.yml`, if it has the wrong ending; report a dead link."""
    if Path(path).is_symlink():
        found.append(make(path, (1, 1), "unreadable", "the manifest is a link that leads to nothing"))
        return None
    try:
        raw = read(other, files)
    except (FileNotFoundError, NotADirectoryError):
        return None
    message = (
        f"the manifest is called {OTHER_NAME}; other programs that read the format look for {FILE_NAME} only"
    )
    found.append(make(other, (1, 1), "file-name", message, hint=f"rename it to {FILE_NAME}"))
    return other, raw


def parse_tool(document: Document, folder_name: str | None = None) -> Tool:
    """Return the tool of a document. Raises ManifestError with every mistake in its form.

    `folder_name` is the name of the folder that holds the manifest; None when there is no folder.
    """
    _check_form(document, folder_name)
    return tool_of(document.data, document.path, document.raw)


def _check_form(document: Document, folder_name: str | None) -> None:
    data = document.data
    try:
        found = [] if fits(data) else misfits(document)
    except ConfigError as error:
        found = [document.diagnostic("exec-kind", error.message, ("kind",), hint=error.hint)]
    if isinstance(data, dict):
        found += _identity(document, data, folder_name)
    if found:
        raise failure(sorted(found, key=lambda finding: (finding.line, finding.column)))


def tool_of(data: dict[str, Any], path: str, raw: bytes) -> Tool:
    """Return the tool of data that fit the schema."""
    return _tool(data, Source("native", path, raw, hashlib.sha256(raw).hexdigest()))


def _identity(document: Document, data: dict[str, Any], folder: str | None) -> list[Diagnostic]:
    """Check what JSON Schema cannot: name and folder, kind and exec, a version that is a float."""
    name, kind, block, version = data.get("name"), data.get("kind"), data.get("exec"), data.get("version")
    found: list[Diagnostic] = []
    if isinstance(name, str) and name != folder:
        found += _bad_name(document, name, folder)
    only = next(iter(block)) if isinstance(block, dict) and len(block) == 1 else None
    if kind != only and kind in kind_names() and only in kind_names():
        message = f"`kind` is {quoted(kind)}, but `exec` has {quoted(only)}"
        found.append(
            document.diagnostic("exec-kind", message, ("kind",), hint=f"write `kind: {only}`, or fix `exec`")
        )
    if isinstance(version, float) and version.is_integer():
        message = f"`version` must be a whole number or text, not the number {version}"
        hint = "put it in quotes, as it is written"
        found.append(document.diagnostic("version", message, ("version",), hint=hint))
    return found


def _bad_name(document: Document, name: str, folder: str | None) -> Iterator[Diagnostic]:
    message = ""
    if unicodedata.normalize("NFC", name) != name:
        message = "`name` is not in Unicode normal form C: it looks like a different text"
    elif INKLESS.search(name) or any(unicodedata.category(char) in _UNSEEN for char in name):
        message = "`name` contains an invisible character"
    elif len(name) > 64 and len(name.encode()) > 255:  # A slug may have 64 characters, however long they are.
        message = "`name` is longer than 255 bytes, which no folder name may be"
    if message:
        yield document.diagnostic("name", message, ("name",), hint="type a short name of visible characters")
    if folder is not None:
        message = f"`name` is {quoted(name)}, but the folder is {quoted(printable(folder))}"
        hint = f"rename the folder to {quoted(name)}, or write `name: {printable(folder)}`"
        yield document.diagnostic("name-folder", message, ("name",), hint=hint)


def _tool(data: dict[str, Any], source: Source) -> Tool:
    kind = data["kind"]
    get = data.get
    inputs = get("inputs")
    outputs = get("outputs")
    retry = get("retry")
    return Tool(
        name=data["name"],
        description=data["description"],
        kind=kind,
        input_schema=inputs["schema"] if inputs else dict(_NO_INPUTS),
        config=KINDS[kind].configure(data["exec"][kind]),
        output=_output(outputs) if outputs else _default(Output),
        permissions=permissions_of(get("permissions")),
        approval=_made(ApprovalRule, get("approval")),
        retry=made_of(Retry, retry) if retry else None,
        limits=_made(Limits, get("limits")),
        annotations=_made(Annotations, get("annotations")),
        mcp=_made(McpForms, get("mcp")),
        tags=tuple(get("tags", ())),
        examples=tuple([made_of(Example, {"description": "", **one}) for one in get("examples", ())]),
        version=data["version"],
        source=source,
        auth=_auth(get("auth")) if "auth" in data else (),
        extensions=get("extensions") or {},
        files=tuple(get("files", ())),
        **{name: data[name] for name in PLAIN if name in data},
    )


@cache
def _default(kind: Any) -> Any:
    """Return the record for a missing block: all tools share it, because ten thousand take much memory."""
    return kind()


def _made(kind: Any, block: dict[str, Any] | None) -> Any:
    return made_of(kind, block) if block else _default(kind)


def _output(block: dict[str, Any]) -> Output:
    schema = block.get("schema")
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    return Output(block.get("format", "json"), schema, block.get("on_violation", "warn"))


def permissions_of(block: dict[str, Any] | None) -> Permissions:
    """Return the permissions of a block that fits the schema."""
    if not block:
        shared: Permissions = _default(Permissions)
        return shared
    get = block.get
    fs = get("fs") or {}
    secrets = get("secrets")
    network = get("network", False)
    return Permissions(
        Network.parse(network) if network else _default(Network),
        tuple(fs.get("read", ())),
        tuple(fs.get("write", ())),
        tuple([made_of(SecretSpec, {"name": name, **entry}) for name, entry in (secrets or {}).items()]),
        tuple(get("env", ())),
    )


_NESTED: dict[str, type] = {"hmac": Hmac, "oauth2": OAuth2}


def _auth(block: Any) -> tuple[Auth, ...]:
    return tuple([_auth_entry(entry) for entry in (block if isinstance(block, list) else [block])])


def _auth_entry(entry: dict[str, Any]) -> Auth:
    whole = {"location" if key == "in" else key: value for key, value in entry.items()}
    whole |= {key: made_of(kind, whole[key]) for key, kind in _NESTED.items() if whole.get(key) is not None}
    return made_of(Auth, whole)
