"""Requests of the built-in web tools, through the guarded client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolcrib.builtin.settings import HOSTS, BuiltinSettings
from toolcrib.builtin.site import Site
from toolcrib.egress import EgressRequest, EgressResponse, program_policy
from toolcrib.errors import HttpFailed, InvalidInput, Violation
from toolcrib.executors.http.answer import status_failure, text_of
from toolcrib.manifest.requests import SET_BY_CLIENT, TOKEN
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
_EXCERPT = 2_000
"""Characters of the body of an answer that does not mean success."""


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
    if not TOKEN.fullmatch(name):
        return Violation(path, "is not the name of a header")
    if name.lower() in SET_BY_CLIENT:
        return Violation(path, "is set by the client itself")
    # A line break would begin another header, or a second request (RFC 9110, 5.5).
    if any(ord(char) < 32 and char != "\t" for char in value) or "\x7f" in value:
        return Violation(path, "contains a line break or another control character")
    return None


def web_failure(response: EgressResponse) -> HttpFailed:
    """Return the error of an answer that does not mean success, with the beginning of its body."""
    body = text_of(response)[0][:_EXCERPT].strip()
    return status_failure(response, "HTTP", f"\n{body}" if body else "")
