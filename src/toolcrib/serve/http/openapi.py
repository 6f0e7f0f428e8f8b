"""The OpenAPI 3.1 description of routes, from the types that check their requests."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby, pairwise
from typing import Any

import msgspec

from toolcrib.errors import (
    DeniedError,
    IdempotencyConflict,
    InvalidInput,
    InvalidToken,
    PreconditionFailed,
    RateLimited,
    SlowRequest,
    StateUnavailable,
    TooLarge,
    ToolcribError,
    UnsupportedMediaType,
)
from toolcrib.serve.http.examples import example_of
from toolcrib.serve.http.problems import ErrorAnswer
from toolcrib.serve.http.reading import JSON
from toolcrib.serve.http.route import EventStream, Route

_REF = "#/components/schemas/{name}"
_REQUEST_ID = {"schema": {"type": "string"}, "description": "The id of this request in the server's log."}
_ETAG = {"schema": {"type": "string"}, "description": "The version of this record, for `If-Match`."}
_LOCATION = {
    "schema": {"type": "string", "format": "uri-reference"},
    "description": "The address to follow it at.",
}
_RETRY_AFTER = {
    "schema": {"type": "integer", "minimum": 1},
    "description": "Seconds after which the same request may succeed.",
}
EVENT_STREAM = "text/event-stream"
_EVENT = {
    "description": "One of the server-sent events (WHATWG HTML, 9.2).",
    "type": "object",
    "required": ["event", "data"],
}
_BYTES = {"schema": {"type": "string", "format": "binary"}, "example": "(bytes)"}
_TAG = {"type": "string", "examples": ['"0123456789abcdef0123456789abcdef"']}
HEADERS: Mapping[str, dict[str, Any]] = {
    "If-Match": _TAG | {"description": "An ETag: without this version there the answer is 412."},
    "If-None-Match": _TAG
    | {"description": "An ETag: with this version there the answer is 304, of a PUT 412."},
    "Idempotency-Key": {
        "type": "string",
        "pattern": "^[ -~]{1,255}$",
        "description": "A new one for each request. One that is sent again gets the first answer.",
        "examples": ["6f1c1c0e-8f0a-4a52-9d0c-3c1d2c8f7a11"],
    },
    "Prefer": {
        "type": "string",
        "description": "`wait=SECONDS` to wait for a result, `respond-async` not to wait (RFC 7240).",
        "examples": ["wait=10"],
    },
    "Last-Event-ID": {
        "type": "string",
        "description": "The id of the event that the client got last: the stream begins behind it.",
        "examples": ["1"],
    },
    "traceparent": {
        "type": "string",
        "description": "The caller's trace (W3C Trace Context).",
        "examples": ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
    },
}
"""The request headers that routes name, with their schemas."""
_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "Made by `toolcrib token create`, or by `POST /session` with a code.",
    },
}
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
            "securitySchemes": _SCHEMES,
        },
    }


def errors_of(route: Route) -> list[type[ToolcribError]]:
    """Return every error that a route can answer, by status."""
    found: set[type[ToolcribError]] = {DeniedError, *route.errors}
    if route.scope is not None:
        found |= {InvalidToken, StateUnavailable}
    if route.query is not None or route.body is not None or route.raw:
        found.add(InvalidInput)
    if "Idempotency-Key" in route.headers:
        found |= {IdempotencyConflict, InvalidInput, RateLimited}
    if route.body is not None or route.raw:
        found |= {SlowRequest, TooLarge, UnsupportedMediaType}
    return sorted(found, key=lambda kind: (kind.status, kind.code))


class _RouteTypes:
    """The JSON Schemas of all types that the routes name."""

    def __init__(self, routes: Sequence[Route], path_types: Mapping[str, Any]) -> None:
        named = [ErrorAnswer, *path_types.values()]
        for route in routes:
            named += [route.query, route.body, *chain(*map(_data, route.answers.values()))]
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

    def content(self, form: Any) -> dict[str, Any]:
        """Return the description of a JSON body of a type."""
        rule = self.schema(form)
        return {"schema": rule, "example": example_of(rule, self.components)}

    def parameter(self, name: str, place: str, rule: dict[str, Any], *, required: bool) -> dict[str, Any]:
        """Return the description of a parameter."""
        found = {"name": name, "in": place, "required": required, "schema": rule}
        return found | {"example": example_of(rule, self.components)}

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
        "security": [] if route.scope is None else [{name: [route.scope]} for name in _SCHEMES],
    }
    if rest:
        found["description"] = rest
    bodies = {} if route.body is None else {JSON: types.content(route.body)}
    for kind, (text, example) in route.raw.items():
        bodies[kind] = {"schema": {"type": "string", "description": text}, "example": example}
    if bodies:
        found["requestBody"] = {"required": True, "content": bodies}
    return found


def _parameters(route: Route, types: _RouteTypes) -> Iterator[dict[str, Any]]:
    for name in route.parameters:
        yield types.parameter(name, "path", types.schema(types.path_types[name]), required=True)
    if route.query is not None:
        schema = types.query(route.query)
        for name, rule in schema["properties"].items():
            if rule.get("type") == "integer":
                # `read_query` takes integers of 64 bits only.
                rule.update({"minimum": -(2**63), "maximum": 2**63 - 1} | rule)
            elif rule.get("type") == "array":  # `tags=` could be no tag or an empty one, so it is refused.
                rule["minItems"] = 1
            found = types.parameter(name, "query", rule, required=name in schema["required"])
            yield found | ({"style": "form", "explode": False} if rule.get("type") == "array" else {})
    own = {"If-Match": PreconditionFailed in route.errors, "If-None-Match": 304 in route.answers}
    for name in (*(name for name, used in own.items() if used), *route.headers):
        yield types.parameter(name, "header", HEADERS[name], required=False)


def _responses(route: Route, types: _RouteTypes, links: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, form in route.answers.items():
        headers = {"X-Request-Id": _REQUEST_ID}
        if 304 in route.answers or PreconditionFailed in route.errors:
            headers["ETag"] = _ETAG
        if route.located and status in (201, 202):
            headers["Location"] = _LOCATION
        found[str(status)] = {"description": _STATUS[status], "headers": headers}
        if links:
            found[str(status)]["links"] = links
        content = [_kind_of(one, types) for one in _each(form) if one is not None]
        found[str(status)] |= {"content": dict(content)} if content else {}
    for status, grouped in groupby(errors_of(route), lambda kind: kind.status):
        kinds = list(grouped)
        found[str(status)] = {
            "description": " ".join(f"`{kind.code}`: {_first_sentence(kind)}" for kind in kinds),
            "headers": {"X-Request-Id": _REQUEST_ID}
            | ({"Retry-After": _RETRY_AFTER} if RateLimited in kinds else {}),
            "content": {
                JSON: {"schema": types.schema(ErrorAnswer), "example": {"error": kinds[0]().as_dict()}}
            },
        }
    return found


def _each(form: Any) -> tuple[Any, ...]:
    """Return the forms of an answer."""
    return form if isinstance(form, tuple) and not isinstance(form, EventStream) else (form,)


def _data(form: Any) -> list[Any]:
    """Return the types of the JSON in an answer."""
    return [kind for one in _each(form) for kind in (one.data if isinstance(one, EventStream) else (one,))]


def _kind_of(form: Any, types: _RouteTypes) -> tuple[str, dict[str, Any]]:
    """Return the media type of an answer, and its description."""
    if isinstance(form, EventStream):
        kinds = [types.content(one) for one in form.data]
        data: dict[str, Any] = {"type": "string", "contentMediaType": JSON}
        data |= {"contentSchema": {"anyOf": [kind["schema"] for kind in kinds]}}
        named = {"id": {"type": "string"}, "event": {"type": "string"}, "data": data}
        written = msgspec.json.encode(kinds[0]["example"]).decode()
        event = {"id": "1", "event": "started", "data": written}
        return EVENT_STREAM, {"schema": {**_EVENT, "properties": named}, "example": event}
    return (form, _BYTES) if isinstance(form, str) else (JSON, types.content(form))


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
