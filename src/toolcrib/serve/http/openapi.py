"""The OpenAPI 3.1 description of routes, from the types that check their requests."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import Any

import msgspec

from toolcrib.errors import (
    DeniedError,
    InvalidError,
    InvalidToken,
    PreconditionFailed,
    SlowRequest,
    StateUnavailable,
    TooLarge,
    ToolcribError,
    UnsupportedMediaType,
)
from toolcrib.serve.http.problems import ErrorAnswer
from toolcrib.serve.http.reading import JSON
from toolcrib.serve.http.route import Route

_REF = "#/components/schemas/{name}"
_REQUEST_ID = {"schema": {"type": "string"}, "description": "The id of this request in the server's log."}
_ETAG = {"schema": {"type": "string"}, "description": "The version of this record, for `If-Match`."}
_STATUS = {
    200: "It worked.",
    201: "It is created.",
    202: "It is accepted, and not finished yet.",
    204: "It is done.",
    206: "A part of it.",
    303: "Look there.",
    304: "It is as the client has it already.",
    416: "It has no such part.",
}


def describe(
    routes: Sequence[Route], path_types: Mapping[str, Any], version: str, prefix: str
) -> dict[str, Any]:
    """Return the description of an application that is mounted at `prefix`.

    `path_types` maps the parameters of paths to their types.
    """
    types = _RouteTypes(routes, path_types)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        links = _links(route, routes) if route.method == "PUT" else {}
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, types, links)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Toolcrib", "version": version},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": types.components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`toolcrib token create`"}
            },
        },
    }


def errors_of(route: Route) -> list[type[ToolcribError]]:
    """Return every error that a route can answer, by status."""
    found: set[type[ToolcribError]] = {DeniedError, *route.errors}
    if route.scope is not None:
        found |= {InvalidToken, StateUnavailable}
    if route.query is not None or route.body is not None or route.raw:
        found.add(InvalidError)
    if route.body is not None or route.raw:
        found |= {SlowRequest, TooLarge, UnsupportedMediaType}
    return sorted(found, key=lambda kind: (kind.status, kind.code))


class _RouteTypes:
    """The JSON Schemas of all types that the routes name."""

    def __init__(self, routes: Sequence[Route], path_types: Mapping[str, Any]) -> None:
        named = [ErrorAnswer, *path_types.values()]
        for route in routes:
            named += [route.query, route.body, *route.answers.values()]
        listed: dict[int, Any] = {
            id(one): one for one in named if one is not None and not isinstance(one, str)
        }
        schemas, self.components = msgspec.json.schema_components(list(listed.values()), ref_template=_REF)
        self._schemas = dict(zip(listed, schemas, strict=True))
        for struct in set(_structs(msgspec.inspect.multi_type_info(list(listed.values())))):
            self._explain(struct)
        self.path_types = path_types
        # A query is not a record of its own: its fields are the parameters of an operation.
        queries = {route.query.__name__ for route in routes if route.query is not None}
        self._queries = {name: self.components.pop(name) for name in queries}

    def _explain(self, struct: type[msgspec.Struct]) -> None:
        """Add the docstrings of a struct's fields to its schema."""
        properties = self.components.get(struct.__name__, {}).get("properties", {})
        names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
        for name, text in _field_docs(struct):
            properties.get(names.get(name), {}).setdefault("description", text)

    def schema(self, form: Any) -> dict[str, Any]:
        """Return the schema of a type, or a reference to it."""
        return self._schemas[id(form)]

    def query(self, form: Any) -> dict[str, Any]:
        """Return the schema of a query's struct in full."""
        found: dict[str, Any] = self._queries[form.__name__]
        return found


def _links(made: Route, routes: Iterable[Route]) -> dict[str, Any]:
    """Return the links from what a PUT has made to the operations on it."""
    return {
        route.handler.__name__: {
            "operationId": route.handler.__name__,
            "parameters": {name: f"$request.path.{name}" for name in made.parameters},
        }
        for route in routes
        if route is not made and set(made.parameters) <= set(route.parameters)
    }


