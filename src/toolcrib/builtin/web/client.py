"""Requests of the built-in web tools, through the guarded client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from toolcrib.builtin.settings import HOSTS, BuiltinSettings
from toolcrib.builtin.site import Site
from toolcrib.egress import EgressRequest, EgressResponse, program_policy
from toolcrib.egress.decoding import text_in
from toolcrib.errors import HttpFailed, InvalidInput, Violation
from toolcrib.spec import CallContext, Network, Permissions

TIMEOUT_S = 30.0
WEB_OPTIONS: Mapping[str, Any] = {
    "properties": {
        "network": {
            "description": "`true` (default), any public host, or `{allow: [hosts]}`.",
            "anyOf": [{"const": True}, HOSTS],
        }
    }
}
# A token of RFC 9110, 5.6.2: other characters could end the name or the line.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"})
"""Headers that decide where a request goes or ends."""
_EXCERPT = 2_000
_DECLARED = re.compile(r"<(?:meta|\?xml)[^>]*\b(?:charset|encoding)\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)


def web_permissions(name: str, settings: BuiltinSettings) -> Permissions:
    """Return the permissions of a web tool: any public host, or the hosts of its option `network`."""
    return Permissions(Network.parse(settings.of(name).get("network", True)))


async def send(
    site: Site,
    ctx: CallContext,
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> EgressResponse:
    """Send a request, for 30 seconds at most, and return its answer whatever its status is.

    No header that the caller gives follows a redirect to another origin. Raises as `Egress.request`, and
    InvalidInput for a header that cannot be sent.
    """
    given = tuple((headers or {}).items())
    if wrong := tuple(v for name, value in given if (v := _header_fault(name, value)) is not None):
        raise InvalidInput(f"{wrong[0].path} {wrong[0].message}", violations=wrong)
    network = site.tool.permissions.network
    policy = program_policy(network, allowed_hosts=site.host.allowed_hosts)
    request = EgressRequest(
        method,
        url,
        given,
        body,
        timeout_s=min(TIMEOUT_S, ctx.remaining) or TIMEOUT_S,
        secret_headers=frozenset(name.lower() for name, _ in given),
    )
    remedy = (
        f"name it in the option `network` of the built-in: {site.tool.name}: {{network: {{allow: [HOST]}}}}"
    )
    policy = replace(policy, on_check=site.host.observe_host, remedy=remedy)
    return await site.host.egress().request(request, policy)


def _header_fault(name: str, value: str) -> Violation | None:
    path = f"$.headers.{name}"
    if not _NAME.fullmatch(name):
        return Violation(path, "is not the name of a header")
    if name.lower() in _OURS:
        return Violation(path, "is set by the client itself")
    # A line break would begin another header, or a second request (RFC 9110, 5.5).
    if any(ord(char) < 32 and char != "\t" for char in value) or "\x7f" in value:
        return Violation(path, "holds a line break or another control character")
    return None


def status_failure(response: EgressResponse) -> HttpFailed:
    """Return the error of an answer that is no success, with the beginning of its body."""
    status = response.status
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    body = text_of(response)[:_EXCERPT].strip()
    message = f"HTTP {status} {phrase}".strip() + (f"\n{body}" if body else "")
    details: dict[str, Any] = {"status": status}
    if (wait := response.retry_after_s) is not None:
        details["retry_after_s"] = wait
    return HttpFailed(message, details=details, retryable=status in (408, 429) or status >= 500)


def text_of(response: EgressResponse) -> str:
    """Return the body as text in its character set. Bad bytes are replaced."""
    _, _, parameters = (response.header("content-type") or "").partition(";")
    match = re.search(r"charset=[\"']?([\w-]+)", parameters, re.IGNORECASE)
    if match is None and response.content_type.endswith(("html", "xml")):
        return page_text(response.body)
    return _decoded(response.body, match)


def page_text(page: bytes) -> str:
    """Return HTML or XML as text in the character set that it names itself."""
    # The HTML standard wants the declaration within the first 1,024 bytes.
    return _decoded(page, _DECLARED.search(page[:1024].decode("latin-1")))


def _decoded(data: bytes, charset: re.Match[str] | None) -> str:
    try:
        text = text_in(data, charset[1] if charset else "utf-8", "replace")
    except LookupError:
        text = data.decode(errors="replace")
    return text.removeprefix("\ufeff")
