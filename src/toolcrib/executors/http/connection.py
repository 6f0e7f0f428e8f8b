"""Requests for tools whose owner closes nothing."""

from __future__ import annotations

from toolcrib.egress import Egress, EgressRequest, EgressResponse, HostPolicy

__all__ = ["OneRequestEgress"]


class OneRequestEgress(Egress):
    """A client with connections of their own for each request, so that there is nothing to close."""

    async def request(self, request: EgressRequest, policy: HostPolicy) -> EgressResponse:
        """Send one request, as `Egress.request`."""
        async with Egress() as egress:
            return await egress.request(request, policy)
