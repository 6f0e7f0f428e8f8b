"""Redirects: each hop is checked again, and no secret goes to another origin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from tests.integration.egress.servers import Names, named, serving
from toolcrib.egress import Egress, EgressRequest, EgressResponse
from toolcrib.errors import HostNotAllowed, HttpFailed

SECRETS = [("Authorization", "Bearer s"), ("Cookie", "c=s"), ("X-Api-Key", "s"), ("X-Plain", "p")]


async def handler(request: web.Request) -> web.Response:
    """`/to?status=302&url=…` redirects, `/hops/3` redirects three times, anything else echoes."""
    kind, _, rest = request.path[1:].partition("/")
    if kind == "to":
        return web.Response(status=int(request.query["status"]), headers={"Location": request.query["url"]})
    if kind == "hops" and rest != "0":
        return web.Response(status=302, headers={"Location": f"/hops/{int(rest) - 1}"}, text="x" * 100_000)
    return web.json_response(
        {"method": request.method, "headers": dict(request.headers), "body": (await request.read()).decode()}
    )


async def send(egress: Egress, port: int, path: str, method: str = "GET", **more: Any) -> EgressResponse:
    request = EgressRequest(
        method, f"http://a.test:{port}{path}", SECRETS, secret_headers=frozenset({"x-api-key"}), **more
    )
    return await egress.request(request, named("a.test", "b.test", port=port))


@pytest.fixture
def names() -> Names:
    return Names({"a.test": [["127.0.0.1"]], "b.test": [["127.0.0.1"]], "evil.test": [["127.0.0.1"]]})


async def test_five_redirects_are_followed_and_not_six(names: Names) -> None:
    async with serving(handler) as port, Egress(resolver=names) as egress:
        answer = await send(egress, port, "/hops/5")
        assert (answer.status, answer.redirects, answer.url) == (200, 5, f"http://a.test:{port}/hops/0")
        with pytest.raises(HttpFailed, match="more than 5 times"):
            await send(egress, port, "/hops/6")


async def test_on_the_same_origin_all_headers_follow(names: Names) -> None:
    async with serving(handler) as port, Egress(resolver=names) as egress:
        answer = await send(egress, port, "/to?status=302&url=/end")
    headers = json.loads(answer.body)["headers"]
    assert {name: headers.get(name) for name, _ in SECRETS} == dict(SECRETS)


async def test_secret_headers_never_follow_to_another_host(names: Names) -> None:
    async with serving(handler) as port, Egress(resolver=names) as egress:
        answer = await send(
            egress, port, f"/to?status=307&url=http://b.test:{port}/end", "POST", body=b"open"
        )
        got = json.loads(answer.body)
        assert (got["method"], got["body"], got["headers"]["X-Plain"]) == ("POST", "open", "p")
        assert not set(got["headers"]) & {"Authorization", "Cookie", "X-Api-Key"}
        back = f"/to?status=302&url=http://b.test:{port}/to?status=302%26url=http://a.test:{port}/end"
        got = json.loads((await send(egress, port, back)).body)
        assert not set(got["headers"]) & {"Authorization", "Cookie", "X-Api-Key"}


async def test_another_port_is_another_origin(names: Names) -> None:
    async with serving(handler) as port, serving(handler) as other, Egress(resolver=names) as egress:
        request = EgressRequest(
            "GET", f"http://a.test:{port}/to?status=302&url=http://a.test:{other}/", SECRETS
        )
        answer = await egress.request(request, named(f"a.test:{port}", f"a.test:{other}"))
    assert "Authorization" not in json.loads(answer.body)["headers"]


async def test_a_body_with_a_secret_never_follows_to_another_host(names: Names) -> None:
    async with serving(handler) as port, Egress(resolver=names) as egress:
        path = f"/to?status=308&url=http://b.test:{port}/end"
        with pytest.raises(HostNotAllowed, match="body contains a secret"):
            await send(egress, port, path, "POST", body=b"s", secret_body=True)


@pytest.mark.parametrize(
    ("status", "method", "followed"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
        (302, "PUT", "PUT"),
        (303, "HEAD", "HEAD"),
    ],
)
async def test_the_method_follows_the_standard(names: Names, status: int, method: str, followed: str) -> None:
    async with serving(handler) as port, Egress(resolver=names) as egress:
        answer = await send(egress, port, f"/to?status={status}&url=/end", method, body=b"b")
    if method == "HEAD":
        assert answer.redirects == 1
        return
    got = json.loads(answer.body)
    assert (got["method"], got["body"]) == (followed, "" if followed == "GET" else "b")


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.test/",
        "http://127.0.0.1/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "//10.0.0.1/",
        "https://a.test:22/",
    ],
)
async def test_a_redirect_to_what_is_not_listed_is_refused(names: Names, target: str) -> None:
    async with serving(handler) as port, Egress(resolver=names) as egress:
        with pytest.raises(HostNotAllowed):
            await send(egress, port, f"/to?status=302&url={target}")
    assert names.asked == ["a.test"]


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "ftp://a.test/", "http://u:p@a.test/", "http://2130706433/", "gopher://x"],
)
async def test_a_redirect_to_what_cannot_be_called_is_an_error(names: Names, target: str) -> None:
    async with serving(handler) as port, Egress(resolver=names) as egress:
        with pytest.raises(HttpFailed, match="redirects to a URL that cannot be called"):
            await send(egress, port, f"/to?status=302&url={target}")


async def test_a_redirect_can_be_taken_as_the_answer(names: Names) -> None:
    async with serving(handler) as port, Egress(resolver=names) as egress:
        answer = await send(egress, port, "/to?status=302&url=/end", follow_redirects=False)
    assert (answer.status, answer.header("location")) == (302, "/end")
