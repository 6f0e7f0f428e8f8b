"""Import a document: build a tool of each operation, and report the operations that are skipped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from toolcrib.errors import DefinitionError, ManifestError
from toolcrib.manifest.openapi.document import MAX_NAME, Node, OpenApiDocument, RefProblem, clean, unique
from toolcrib.manifest.openapi.operation import METHODS, Operation, ToolBuilder, checked
from toolcrib.manifest.openapi.parameters import Unusable
from toolcrib.manifest.openapi.schemas import references
from toolcrib.manifest.openapi.slim import Slimmer
from toolcrib.schema import SchemaCheck
from toolcrib.spec import Tool
from toolcrib.spec.record import camel

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,32}")
_OTHER_METHODS = ("trace", "query")


def import_document(
    document: OpenApiDocument,
    *,
    server: str | None = None,
    prefix: str = "",
    only: Sequence[str] = (),
    slim: int | None = None,
    secrets: Mapping[str, str] | None = None,
    bind: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Imported:
    """Return the tools of a document, with a report on each operation.

    `server` (a URL) replaces the servers of the document. `prefix` begins every name. `only` (patterns such
    as `get_*`) selects tools by name. `slim` is the maximum size of a schema in bytes of JSON. `secrets` maps
    security schemes to secrets, `bind` parameters and fields of bodies, which are then no arguments.
    `progress` gets the number of operations so far. Raises ManifestError for a bad argument.
    """
    if server is not None:
        try:
            checked(server)
        except Unusable as reason:
            raise ManifestError(str(reason)) from None
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ManifestError(
            f"{prefix!r} cannot begin a tool name", hint="Use 1 to 32 letters, digits, `_` and `-`."
        )
    info = document.root.at("info")
    title = clean(info.at("title").value) or document.root.resource.uri.rsplit("/", 1)[-1]
    out = Imported(document.root.resource.uri, title, document.version)
    builder = ToolBuilder(document, out.losses, server=server, secrets=secrets, bind=bind)
    slimmer = None if slim is None else Slimmer(slim)
    taken: set[str] = set()
    for operation, made in _operations(document):
        name = _name(operation, made, prefix, taken)
        if only and not any(fnmatchcase(name, pattern) for pattern in only):
            continue
        taken.add(name)
        out.operations.append(made)
        progress(len(out.operations))
        if made.reason or operation is None:
            continue
        tool = _build(builder, operation, name, made)
        if tool is not None and slimmer is not None:
            tool, lost = slimmer.slim(tool)
            made.notes += lost
        if tool is not None:
            made.tool = tool.name
            out.tools.append(tool)
    for argument, name in (bind or {}).items():
        if out.tools and name not in builder.bound:
            raise ManifestError(f"no operation has a parameter or a field {argument!r} to bind")
    # After the last tool, because definitions are only translated when a tool needs them.
    builder.requests.check()
    builder.responses.check()
    _check_schemas(out)
    hooks = sum(1 for _ in document.root.at("webhooks").entries())
    if hooks:
        out.notes.append(f"{hooks} webhooks are skipped: they cannot be called")
    return out


def _operations(document: OpenApiDocument) -> Iterator[tuple[Operation | None, OperationReport]]:
    """Yield every operation in the order of the document; an unreadable one as None, with the reason."""
    for path, entry in document.root.at("paths").entries():
        if path.startswith("x-"):
            continue
        try:
            item = document.follow(entry)
        except RefProblem as problem:
            yield None, OperationReport("*", path, reason=f"the path cannot be read: {problem}")
            continue
        if not isinstance(item.value, dict):
            yield None, OperationReport("*", path, reason="the path is not an object")
            continue
        # OpenAPI leaves open what counts if both the path and the target of its `$ref` have a field. Here it
        # is the path's own.
        if "$ref" in entry.object and len(entry.object) > 1:
            item = Node({**item.object, **entry.object}, item.resource, item.pointer)
        for method in item.object:
            lower = method.lower()
            if lower in METHODS or lower in _OTHER_METHODS:
                yield _operation(document, lower, path, item, item.at(method))
        # Methods without a field of their own (OpenAPI 3.2, Path Item Object).
        for method, node in item.at("additionalOperations").entries():
            yield _operation(document, method.lower(), path, item, node)


def _operation(
    document: OpenApiDocument, method: str, path: str, item: Node, node: Node
) -> tuple[Operation | None, OperationReport]:
    made = OperationReport(method.upper(), path)
    try:
        # The operations of a document in many files are references, each to a file of its own.
        node = document.follow(node)
    except RefProblem as problem:
        made.reason = f"the operation cannot be read: {problem}"
        return None, made
    made.operation_id = clean(node.object.get("operationId"))
    if not isinstance(node.value, dict):
        made.reason = "the operation is not an object"
        return None, made
    if method not in METHODS:
        made.reason = f"HTTP tools do not support the method {method.upper()}"
        return None, made
    return Operation(method, path, item, node), made


def _name(operation: Operation | None, made: OperationReport, prefix: str, taken: set[str]) -> str:
    wished = made.operation_id or f"{made.method.lower()}_{made.path.strip('/').replace('/{', '_')}"
    if operation is None and made.method == "*":
        wished = f"path_{made.path}"
    return unique(tool_name(wished, prefix), taken)


def _build(builder: ToolBuilder, operation: Operation, name: str, made: OperationReport) -> Tool | None:
    try:
        return builder.make(operation, name, made.notes)
    except (Unusable, RefProblem) as reason:
        made.reason = str(reason)
    except ManifestError as error:
        made.reason = error.message
    except RecursionError:
        made.reason = "its schema is nested too deeply"
    return None


def _check_schemas(out: Imported) -> None:
    """Check the schemas of all tools against the meta schema."""
    made = {one.tool: one for one in out.operations if one.tool}
    for tool in list(out.tools):
        try:
            for schema in filter(None, (tool.input_schema, tool.output.schema)):
                # The definitions are checked already. Only the names that are referred to are needed, so that
                # references lead somewhere.
                outer = {word: part for word, part in schema.items() if word != "$defs"}
                SchemaCheck({**outer, "$defs": dict.fromkeys(references(outer), True)})
        except DefinitionError as error:
            made[tool.name].tool, made[tool.name].reason = None, f"its schema is {error.message}"
            out.tools.remove(tool)


@dataclass(slots=True)
class OperationReport:
    """The result of importing one operation."""

    method: str
    path: str
    operation_id: str = ""
    tool: str | None = None
    """The name of its tool; None if it is skipped."""
    reason: str = ""
    """The reason that it is skipped."""
    notes: list[str] = field(default_factory=list)
    """The parts of the operation that the tool does not have."""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form without empty fields."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return camel({name: value for name, value in found.items() if value})


@dataclass(slots=True)
class Imported:
    """The tools of a document, and the report of the import."""

    source: str
    title: str
    version: str
    """The version of OpenAPI: `2.0`, `3.0`, `3.1`, `3.2`."""
    tools: list[Tool] = field(default_factory=list)
    operations: list[OperationReport] = field(default_factory=list)
    """Every operation that `only` selects, in the order of the document."""
    losses: dict[str, str] = field(default_factory=dict)
    """The parts of schemas that were dropped, by their position in the document."""
    notes: list[str] = field(default_factory=list)
    """Notes on the whole document."""

    @property
    def skipped(self) -> list[OperationReport]:
        """The operations without a tool."""
        return [made for made in self.operations if made.tool is None]

    def reasons(self) -> dict[str, int]:
        """Return the number of skipped operations by reason, the most frequent first."""
        return dict(Counter(made.reason for made in self.skipped).most_common())

    def as_json(self) -> dict[str, Any]:
        """Return the report in JSON form."""
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
    """Return a name of 1 to 64 letters, digits, `_` and `-`, which every client accepts."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", wished).strip("_-") or "operation"
    return (prefix + plain)[:MAX_NAME]
