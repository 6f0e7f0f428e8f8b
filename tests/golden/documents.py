"""Documents of others for the golden tests: an OpenAPI document, and an MCP server's program."""

from __future__ import annotations

from typing import Any

__all__ = ["OPENAPI", "SERVER"]

STRINGS = {"type": "array", "items": {"type": "string"}}
ITEM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string", "description": "Its name"},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
    },
}
OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://shop.example.com/api"}],
    "components": {
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        "schemas": {"Item": ITEM},
    },
    "paths": {
        "/items/{ids}": {
            "get": {
                "operationId": "find",
                "summary": "Find items",
                "security": [{"key": []}],
                "parameters": [
                    {"name": "ids", "in": "path", "required": True, "schema": STRINGS},
                    {"name": "tag", "in": "query", "schema": STRINGS},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"content": {"application/json": {"schema": ITEM}}}},
            }
        },
        "/items": {
            "post": {
                "operationId": "add",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}},
                },
            }
        },
        "/bad": {"get": {"parameters": [{"$ref": "#/nowhere"}]}},
    },
}

SERVER = """
import json, sys

TOOLS = [
    {"name": name, "description": "Say " + name + ".", "inputSchema": {"type": "object"}}
    for name in ("hello", "fail")
]

def answer(message):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        name = params["name"]
        return {"content": [{"type": "text", "text": name}], "isError": name == "fail"}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message)
        told = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}), flush=True)
"""
"""A server of the session wire without any package."""
