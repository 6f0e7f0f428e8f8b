"""Read Vega's YAML definitions (http, exec, file_read, file_write, builtin): one a file, or those of a team.

A definition has no permissions block. So a tool only gets the host of its URL and the secrets that it names
as `${NAME}`; programs and files get the permissions granted to their source.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.base import Entry, host_of, milliseconds, secrets_in
from toolcrib.manifest.dialects.vega.conditions import Folded, Unfolded, fold, unfold
from toolcrib.manifest.dialects.vega.form import form_faults, parameter_schema, params_of
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, failure
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document, decode, load, value_at
from toolcrib.spec import (
    BuiltinExec,
    Choice,
    CommandExec,
    ExecConfig,
    FileExec,
    HttpExec,
    Limits,
    Network,
    Output,
    Permissions,
    Retry,
    SecretSpec,
    Source,
    Spelling,
    Tool,
)
from toolcrib.template import Namespaces, TemplateProblem, problems

_GRANTED = Permissions(read=(".",))
_KINDS = {
    "http": "http",
    "exec": "command",
    "file_read": "file",
    "file_write": "file",
    "builtin": "builtin",
}


class VegaDocument(Document):
    """A Vega file in the form of a native manifest, for the same checks; positions are those of the file."""

    __slots__ = ("_folded", "_named", "_params", "_unfolded", "_yaml")

    def __init__(self, yaml: Document, unfolded: Unfolded, folded: Folded, raw: bytes, text: str) -> None:
        super().__init__(yaml.path, raw, text, folded.data)
        self._yaml = yaml
        self._unfolded = unfolded
        self._folded = folded
        self._params: list[str] = []
        self._named: list[str] = []
        params = self.data.get("params") if isinstance(self.data, dict) else None
        if isinstance(params, dict) and all(isinstance(one, dict) for one in params.values()):
            self._named = list(params)
            self.data["params"] = [{"name": name, **one} for name, one in params.items()]

    def native(self, data: dict[str, Any], params: list[str]) -> VegaDocument:
        """Set the data of a native manifest; `params` are the parameters in their order."""
        self.data = data
        self._params = params
        return self

    def locate(self, path: KeyPath, key: bool = False) -> tuple[int, int]:
        return self._unfolded.place(self._yaml.locate(self._place(path), key))

    def locate_text(self, path: KeyPath, literal: str, number: int = 0) -> tuple[int, int]:
        return self._unfolded.place(self._yaml.locate_text(self._place(path), literal, number))

    def value_at(self, path: KeyPath) -> Any:
        return value_at(self._yaml.data, self._place(path))

    def source_path(self, path: KeyPath) -> KeyPath:
        head, rest = path[:1], path[2:]
        if head == ("exec",):
            names = {"entrypoint": "command", "shell": "command", "action": "type"}
            return ("implementation", *(names.get(str(step), step) for step in rest[:1]), *rest[1:])
        if path[:3] == ("inputs", "schema", "properties") and len(path) > 3:
            at = self._params.index(str(path[3])) if path[3] in self._params else 0
            return ("params", at, *path[4:])
        if head == ("inputs",):
            return ("params",)
        if head == ("retry",):
            return ("implementation", "retry", "attempts")
        return ("implementation",) if head in (("permissions",), ("kind",), ("auth",)) else path

    def _place(self, path: KeyPath) -> KeyPath:
        """Return the position in the unfolded text for a position in the data."""
        written = self.source_path(path)
        # A mapping of parameters became a list; in the file its positions are names.
        if self._named and written[:1] == ("params",) and len(written) > 1:
            written = ("params", self._named[int(written[1])], *written[2:])
        for length in range(len(written), 0, -1):
            place = self._folded.places.get(written[:length])
            if place is not None:
                return (*place, *written[length:])
        return written


def entries(document: Document) -> list[Entry]:
    """Return the one tool of a file, which is granted the project's folder for reading."""
    assert isinstance(document, VegaDocument)
    found = sorted(form_faults(document), key=lambda finding: (finding.line, finding.column))
    if found:
        return [Entry(None, document, tuple(found))]
    digest = hashlib.sha256(document.raw).hexdigest()
    tool = _tool(document, Source("vega", document.path, document.raw, digest, shared=True))
    return [Entry(tool, _as_manifest(document, tool))]


