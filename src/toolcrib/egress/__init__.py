"""The only way out: the hosts that may be reached, and the client and the proxy that enforce it."""

from toolcrib.egress.address import Resolver, address_kind
from toolcrib.egress.client import Egress
from toolcrib.egress.destination import Destination
from toolcrib.egress.httpx_transport import guarded_transport
from toolcrib.egress.message import (
    DEFAULT_RESPONSE_BYTES,
    MAX_REQUEST_BYTES,
    EgressRequest,
    EgressResponse,
)
from toolcrib.egress.policy import HostPolicy, HostRule, program_policy
from toolcrib.egress.proxy.dialer import HostRefusal, ProxyLimits, grant_line
from toolcrib.egress.proxy.server import Proxy
