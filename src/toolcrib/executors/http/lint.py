"""Checks of HTTP tools: address and permission, styles, body and auth, extraction, repeated requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from toolcrib.executors.http.extraction import response_faults
from toolcrib.manifest.requests import request_faults, url_faults
from toolcrib.manifest.yaml.diagnostics import Diagnostic
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
    for path, message, hint in response_faults(config):
        yield document.diagnostic("response", message, ("exec", "http", "response", *path), hint=hint)


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
