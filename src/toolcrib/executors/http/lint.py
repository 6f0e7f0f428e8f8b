"""Checks of HTTP tools: address and permission, styles, body and auth, extraction, repeated requests."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.manifest.http.addresses import url_faults
from toolcrib.manifest.http.requests import request_faults
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import HttpExec, Tool
from toolcrib.template import Namespaces

__all__ = ["network", "request", "response", "retry"]


def network(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that the tool may use the network, and reach its own address."""
    assert isinstance(tool.config, HttpExec)
    permission = tool.permissions.network
    if permission.mode == "none":
        path: KeyPath = ("permissions", "network")
        value = "false" if document.value_at(path) is False else "missing"
        message = f"an http tool needs the network, but `permissions.network` is {value}"
        hint = "write `permissions.network: true`, or better `{allow: [host]}`"
        yield document.diagnostic("network", message, path, hint=hint)
    for fault in url_faults(tool.config.url, permission, Namespaces.of(tool)):
        yield document.diagnostic(fault.rule, fault.message, ("exec", "http", "url"), hint=fault.hint)


def request(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that styles, body and auth fit the request and each other."""
    for fault in request_faults(tool, Namespaces.of(tool)):
        yield document.diagnostic(fault.rule, fault.message, fault.path, key=True, hint=fault.hint)


def response(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that there is one way of extraction, patterns compile, and field names differ."""
    config = tool.config
    assert isinstance(config, HttpExec)
    start: KeyPath = ("exec", "http", "response")
    ways = [way for way in ("json_path", "jsonpath", "regex") if getattr(config, way) is not None]
    if len(ways) > 1:
        message = f"`response` has {' and '.join(f'`{way}`' for way in ways)}; only one can be used"
        yield document.diagnostic("response", message, (*start, ways[1]), key=True, hint="remove all but one")
    if config.regex is not None and (reason := _regex_fault(config.regex)):
        message = f"`regex` is not a pattern of RE2: {reason}"
        yield document.diagnostic("response", message, (*start, "regex"))
    if config.jsonpath is not None and (reason := _jsonpath_fault(config.jsonpath)):
        message = f"`jsonpath` is not RFC 9535: {reason}"
        yield document.diagnostic("response", message, (*start, "jsonpath"))
    names = [entry.name for entry in config.fields]
    for number, name in enumerate(names):
        if name in names[:number]:
            path = (*start, "fields", number, "name")
            yield document.diagnostic("response", f"the field name {quoted(name)} is used twice", path)


def retry(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that a request that is not idempotent is not repeated."""
    config = tool.config
    assert isinstance(config, HttpExec)
    if tool.retry is None or tool.retry.max_attempts < 2 or tool.annotations.idempotent is True:
        return
    if config.method in ("POST", "PATCH"):
        message = f"a {config.method} that is repeated may act twice"
        hint = "set `annotations.idempotent: true` if the server takes it only once, or remove `retry`"
        yield document.diagnostic("retry", message, ("retry", "max_attempts"), hint=hint)


def _regex_fault(pattern: str) -> str | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def _jsonpath_fault(expression: str) -> str | None:
    import jsonpath

    try:
        jsonpath.JSONPathEnvironment(strict=True).compile(expression)
    except jsonpath.JSONPathError as error:
        return str(error).splitlines()[0]
    return None
