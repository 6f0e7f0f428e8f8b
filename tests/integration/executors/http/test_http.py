"""HTTP tools against a real server: printed manifests, and values that stay values in every position."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.integration.egress.servers import Names, serving
from tests.integration.executors.http.http_doubles import Attempt, Server, a_tool, schema
from toolcrib.egress import Egress
from toolcrib.errors import (
    HostNotAllowed,
    InvalidInput,
    ManifestError,
    SecretMissing,
)
from toolcrib.executors.http.executor import HttpExecutor
from toolcrib.spec import (
    Call,
    FieldMap,
    HttpExec,
    Network,
    Permissions,
    SecretSpec,
    Tool,
)

# Printed manifests as they stand, pointed at a local server


def web_search(port: int) -> Tool:
    properties = {
        "query": {"type": "string"},
        "count": {"type": "integer", "default": 10},
        "freshness": {"type": "string"},
    }
    config = HttpExec(
        method="GET",
        url=f"http://127.0.0.1:{port}/res/v1/web/search",
        headers={"Accept": "application/json", "X-Subscription-Token": "${BRAVE_API_KEY}"},
        query={"q": "${query}", "count": "${count}", "freshness": "${freshness}"},
        json_path="web.results",
        fields=tuple(FieldMap(name, name) for name in ("title", "url", "description")),
    )
    network = Network("hosts", (f"127.0.0.1:{port}",))
    permissions = Permissions(network=network, secrets=(SecretSpec("BRAVE_API_KEY"),))
    return Tool(
        "web_search",
        "d",
        "http",
        {"type": "object", "properties": properties},
        config,
        permissions=permissions,
    )


async def test_web_search(http_server: Server) -> None:
    item = {"title": "A", "url": "https://a", "description": "x", "age": 1}
    http_server.json({"web": {"results": [item, {"title": "B"}]}, "more": 1})
    ctx = Attempt({"BRAVE_API_KEY": "brave"})
    outcome = await http_server.run(web_search(http_server.port), ctx, query="a & b=c", count=5)
    assert outcome.value == [
        {"title": "A", "url": "https://a", "description": "x"},
        {"title": "B", "url": None, "description": None},
    ]
    assert outcome.details == {"status": 200}
    request = http_server.got[0]
    assert (request.method, request.path_qs) == ("GET", "/res/v1/web/search?q=a%20%26%20b%3Dc&count=5")
    assert dict(request.query) == {"q": "a & b=c", "count": "5"}
    assert (request.headers["Accept"], request.headers["X-Subscription-Token"]) == (
        "application/json",
        "brave",
    )


async def test_slack_notify(http_server: Server) -> None:
    config = HttpExec(
        method="POST",
        url=f"http://127.0.0.1:{http_server.port}/api/chat.postMessage",
        headers={"Authorization": "Bearer ${SLACK_BOT_TOKEN}", "Content-Type": "application/json"},
        body={"channel": "${channel}", "text": "${message}", "thread_ts": "${thread_ts}"},
    )
    permissions = Permissions(
        network=Network("hosts", (f"127.0.0.1:{http_server.port}",)), secrets=(SecretSpec("SLACK_BOT_TOKEN"),)
    )
    tool = Tool(
        "slack_notify",
        "d",
        "http",
        schema("channel", "message", "thread_ts"),
        config,
        permissions=permissions,
    )
    ctx = Attempt({"SLACK_BOT_TOKEN": "xoxb"})
    evil = 'hi", "channel": "#ceo\r\n${SLACK_BOT_TOKEN}'
    outcome = await http_server.run(tool, ctx, channel="general", message=evil)
    assert outcome.value == {"ok": True}
    assert json.loads(http_server.bodies[0]) == {"channel": "general", "text": evil}
    headers = http_server.got[0].headers
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer xoxb", "application/json")


async def test_a_missing_secret_stops_the_call_before_anything_is_sent(http_server: Server) -> None:
    with pytest.raises(SecretMissing, match="BRAVE_API_KEY"):
        await http_server.run(web_search(http_server.port), Attempt({}), query="x")
    assert http_server.got == []


# Values stay values


async def test_every_position_encodes(http_server: Server) -> None:
    tool = a_tool(
        http_server.port,
        "/users/${a}/x?q=${a}",
        method="post",
        headers={"X-A": "v ${b}", "X-Gone": "${c}", "X-Run": "${run_id}", "X-N": 5},
        query={"b": "${b}", "gone": "${c}"},
        body={"a": "${a}", "n": "${b}", "gone": "${c}", "t": "<${a}>"},
    )
    await http_server.run(tool, a="../admin?x=&q=2#", b=7)
    request = http_server.got[0]
    assert request.method == "POST"
    assert request.raw_path.startswith("/users/..%2Fadmin%3Fx%3D%26q%3D2%23/x?")
    assert list(request.query.items()) == [("q", "../admin?x=&q=2#"), ("b", "7")]
    assert (request.headers["X-A"], request.headers["X-Run"], request.headers["X-N"]) == ("v 7", "run-1", "5")
    assert "X-Gone" not in request.headers
    assert json.loads(http_server.bodies[0]) == {"a": "../admin?x=&q=2#", "n": 7, "t": "<../admin?x=&q=2#>"}


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        ({"path": "/${a}"}, {}),
        ({"path": "/${a}"}, {"a": ".."}),
        ({"path": "/${a}"}, {"a": [1]}),
        ({"headers": {"X": "${a}"}}, {"a": "x\r\nEvil: 1"}),
        ({"headers": {"X": "${a}"}}, {"a": {"x": 1}}),
        ({"query": {"q": "${a}"}}, {"a": [1, 2]}),
        ({"method": "POST", "body": {"x": "Hello ${a}"}}, {}),
    ],
)
async def test_what_does_not_fit_its_position_is_invalid_input_and_nothing_is_sent(
    http_server: Server, config: dict[str, Any], arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await http_server.run(a_tool(http_server.port, **config), **arguments)
    assert caught.value.violations[0].path == "$.a"
    assert http_server.got == []


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=30), st.text(max_size=30))
@example("\n", "")
def test_no_value_changes_the_structure_of_a_request(a: str, b: str) -> None:
    async def main() -> None:
        seen: list[tuple[str, list[tuple[str, str]], list[str], Any]] = []

        async def handler(request: web.Request) -> web.Response:
            names = [name for name in request.headers if name.startswith("X-")]
            body = json.loads(await request.read())
            seen.append((request.raw_path.partition("?")[0], list(request.query.items()), names, body))
            return web.json_response(None)

        async with Egress() as egress, serving(handler) as port:
            tool = a_tool(
                port,
                "/p/${a}/end?q=${b}",
                method="POST",
                query={"k": "${a}"},
                headers={"X-B": "v${b}v"},
                body={"a": "${a}", "in": "-${b}-"},
            )
            try:
                await HttpExecutor(tool, egress).run(Call("t", {"a": a, "b": b}), Attempt())
            except InvalidInput:
                assert seen == []
                return
        path, query, names, body = seen[0]
        assert (path.count("/"), path.startswith("/p/"), path.endswith("/end")) == (3, True, True)
        assert query == [("q", b), ("k", a)]
        assert names == ["X-B"]
        assert body == {"a": a, "in": f"-{b}-"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("config", "arguments", "content_type", "sent"),
    [
        ({"body": "${a}"}, {"a": {"k": [1]}}, "application/json", '{"k":[1]}'),
        ({"body": "${a}"}, {"a": "x"}, "application/json", '"x"'),
        ({"body": "Hello ${a}"}, {"a": 1}, "text/plain; charset=utf-8", "Hello 1"),
        ({"body": '{"city": "${a}", "n": 1}'}, {"a": '"x'}, "application/json", '{"city":"\\"x","n":1}'),
        ({"body": '{"plain": 1}'}, {}, "application/json", '{"plain": 1}'),
        ({"body": {"n": 2**70, "f": "${a}"}}, {"a": 1e22}, "application/json", None),
        (
            {
                "body": {"a": "${a}", "b": "${b}"},
                "headers": {"content-type": "application/x-www-form-urlencoded"},
            },
            {"a": "1&b=2"},
            "application/x-www-form-urlencoded",
            "a=1%26b%3D2",
        ),
        (
            {"body": "${a}", "headers": {"Content-Type": "application/xml"}},
            {"a": "<a/>"},
            "application/xml",
            "<a/>",
        ),
        ({"body": "<a/>", "headers": {"Content-Type": "application/xml"}}, {}, "application/xml", "<a/>"),
        (
            {"body": {}, "headers": {"Content-Type": "application/vnd.x+json"}},
            {},
            "application/vnd.x+json",
            "{}",
        ),
    ],
)
async def test_bodies_follow_their_content_type(
    http_server: Server,
    config: dict[str, Any],
    arguments: dict[str, Any],
    content_type: str,
    sent: str | None,
) -> None:
    await http_server.run(a_tool(http_server.port, method="PUT", **config), **arguments)
    assert http_server.got[0].headers["Content-Type"] == content_type
    if sent is None:
        assert json.loads(http_server.bodies[0]) == {"n": 2**70, "f": 10**22}
        assert b"e" not in http_server.bodies[0]
    else:
        assert http_server.bodies[0].decode() == sent


async def test_an_absent_body_is_no_body(http_server: Server) -> None:
    await http_server.run(a_tool(http_server.port, method="POST", body="${a}"))
    assert http_server.bodies == [b""]
    assert "Content-Type" not in http_server.got[0].headers


@pytest.mark.parametrize(
    ("config", "message", "path"),
    [
        ({"method": "TRACE"}, "do not support the method", ["method"]),
        ({"path": "/${nope}"}, "`nope` is neither", ["url"]),
        ({"path": "/#x"}, "fragment", ["url"]),
        ({"url": "ftp://x"}, "http://", ["url"]),
        ({"url": "https://other.org/"}, "not a host this tool may reach", ["url"]),
        ({"url": "https://u@127.0.0.1/"}, "user name", ["url"]),
        ({"url": "http://127.1/"}, "address|octets", ["url"]),
        ({"query": {"a": "${KEI}"}}, "`KEI`", ["query", "a"]),
        ({"headers": {"X Y": "1"}}, "not a header name", ["headers", "X Y"]),
        ({"headers": {"Host": "x"}}, "set by the client", ["headers", "Host"]),
        ({"headers": {"Transfer-Encoding": "x"}}, "set by the client", ["headers", "Transfer-Encoding"]),
        ({"headers": {"X-Version": 1.1}}, "is a number", ["headers", "X-Version"]),
        ({"headers": {"A": "1", "a": "2"}}, "twice", ["headers", "a"]),
        ({"headers": {"A": "1\r\nB: 2"}}, "line breaks", ["headers", "A"]),
        ({"headers": {"A": ["1"]}}, "a string", ["headers", "A"]),
        ({"body": {"${a}": 1}}, "key", ["body", "${a}"]),
        ({"body": '{"n": ${a}}'}, "inside structured text", ["body"]),
        ({"body": "<x>${a}</x>"}, "inside structured text", ["body"]),
        (
            {"body": "a=${a}", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
            "inside",
            ["body"],
        ),
        ({"body": {"a": 1}, "headers": {"Content-Type": "text/plain"}}, "must be text", ["body"]),
        ({"json_path": "a", "regex": "b"}, "only one can be used", ["response"]),
        ({"json_path": "$.a"}, "JSONPath", ["response"]),
        ({"json_path": "a..b"}, "not a dotted path", ["response"]),
        ({"json_path": ""}, "not a dotted path", ["response"]),
        ({"jsonpath": "$.a["}, "is not RFC 9535", ["response"]),
        ({"jsonpath": "$..a..b..c"}, "at most 2 times", ["response"]),
        ({"regex": "(?=x)"}, "not an RE2 expression", ["response"]),
        ({"regex": "x", "fields": (FieldMap("a", "a"),)}, "no fields", ["response"]),
        ({"fields": (FieldMap("a", "a"), FieldMap("a", "b"))}, "twice", ["response"]),
        ({"fields": (FieldMap("", "a"),)}, "needs a name", ["response"]),
    ],
)
def test_a_bad_manifest_is_refused_when_it_is_bound(
    config: dict[str, Any], message: str, path: list[str]
) -> None:
    with pytest.raises(ManifestError, match=message) as caught:
        HttpExecutor(a_tool(8080, **config), Egress())
    assert caught.value.details["path"] == ["exec", "http", *path]


@pytest.mark.parametrize(
    ("network", "url", "message"),
    [
        (Network(), "https://x.org/", "permissions.network is false"),
        (Network("any"), "http://x.org/", "plain http"),
        (Network("any"), "https://127.0.0.1/", "loopback address"),
        (Network("any"), "https://${a}.x.org/", "only where permissions.network.allow"),
        (Network("hosts", ("x.org/path",)), "https://x.org/", "not a host name"),
    ],
)
def test_a_url_outside_its_own_permission_is_refused_when_it_is_bound(
    network: Network, url: str, message: str
) -> None:
    tool = replace(a_tool(80, url=url), permissions=Permissions(network=network))
    with pytest.raises(ManifestError, match=message):
        HttpExecutor(tool, Egress())


async def test_a_host_from_an_argument_is_checked_at_the_call(http_server: Server) -> None:
    port = http_server.port
    tool = replace(
        a_tool(port, url=f"http://${{a}}.x.test:{port}/"),
        permissions=Permissions(network=Network("hosts", ("eu.x.test", "*.y.test"))),
    )
    async with Egress(resolver=Names({"eu.x.test": [["127.0.0.1"]]})) as egress:
        executor = HttpExecutor(tool, egress)
        assert (await executor.run(Call("t", {"a": "eu"}), Attempt())).value == {"ok": True}
        with pytest.raises(HostNotAllowed, match=r"us\.x\.test"):
            await executor.run(Call("t", {"a": "us"}), Attempt())
        with pytest.raises(InvalidInput):
            await executor.run(Call("t", {"a": "y.test/"}), Attempt())


async def test_the_projects_list_of_hosts_binds_too(http_server: Server) -> None:
    executor = HttpExecutor(a_tool(http_server.port), http_server.egress, allowed_hosts=["api.example.com"])
    with pytest.raises(HostNotAllowed, match="project"):
        await executor.run(Call("t", {}), Attempt())
    assert http_server.got == []


async def test_environment_names_are_read_where_they_are_declared(
    http_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION", "eu")
    tool = a_tool(http_server.port, query={"region": "${REGION}"})
    tool = replace(tool, permissions=replace(tool.permissions, env=("REGION",)))
    executor = HttpExecutor(tool, http_server.egress)
    await executor.run(Call("t", {}), Attempt())
    assert dict(http_server.got[0].query) == {"region": "eu"}
