"""A whole document to tools: every operation is tried, and a bad one never takes another with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from toolcrib.errors import DefinitionError, ManifestError
from toolcrib.manifest.openapi.document import MAX_NAME, Document, Node, RefProblem, clean, unique
from toolcrib.manifest.openapi.operation import METHODS, Operation, Workshop, checked
from toolcrib.manifest.openapi.parameters import Unusable
from toolcrib.manifest.openapi.slim import Slimmer
from toolcrib.spec import Tool

__all__ = [
    "Imported",
    "Made",
    "import_document",
    "tool_name",
]

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,32}")
_OTHER_METHODS = ("trace", "query")


def import_document(
    document: Document,
    *,
    server: str | None = None,
    prefix: str = "",
    only: Sequence[str] = (),
    slim: int | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Imported:
    """The tools of a document, and what became of each operation.

    `server` (a URL) takes the place of the document's servers, `prefix` stands before every name, `only`
    (patterns such as `get_*`) chooses by name, `slim` is how many bytes of JSON the schemas of one tool may
    have, `secrets` gives secrets other names, by security scheme. Raises ManifestError for a bad `server` or
    `prefix`.
    """
    if server is not None:
        try:
            checked(server)
        except Unusable as reason:
            raise ManifestError(str(reason)) from None
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ManifestError(
            f"{prefix!r} cannot begin a name", hint="1 to 32 letters, digits, `_` and `-` can"
        )
    info = document.root.at("info")
    title = clean(info.at("title").value) or document.root.resource.uri.rsplit("/", 1)[-1]
    out = Imported(document.root.resource.uri, title, document.version)
    workshop = Workshop(document, out.losses, server=server, secrets=secrets)
    slimmer = None if slim is None else Slimmer(slim)
    taken: set[str] = set()
    for operation, made in _operations(document):
        name = _name(operation, made, prefix, taken)
        if only and not any(fnmatchcase(name, pattern) for pattern in only):
            continue
        taken.add(name)
        out.operations.append(made)
        if made.reason or operation is None:
            continue
        tool = _try(workshop, operation, name, made)
        if tool is not None and slimmer is not None:
            tool, lost = slimmer.slim(tool)
            made.notes += lost
        if tool is not None:
            made.tool = tool.name
            out.tools.append(tool)
    workshop.requests.check()
    workshop.responses.check()
    _hold(out)
    hooks = sum(1 for _ in document.root.at("webhooks").entries())
    if hooks:
        out.notes.append(f"{hooks} webhooks are no operations that can be called")
    return out


def _operations(document: Document) -> Iterator[tuple[Operation | None, Made]]:
    """Every operation in the order of the document; one that cannot be read has its reason."""
    for path, entry in document.root.at("paths").entries():
        if path.startswith("x-"):
            continue
        try:
            item = document.follow(entry)
        except RefProblem as problem:
            yield None, Made("*", path, reason=f"the path cannot be read: {problem}")
            continue
        if not isinstance(item.value, dict):
            yield None, Made("*", path, reason="the path is no object")
            continue
        if "$ref" in entry.object and len(entry.object) > 1:
            item = Node({**item.object, **entry.object}, item.resource, item.pointer)
        for method in item.object:
            lower = method.lower()
            if lower in METHODS or lower in _OTHER_METHODS:
                yield _operation(lower, path, item, item.at(method))
        for method, node in item.at("additionalOperations").entries():
            yield _operation(method.lower(), path, item, node)


def _operation(method: str, path: str, item: Node, node: Node) -> tuple[Operation | None, Made]:
    wished = clean(node.object.get("operationId"))
    made = Made(method.upper(), path, wished)
    if not isinstance(node.value, dict):
        made.reason = "the operation is no object"
        return None, made
    if method not in METHODS:
        made.reason = f"HTTP tools have no method {method.upper()}"
        return None, made
    return Operation(method, path, item, node), made


def _name(operation: Operation | None, made: Made, prefix: str, taken: set[str]) -> str:
    wished = made.operation_id or f"{made.method.lower()}_{made.path.strip('/').replace('/{', '_')}"
    if operation is None and made.method == "*":
        wished = f"path_{made.path}"
    return unique(tool_name(wished, prefix), taken)


def _try(workshop: Workshop, operation: Operation, name: str, made: Made) -> Tool | None:
    try:
        return workshop.make(operation, name, made.notes)
    except (Unusable, RefProblem) as reason:
        made.reason = str(reason)
    except ManifestError as error:
        made.reason = error.message
    except RecursionError:
        made.reason = "it is nested too deeply"
    return None


def _hold(out: Imported) -> None:
    """Hold each tool's own schemas to the meta schema, all in one go; only where that fails one by one."""
    from toolcrib.schema import SchemaCheck

    def outer(tool: Tool) -> list[object]:
        schemas = [tool.input_schema, *([tool.output.schema] if tool.output.schema else [])]
        return [{key: item for key, item in schema.items() if key != "$defs"} for schema in schemas]

    def defs(tools: list[Tool]) -> dict[str, bool]:
        schemas = [schema for tool in tools for schema in (tool.input_schema, tool.output.schema) if schema]
        return {name: True for schema in schemas for name in schema.get("$defs", ())}

    def fault(tools: list[Tool]) -> str | None:
        try:
            SchemaCheck(
                {"$defs": defs(tools), "allOf": [one for tool in tools for one in outer(tool)] or [{}]}
            )
        except DefinitionError as error:
            return error.message
        return None

    if fault(out.tools) is None:
        return
    made = {one.tool: one for one in out.operations if one.tool}
    for tool in list(out.tools):
        told = fault([tool])
        if told is not None:
            made[tool.name].tool, made[tool.name].reason = None, f"its schema is {told}"
            out.tools.remove(tool)


