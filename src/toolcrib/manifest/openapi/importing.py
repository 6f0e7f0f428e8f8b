"""A whole document to tools: every operation is tried, and a bad one never takes another with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from toolcrib.errors import DefinitionError, ManifestError
from toolcrib.manifest.openapi.document import Document, Node, RefProblem
from toolcrib.manifest.openapi.operation import METHODS, Operation, Workshop
from toolcrib.manifest.openapi.report import Imported, Made
from toolcrib.manifest.openapi.request import Unusable
from toolcrib.manifest.openapi.servers import checked
from toolcrib.manifest.openapi.slim import slimmed
from toolcrib.manifest.openapi.text import clean, tool_name, unique
from toolcrib.spec import Tool

__all__ = ["import_document"]

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
    if prefix and tool_name("x", prefix) != f"{prefix}x":
        raise ManifestError(f"{prefix!r} cannot begin a name", hint="letters, digits, `_` and `-` can")
    info = document.root.at("info")
    title = clean(info.at("title").value) or document.root.resource.uri.rsplit("/", 1)[-1]
    out = Imported(document.root.resource.uri, title, document.version)
    workshop = Workshop(document, out.losses, server=server, secrets=secrets)
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
        if tool is not None and slim is not None:
            tool, lost = slimmed(tool, slim)
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
    wished = made.operation_id or f"{made.method.lower()}_{made.path}"
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
