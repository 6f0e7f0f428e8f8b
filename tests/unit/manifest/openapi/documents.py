"""Small documents of every version, and the tools they become."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.manifest.openapi import Imported, import_document, read_document
from toolcrib.schema import SchemaCheck
from toolcrib.spec import HttpExec, Tool

SERVER = "https://api.example.com/v1"


def a_document(version: str = "3.0.3", **more: Any) -> dict[str, Any]:
    """A document with a title and, but for 2.0, a server."""
    if version == "2.0":
        base: dict[str, Any] = {"swagger": "2.0", "host": "api.example.com", "basePath": "/v1"}
    else:
        base = {"openapi": version, "servers": [{"url": SERVER}]}
    return {**base, "info": {"title": "Shop", "version": "7"}, "paths": {}, **more}


def one(operation: dict[str, Any], version: str = "3.0.3", path: str = "/x", **more: Any) -> dict[str, Any]:
    """A document with one operation, a POST unless `method` says otherwise."""
    method = operation.pop("method", "post")
    item = {method: {"operationId": "go", **operation}}
    return a_document(version, paths={path: item}, **more)


def imported(document: dict[str, Any], **options: Any) -> Imported:
    return import_document(read_document(json.dumps(document).encode(), "/doc.json"), **options)


def tool_of(document: dict[str, Any], **options: Any) -> Tool:
    """The one tool of a document; its schemas are valid and closed."""
    found = imported(document, **options)
    assert [made.reason for made in found.operations] == [""]
    (tool,) = found.tools
    hold(tool)
    return tool


def http(tool: Tool) -> HttpExec:
    assert isinstance(tool.config, HttpExec)
    return tool.config


def hold(tool: Tool) -> None:
    """The schemas of a tool compile by themselves, and every reference leads to a definition of their own."""
    for schema in (tool.input_schema, tool.output.schema):
        if schema is not None:
            SchemaCheck(schema)
            for ref in references(schema):
                assert ref.startswith("#/$defs/")
                assert ref.removeprefix("#/$defs/") in schema["$defs"]


def references(schema: Any) -> list[str]:
    """Every reference; what stands in an enum or an example is data."""
    found: list[str] = []
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found += [item for key, item in value.items() if key == "$ref" and isinstance(item, str)]
            waiting += [item for key, item in value.items() if key not in ("const", "enum", "examples")]
        elif isinstance(value, list):
            waiting += value
    return found


def body(schema: dict[str, Any], media: str = "application/json", **more: Any) -> dict[str, Any]:
    """A required request body of 3.x."""
    return {"requestBody": {"required": True, "content": {media: {"schema": schema, **more}}}}