def _as_manifest(document: VegaDocument, tool: Tool) -> VegaDocument:
    """Give the document the data that the checks of native manifests look at."""
    params = [str(param["name"]) for param in params_of(document.data)]
    implementation = document.data["implementation"]
    block = {key: value for key, value in implementation.items() if key not in ("type", "timeout", "retry")}
    if isinstance(tool.config, CommandExec):
        block["shell"] = block.pop("command")
        block["entrypoint"] = tool.config.entrypoint
    return document.native({"exec": {tool.kind: block}, "permissions": {}}, params)


def load_vega(raw: bytes, path: str) -> VegaDocument:
    """Return the data of a file with its conditions. Raises ManifestError with every fault of the text."""
    text = decode(raw, path)
    unfolded = unfold(text, path)
    if unfolded.found:
        raise failure(unfolded.found)
    try:
        yaml = load(unfolded.text.encode(), path)
    except ManifestError as error:
        wrong = diagnostics_of(error)
        raise failure([one.moved(unfolded.place((one.line, one.column)), text) for one in wrong]) from None
    folded = fold(yaml.data, unfolded.tags)
    document = VegaDocument(yaml, unfolded, folded, raw, text)
    found = [
        document.diagnostic("condition", message, at=unfolded.place(yaml.locate(place)))
        for place, message in folded.found
    ]
    for number, tag in enumerate(unfolded.tags):
        if number not in folded.seen:
            message = "this control line is inside a text or a flow value, where it has no effect"
            found.append(document.diagnostic("condition", message, at=(tag.line, tag.column)))
    if not found and isinstance(folded.data, dict):
        found += _bad_tests(document, unfolded, folded.data)
    if found:
        raise failure(found)
    return document


def _bad_tests(document: VegaDocument, unfolded: Unfolded, data: dict[str, Any]) -> Iterator[Diagnostic]:
    params: list[Any] = list(params_of(data))
    known = (str(param.get("name")) for param in params if isinstance(param, dict))
    names = Namespaces(frozenset(known), spelling=Spelling.DOUBLE_BRACE)
    for tag in unfolded.tags:
        if tag.test is None:
            continue
        wrong: list[TemplateProblem] = problems(Choice(((tag.test, ""),)), names)
        for problem in wrong[:1]:
            at = (tag.line, tag.column)
            yield document.diagnostic("placeholder", problem.message, hint=problem.hint, at=at)


def _tool(document: VegaDocument, source: Source) -> Tool:
    data = document.data
    implementation = data["implementation"]
    kind = implementation["type"]
    schema = parameter_schema(params_of(data))
    named = secrets_in(implementation, schema["properties"], Spelling.DOUBLE_BRACE)
    secrets = tuple(SecretSpec(name, required=required) for name, required in named.items())
    timeout = milliseconds(implementation.get("timeout")) or None
    config = _config(kind, implementation, timeout)
    return Tool(
        name=unicodedata.normalize("NFC", data["name"]),
        description=data["description"],
        kind=_KINDS[kind],
        input_schema=schema,
        config=config,
        output=Output("json" if kind in ("http", "builtin", "file_write") else "text"),
        permissions=_permissions(config, secrets),
        retry=_retry(implementation.get("retry")),
        limits=Limits(timeout_ms=timeout if kind in ("file_read", "file_write", "builtin") else None),
        source=source,
    )


