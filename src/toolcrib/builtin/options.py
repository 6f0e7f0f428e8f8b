"""The options of built-in tools, checked by one JSON Schema each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.builtin.table import builtin
from toolcrib.errors import UsageError
from toolcrib.schema import SchemaCheck

__all__ = ["check_options", "option_faults"]

_HOSTS = {"type": "array", "items": {"type": "string", "minLength": 1}}
_ALLOW = {
    "type": "object",
    "properties": {"allow": _HOSTS},
    "required": ["allow"],
    "additionalProperties": False,
}
_WEB = {"properties": {"network": {"anyOf": [{"const": True}, _ALLOW]}}}
_SHELL = {"properties": {"network": {"anyOf": [{"type": "boolean"}, {"const": "host"}, _ALLOW]}}}
_TEXT = {"type": "string", "minLength": 1}
_URL = {"type": "string", "pattern": "^https?://[^/?#]+"}
_SEARCH = {
    "properties": {
        "provider": {"enum": ["brave", "searxng", "index"]},
        "url": _URL,
        "folder": _TEXT,
    },
    "allOf": [
        {
            "if": {"properties": {"provider": {"const": provider}}, "required": ["provider"]},
            "then": {"required": [needed]},
        }
        for provider, needed in (("searxng", "url"), ("index", "folder"))
    ],
}
_SCHEMAS: Mapping[str, dict[str, Any]] = {
    "exec": _SHELL,
    "execute_command": _SHELL,
    "fetch_url": _WEB,
    "http_request": _WEB,
    "web_search": _SEARCH,
    "send_email": {"properties": {"without_tls": _HOSTS}},
}


def option_faults(name: str, options: Any) -> list[tuple[str, str]]:
    """Return path and message of each option that does not exist or does not fit.

    Raises ToolNotFound for a name that is no built-in tool.
    """
    builtin(name)
    schema = {"type": "object", "additionalProperties": False, "properties": {}, **_SCHEMAS.get(name, {})}
    return [(path, message) for path, message in SchemaCheck(schema).violations(options)]


def check_options(name: str, options: Any) -> None:
    """Raise UsageError for the first option that does not exist or does not fit."""
    for path, message in option_faults(name, options):
        raise UsageError(f"options of {name}: {path} {message}")