@dataclass(slots=True)
class Made:
    """What became of one operation."""

    method: str
    path: str
    operation_id: str = ""
    tool: str | None = None
    """The name of its tool; None when it is skipped."""
    reason: str = ""
    """Why it is skipped."""
    notes: list[str] = field(default_factory=list)
    """What the tool does not have that the document says."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`; what is empty is left out."""
        said: dict[str, Any] = {"method": self.method, "path": self.path}
        for key in ("operation_id", "tool", "reason", "notes"):
            if getattr(self, key):
                said[key] = getattr(self, key)
        return said


@dataclass(slots=True)
class Imported:
    """The tools of a document, and the report."""

    source: str
    title: str
    version: str
    """Of OpenAPI: `2.0`, `3.0`, `3.1`, `3.2`."""
    tools: list[Tool] = field(default_factory=list)
    operations: list[Made] = field(default_factory=list)
    """Every operation of the document that `only` lets through, in its order."""
    losses: dict[str, str] = field(default_factory=dict)
    """What schemas lost, by the place in the document."""
    notes: list[str] = field(default_factory=list)
    """What holds for the whole document."""

    @property
    def skipped(self) -> list[Made]:
        """The operations without a tool."""
        return [made for made in self.operations if made.tool is None]

    def reasons(self) -> dict[str, int]:
        """Why operations were skipped, and how many for each reason; the most frequent first."""
        counted: dict[str, int] = {}
        for made in self.skipped:
            counted[made.reason] = counted.get(made.reason, 0) + 1
        return dict(sorted(counted.items(), key=lambda item: -item[1]))

    def as_json(self) -> dict[str, Any]:
        """The report as one JSON document."""
        return {
            "source": self.source,
            "title": self.title,
            "openapi": self.version,
            "operations": [made.as_json() for made in self.operations],
            "tools": len(self.tools),
            "skipped": len(self.skipped),
            "reasons": self.reasons(),
            "losses": [{"at": at, "lost": what} for at, what in self.losses.items()],
            "notes": self.notes,
        }


def tool_name(wished: str, prefix: str = "") -> str:
    """1 to 64 letters, digits, `_` and `-`, as every client takes them."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", wished).strip("_-") or "operation"
    return (prefix + plain)[:MAX_NAME]
