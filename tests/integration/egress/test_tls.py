"""TLS goes to the checked address and verifies the host's name; pools are kept apart by policy."""

from __future__ import annotations

import ssl

import pytest
from aiohttp import web

from tests.certificates import certificate_for
from tests.integration.egress.servers import Names, named, serving
from toolcrib.egress import Egress, EgressRequest, HostPolicy
from toolcrib.errors import HostNotAllowed, HttpFailed
from toolcrib.spec import Network


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's side of a certificate for `svc.test`."""
    file = certificate_for(tmp_path_factory.mktemp("tls"), "svc.test")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=str(file))


async def ok(request: web.Request) -> web.Response:
    return web.Response(text=request.host)


async def test_the_certificate_must_be_for_the_name_that_was_asked(
    pair: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    names = Names({"svc.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]]})
    asked: list[str | None] = []
    pair[0].sni_callback = lambda _socket, name, _context: asked.append(name)
    async with serving(ok, pair[0]) as port, Egress(resolver=names, ssl_context=pair[1]) as egress:
        policy = named("svc.test", "other.test", "127.0.0.1", port=port)
        good = await egress.request(EgressRequest("GET", f"https://svc.test:{port}/"), policy)
        assert good.body == f"svc.test:{port}".encode()
        for host in ("other.test", "127.0.0.1"):
            with pytest.raises(HttpFailed, match="no trusted TLS connection") as caught:
                await egress.request(EgressRequest("GET", f"https://{host}:{port}/"), policy)
            assert (caught.value.details["reason"], caught.value.retryable) == ("tls", False)
    assert asked[:2] == ["svc.test", "other.test"]


async def test_an_unknown_authority_is_refused(pair: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with serving(ok, pair[0]) as port, Egress(resolver=Names({"svc.test": [["127.0.0.1"]]})) as egress:
        with pytest.raises(HttpFailed, match="no trusted TLS connection"):
            await egress.request(
                EgressRequest("GET", f"https://svc.test:{port}/"), named("svc.test", port=port)
            )


async def test_plain_http_on_the_other_side_is_a_tls_error() -> None:
    async with serving(ok) as port, Egress(resolver=Names({"svc.test": [["127.0.0.1"]]})) as egress:
        with pytest.raises(HttpFailed) as caught:
            await egress.request(
                EgressRequest("GET", f"https://svc.test:{port}/"), named("svc.test", port=port)
            )
    assert caught.value.details["reason"] == "tls"


async def test_a_tool_cannot_ride_on_a_connection_that_its_policy_would_not_open(
    pair: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    names = Names({"svc.test": [["127.0.0.1"]]})
    async with serving(ok, pair[0]) as port, Egress(resolver=names, ssl_context=pair[1]) as egress:
        request = EgressRequest("GET", f"https://svc.test:{port}/")
        assert (await egress.request(request, named("svc.test", port=port))).status == 200
        with pytest.raises(HostNotAllowed, match="a loopback address"):
            await egress.request(request, HostPolicy.of(Network("any"), "svc.test", port))