def _operation(route: Route, types: _RouteTypes, links: dict[str, Any]) -> dict[str, Any]:
    summary, _, rest = inspect.cleandoc(route.handler.__doc__ or "").partition("\n\n")
    found: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "tags": [route.handler.__module__.rpartition(".")[2]],
        "summary": summary,
        "parameters": list(_parameters(route, types)),
        "responses": _responses(route, types, links),
        "security": [] if route.scope is None else [{"token": []}],
    }
    if rest:
        found["description"] = rest
    if route.scope is not None:
        found["x-scope"] = route.scope
    bodies = {} if route.body is None else {JSON: {"schema": types.schema(route.body)}}
    bodies |= {kind: {"schema": {"type": "string", "description": text}} for kind, text in route.raw.items()}
    if bodies:
        found["requestBody"] = {"required": True, "content": bodies}
    return found


def _parameters(route: Route, types: _RouteTypes) -> Iterator[dict[str, Any]]:
    for name in route.parameters:
        yield {"name": name, "in": "path", "required": True, "schema": types.schema(types.path_types[name])}
    if route.query is not None:
        schema = types.query(route.query)
        for name, rule in schema["properties"].items():
            found = {"name": name, "in": "query", "required": name in schema["required"], "schema": rule}
            if rule.get("type") == "integer":
                # `read_query` takes integers of 64 bits only.
                rule.update({"minimum": -(2**63), "maximum": 2**63 - 1} | rule)
            elif rule.get("type") == "array":  # `tags=` could be no tag or an empty one, so it is refused.
                rule["minItems"] = 1
                found |= {"style": "form", "explode": False}
            yield found
    headers = {"If-Match": PreconditionFailed in route.errors, "If-None-Match": 304 in route.answers}
    for name, used in headers.items():
        if used:
            yield {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}


def _responses(route: Route, types: _RouteTypes, links: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, form in route.answers.items():
        headers = {"X-Request-Id": _REQUEST_ID}
        if 304 in route.answers or PreconditionFailed in route.errors:
            headers["ETag"] = _ETAG
        found[str(status)] = {"description": _STATUS[status], "headers": headers}
        if links:
            found[str(status)]["links"] = links
        if isinstance(form, str):
            found[str(status)]["content"] = {form: {}}
        elif form is not None:
            found[str(status)]["content"] = {JSON: {"schema": types.schema(form)}}
    for status, kinds in groupby(errors_of(route), lambda kind: kind.status):
        text = " ".join(f"`{kind.code}`: {_first_sentence(kind)}" for kind in kinds)
        found[str(status)] = {
            "description": text,
            "headers": {"X-Request-Id": _REQUEST_ID},
            "content": {JSON: {"schema": types.schema(ErrorAnswer)}},
        }
    return found


def _first_sentence(kind: type[ToolcribError]) -> str:
    return re.sub(r"\s+", " ", inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0])


def _structs(info: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield every struct in a description of types."""
    if isinstance(info, tuple | list):
        for one in info:
            yield from _structs(one)
    elif isinstance(info, msgspec.inspect.StructType):
        yield info.cls
        yield from _structs([field.type for field in info.fields])
    elif isinstance(info, msgspec.inspect.Type):
        yield from _structs([getattr(info, name) for name in info.__struct_fields__])


def _field_docs(struct: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class that have a docstring, in the class and those above it."""
    for kind in struct.__mro__:
        if kind.__module__.startswith("toolcrib."):
            for field, doc in pairwise(_classes(kind.__module__)[kind.__name__].body):
                if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                    yield ast.unparse(field.target), " ".join(str(ast.literal_eval(doc.value)).split())


@cache
def _classes(module: str) -> Mapping[str, ast.ClassDef]:
    """Return the classes of a module by name. `inspect.getsource` would parse the module for each of them."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
