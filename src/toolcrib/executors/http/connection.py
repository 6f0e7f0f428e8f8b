"""The client of tools that are used without a project, so that there is nothing to close."""

from __future__ import annotations

from toolcrib.egress import Egress, EgressRequest, EgressResponse, HostPolicy


class OneRequestEgress(Egress):
    """A client that closes its connections after each request."""

    async def request(self, request: EgressRequest, policy: HostPolicy) -> EgressResponse:
        """Send one request like `Egress.request`."""
        async with Egress() as egress:
            return await egress.request(request, policy)
