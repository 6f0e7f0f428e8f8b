"""Checks of HTTP tools: address and permission, styles, body and auth, extraction, repeated requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.executors.http.extraction import compile_jsonpath, compile_regex
from toolcrib.manifest.requests import request_faults, url_faults
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import HttpExec, Tool
from toolcrib.template import Namespaces


def check(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Run all checks of HTTP tools."""
    return chain.from_iterable(one(tool, document) for one in (_network, _request, _response, _retry))


def _network(tool: Tool, document: Document) -> Iterator[Diagnostic]:
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
        yield document.diagnostic(fault.rule, fault.message, fault.path, hint=fault.hint)


def _request(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that styles, body and auth fit the request and each other."""
    for fault in request_faults(tool, Namespaces.of(tool)):
        yield document.diagnostic(fault.rule, fault.message, fault.path, key=True, hint=fault.hint)


def _response(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that there is one way of extraction, patterns compile, and field names differ."""
    config = tool.config
    assert isinstance(config, HttpExec)
    start: KeyPath = ("exec", "http", "response")
    ways = [way for way in ("json_path", "jsonpath", "regex") if getattr(config, way) is not None]
    if len(ways) > 1:
        message = f"`response` has {' and '.join(f'`{way}`' for way in ways)}; only one can be used"
        yield document.diagnostic("response", message, (*start, ways[1]), key=True, hint="remove all but one")
    for way, compile_ in (("regex", compile_regex), ("jsonpath", compile_jsonpath)):
        if fault := _fault(compile_, getattr(config, way)):
            yield document.diagnostic("response", fault.message, (*start, way), hint=fault.hint)
    names = [entry.name for entry in config.fields]
    for number, name in enumerate(names):
        if name in names[:number]:
            path = (*start, "fields", number, "name")
            yield document.diagnostic("response", f"the field name {quoted(name)} is used twice", path)


def _retry(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that a request that is not idempotent is not repeated."""
    config = tool.config
    assert isinstance(config, HttpExec)
    if tool.retry is None or tool.retry.max_attempts < 2 or tool.annotations.idempotent is True:
        return
    if config.method in ("POST", "PATCH"):
        message = f"a repeated {config.method} may act twice"
        hint = "set `annotations.idempotent: true` if the server takes it only once, or remove `retry`"
        yield document.diagnostic("retry", message, ("retry", "max_attempts"), hint=hint)


def _fault(compile_: Callable[[str], Any], text: str | None) -> ManifestError | None:
    """Return the error of an extraction that cannot be compiled."""
    if text is None:
        return None
    try:
        compile_(text)
    except ManifestError as error:
        return error
    return None