def _config(kind: str, block: dict[str, Any], timeout: int | None) -> ExecConfig:
    get = block.get
    if kind == "http":
        method, url = str(get("method", "GET")).upper(), block["url"]
        headers, query = get("headers") or {}, get("query") or {}
        return HttpExec(method, url, headers, query, get("body"), timeout_ms=timeout)
    if kind == "exec":
        return CommandExec(
            "/bin/sh",
            env=get("env") or {},
            stdout_format="text",
            timeout_ms=timeout,
            shell=block["command"],
            allow_dash=tuple(get("allow_dash", ())),
            allow_code=get("allow_code", False),
        )
    if kind == "builtin":
        return BuiltinExec(block["function"])
    encoding = get("encoding", "utf-8")
    if kind == "file_read":
        return FileExec("read", block["path"], encoding=encoding)
    mode = get("mode", "0644")
    number = mode if isinstance(mode, int) else int(mode.lower().replace("o", ""), 8)
    return FileExec(
        "write", block["path"], block["content"], encoding=encoding, mode=number, mkdir=get("mkdir", False)
    )


def _permissions(config: ExecConfig, secrets: tuple[SecretSpec, ...]) -> Permissions:
    if isinstance(config, HttpExec):
        host = host_of(config.url)
        return Permissions(Network("hosts", (host,)) if host else Network(), secrets=secrets)
    if isinstance(config, CommandExec | FileExec):
        return replace(_GRANTED, secrets=secrets)
    return Permissions(secrets=secrets)


def _retry(block: Any) -> Retry | None:
    if block is None:
        return None
    return Retry(block.get("attempts", 1), 0.0, milliseconds(block.get("backoff")) or None)


def load_team(raw: bytes, path: str) -> Document:
    """Return a team file; its `text` has the control lines as keys, each at its line.

    Raises ManifestError if it cannot be read.
    """
    text = unfold(decode(raw, path), path).text
    return Document(path, raw, text, load(text.encode(), path).data)


def team_entries(document: Document) -> list[Entry]:
    """Return the tools that a team file defines itself, in its map `tools:`, usable or not."""
    tools = document.data.get("tools") if isinstance(document.data, dict) else None
    if not isinstance(tools, dict):
        return [_unused(document, (), "`tools` is not a map of definitions")]
    return [_entry(document, name, value) for name, value in tools.items()]


def _entry(document: Document, name: str, value: Any) -> Entry:
    """Return a tool of a team file: the lines of its block are read as a file of their own.

    They keep their line numbers, so control lines, checks and positions work as in such a file.
    """
    first, _ = document.locate(("tools", name), key=True)
    if name == "include" and isinstance(value, list):
        hint = "name these files under `sources` in config.yml"
        return _unused(document, ("tools", name), "`include` is not followed", hint)
    if not isinstance(value, dict) or document.locate(("tools", name))[0] == first:
        hint = "write its keys below its name, one a line"
        return _unused(document, ("tools", name), "a tool is a mapping in lines of its own", hint)
    lines = decode(document.raw, document.path).splitlines(keepends=True)
    block = "\n" * first + "".join(lines[first : _end(document, first) - 1])
    try:
        read = load_vega(block.encode(), document.path)
    except ManifestError as error:
        return Entry(None, document, diagnostics_of(error))
    read.data.setdefault("name", name)
    (entry,) = entries(read)
    if entry.tool is None or entry.tool.source is None:
        return entry
    whole = document.raw
    return replace(entry, tool=replace(entry.tool, source=replace(entry.tool.source, raw=whole)))


def _end(document: Document, line: int) -> int:
    """Return the first line after `line` that begins another tool or section, or the one after the last."""
    keys = [(key,) for key in document.data] + [("tools", key) for key in document.data["tools"]]
    begins = [document.locate(key, key=True)[0] for key in keys]
    return min((one for one in begins if one > line), default=document.text.count("\n") + 2)


def _unused(document: Document, place: tuple[str, ...], message: str, hint: str | None = None) -> Entry:
    return Entry(None, document, (document.diagnostic("dialect", message, place, key=True, hint=hint),))
