"""Lists, objects, cookies, forms, files and auth: the bytes that reach a real server."""

from __future__ import annotations

import base64
import json
from email import message_from_bytes
from email.policy import HTTP
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.executors.http.http_doubles import SECRET, Attempt, Server
from toolcrib.errors import InvalidInput, ManifestError, UnavailableError
from toolcrib.executors.http.executor import HttpExecutor
from toolcrib.spec import (
    Auth,
    BodyPart,
    Call,
    Choice,
    Hmac,
    HttpExec,
    Network,
    ParameterStyle,
    Permissions,
    SecretSpec,
    Tool,
)

LIST = ["a", "b c", "d,e"]
OBJECT = {"x": 1, "y z": "&"}
SCHEMA = {"type": "object", "properties": {name: {} for name in ("a", "b", "c", "file")}}


def tool(port: int, path: str = "/", auth: tuple[Auth, ...] = (), **config: Any) -> Tool:
    network = Network("hosts", (f"127.0.0.1:{port}",))
    secrets = (SecretSpec("KEY"), SecretSpec("USER", required=False), SecretSpec("OTHER", required=False))
    return Tool(
        "t",
        "d",
        "http",
        SCHEMA,
        HttpExec(**{"method": "POST", "url": f"http://127.0.0.1:{port}{path}", **config}),
        permissions=Permissions(network, secrets=secrets),
        auth=auth,
    )


async def sent(server: Server, made: Tool, ctx: Attempt | None = None, /, **arguments: Any) -> Any:
    """The request that reached the server."""
    await HttpExecutor(made, server.egress).run(Call("t", arguments), ctx or Attempt())
    return server.got[-1]


PATHS = [
    ("simple", False, LIST, "/p/a,b%20c,d%2Ce"),
    ("simple", True, LIST, "/p/a,b%20c,d%2Ce"),
    ("simple", False, OBJECT, "/p/x,1,y%20z,%26"),
    ("simple", True, OBJECT, "/p/x=1,y%20z=%26"),
    ("simple", False, "../q?", "/p/..%2Fq%3F"),
    ("label", False, LIST, "/p/.a,b%20c,d%2Ce"),
    ("label", True, LIST, "/p/.a.b%20c.d%2Ce"),
    ("label", False, OBJECT, "/p/.x,1,y%20z,%26"),
    ("label", True, OBJECT, "/p/.x=1.y%20z=%26"),
    ("label", False, 5, "/p/.5"),
    ("matrix", False, LIST, "/p/;a=a,b%20c,d%2Ce"),
    ("matrix", True, LIST, "/p/;a=a;a=b%20c;a=d%2Ce"),
    ("matrix", False, OBJECT, "/p/;a=x,1,y%20z,%26"),
    ("matrix", True, OBJECT, "/p/;x=1;y%20z=%26"),
    ("matrix", False, True, "/p/;a=true"),
    ("json", False, ["a/b"], "/p/%5B%22a%2Fb%22%5D"),
]
QUERIES = [
    ("form", False, LIST, "q=a,b%20c,d%2Ce"),
    ("form", True, LIST, "q=a&q=b%20c&q=d%2Ce"),
    ("form", False, OBJECT, "q=x,1,y%20z,%26"),
    ("form", True, OBJECT, "x=1&y%20z=%26"),
    ("form", True, [{"k": [1]}], "q=%7B%22k%22%3A%5B1%5D%7D"),
    ("form", False, [1, None, 2.0], "q=1,2"),
    ("form", True, "a&b=c", "q=a%26b%3Dc"),
    ("spaceDelimited", False, ["a", "b,c"], "q=a%20b%2Cc"),
    ("pipeDelimited", False, ["a", "b c"], "q=a%7Cb%20c"),
    ("pipeDelimited", True, ["a", "b"], "q=a&q=b"),
    ("tabDelimited", False, ["a", "b c"], "q=a%09b%20c"),
    (
        "deepObject",
        True,
        {"a": 1, "b": {"c": [2, 3]}},
        "q%5Ba%5D=1&q%5Bb%5D%5Bc%5D%5B0%5D=2&q%5Bb%5D%5Bc%5D%5B1%5D=3",
    ),
    ("json", False, {"a": [1, "&"]}, "q=%7B%22a%22%3A%5B1%2C%22%26%22%5D%7D"),
]


@pytest.mark.parametrize(("style", "explode", "value", "wire"), PATHS)
async def test_a_path(http_server: Server, style: str, explode: bool, value: Any, wire: str) -> None:
    made = tool(http_server.port, "/p/${a}", styles={"a": ParameterStyle(style, explode)})
    assert (await sent(http_server, made, a=value)).raw_path == wire


@pytest.mark.parametrize(("style", "explode", "value", "wire"), QUERIES)
async def test_a_query_and_a_form(
    http_server: Server, style: str, explode: bool, value: Any, wire: str
) -> None:
    styles = {"a": ParameterStyle(style, explode)}
    query = tool(http_server.port, query={"q": "${a}"}, styles=styles)
    assert (await sent(http_server, query, a=value)).raw_path == f"/?{wire}"
    form = tool(http_server.port, body={"q": "${a}"}, body_format="form", styles=styles)
    request = await sent(http_server, form, a=value)
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert http_server.bodies[-1].decode() == wire


async def test_reserved_characters_that_cannot_end_a_value_may_stay(http_server: Server) -> None:
    styles = {"a": ParameterStyle("form", allow_reserved=True)}
    made = tool(http_server.port, query={"q": "${a}", "z": "1"}, styles=styles)
    assert (
        await sent(http_server, made, a="a/b:c?d&e=f#g+h%")
    ).raw_path == "/?q=a/b:c?d%26e%3Df%23g%2Bh%25&z=1"
    matrix = tool(http_server.port, "/${a}", styles={"a": ParameterStyle("matrix", True, None, True)})
    path = (await sent(http_server, matrix, a={"k": "v;b=2/.."})).raw_path
    assert path == "/;k=v%3Bb%3D2%2F.."


@pytest.mark.parametrize(
    ("style", "explode", "value", "wire"),
    [
        ("simple", False, ["a", "b c"], "a,b c"),
        ("simple", False, {"x": 1}, "x,1"),
        ("simple", True, {"x": 1, "y": "z"}, "x=1,y=z"),
        ("simple", False, "a,b", "a,b"),
        ("json", False, {"x": "é"}, '{"x":"\\u00e9"}'),
    ],
)
async def test_a_header(http_server: Server, style: str, explode: bool, value: Any, wire: str) -> None:
    styles = {"a": ParameterStyle(style, explode)}
    made = tool(http_server.port, headers={"X-A": "${a}", "X-B": "${b}"}, styles=styles)
    request = await sent(http_server, made, a=value)
    assert request.headers["X-A"] == wire
    assert "X-B" not in request.headers


@pytest.mark.parametrize(
    ("style", "explode", "value", "wire"),
    [
        ("form", False, "a; b=c", "k=a%3B%20b%3Dc; z=1"),
        ("form", False, ["a", "b;"], "k=a,b%3B; z=1"),
        ("form", True, {"x": 1, "y": ";"}, "x=1; y=%3B; z=1"),
        ("cookie", False, ["a", "b"], "k=a,b; z=1"),
        ("cookie", True, ["a", "b%"], "k=a; k=b%; z=1"),
        ("json", False, {"x": 1}, "k=%7B%22x%22%3A1%7D; z=1"),
    ],
)
async def test_a_cookie(http_server: Server, style: str, explode: bool, value: Any, wire: str) -> None:
    styles = {"a": ParameterStyle(style, explode)}
    made = tool(http_server.port, cookies={"k": "${a}", "z": 1, "absent": "${b}"}, styles=styles)
    assert (await sent(http_server, made, a=value)).headers["Cookie"] == wire


async def test_an_argument_within_a_cookie_ends_no_cookie(http_server: Server) -> None:
    made = tool(http_server.port, cookies={"k": "x-${a}"})
    assert (await sent(http_server, made, a="1; admin=1")).headers["Cookie"] == "k=x-1%3B%20admin%3D1"


REFUSED = [
    ({"query": {"q": "${a}", "key": "${b}"}}, "form", True, {"key": "x"}, "name of another entry"),
    ({"query": {"q": "${a}"}}, "form", True, {"": "x"}, "is empty"),
    ({"query": {"q": "${a}"}}, "spaceDelimited", False, ["a b"], "' '"),
    ({"query": {"q": "${a}"}}, "pipeDelimited", False, ["a|b"], "'|'"),
    ({"headers": {"X": "${a}"}}, "simple", False, ["a,b"], "','"),
    ({"headers": {"X": "${a}"}}, "simple", True, {"k=": "v"}, "'='"),
    ({"headers": {"X": "${a}"}}, "simple", False, ["a\r\nB: c"], "line breaks"),
    ({"cookies": {"k": "${a}", "s": "1"}}, "form", True, {"s": "2"}, "name of another entry"),
    ({"cookies": {"k": "${a}"}}, "cookie", False, ["a; b"], "';'"),
    ({"query": {"q": "${a}"}}, "deepObject", True, json.loads('{"a":' * 22 + "1" + "}" * 22), "too deeply"),
    ({"url": "/${a}"}, "label", True, ["a.b"], "'.'"),
    ({"url": "/${a}"}, "simple", False, [], "empty list"),
    ({"url": "/${a}"}, "simple", False, [".."], "neither empty nor"),
    ({"url": "/${a}"}, "simple", False, None, "was not given"),
]


@pytest.mark.parametrize(("config", "style", "explode", "value", "why"), REFUSED)
async def test_a_value_never_becomes_structure(
    http_server: Server, config: dict[str, Any], style: str, explode: bool, value: Any, why: str
) -> None:
    config = dict(config)
    path = config.pop("url", "/")
    made = tool(http_server.port, path, styles={"a": ParameterStyle(style, explode)}, **config)
    with pytest.raises(InvalidInput, match=why):
        await sent(http_server, made, a=value)
    assert not http_server.got


SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8)
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=4)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    style=st.sampled_from(["form", "spaceDelimited", "pipeDelimited", "deepObject", "json"]),
    explode=st.booleans(),
    value=VALUES,
)
async def test_no_value_changes_a_neighbour(
    http_server: Server, style: str, explode: bool, value: Any
) -> None:
    styles = {"a": ParameterStyle(style, explode), "b": ParameterStyle("simple")}
    query = {"first": "1", "q": "${a}", "last": "2"}
    made = tool(http_server.port, "/x/${b}/y", query=query, styles=styles)
    try:
        request = await sent(http_server, made, a=value, b="v")
    except InvalidInput:
        return
    assert request.path == "/x/v/y"
    assert request.query.getall("first") == ["1"]
    assert request.query.getall("last") == ["2"]


# Bodies


def parts_of(request: Any, body: bytes) -> dict[str, list[Any]]:
    """The parts of a multipart body, read by another implementation."""
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    message = message_from_bytes(head + body, policy=HTTP)
    found: dict[str, list[Any]] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        kind = part["content-type"] and part.get_content_type()
        found.setdefault(str(name), []).append((part.get_filename(), kind, part.get_payload(decode=True)))
    return found


async def test_a_multipart_body_with_files(http_server: Server) -> None:
    raw = bytes(range(256))
    made = tool(
        http_server.port,
        body={"file": "${file}", "note": "${a}", "meta": {"tag": "${b}"}, "ids": "${c}", "fixed": "x"},
        body_format="multipart",
        parts={"file": BodyPart("base64", "${a}.bin", "image/png")},
    )
    request = await sent(
        http_server, made, file=base64.b64encode(raw).decode(), a='n"\u00e9', b="t", c=[1, 2]
    )
    found = parts_of(request, http_server.bodies[-1])
    assert found["file"] == [("n%22\u00e9.bin", "image/png", raw)]
    assert found["note"][0][2] == 'n"\u00e9'.encode()
    assert found["meta"] == [(None, "application/json", b'{"tag":"t"}')]
    assert [part[2] for part in found["ids"]] == [b"1", b"2"]
    assert found["fixed"] == [(None, None, b"x")]


async def test_several_files_under_one_name(http_server: Server) -> None:
    parts = {"f": BodyPart("base64", "${a}")}
    made = tool(http_server.port, body={"f": "${file}"}, body_format="multipart", parts=parts)
    request = await sent(http_server, made, file=["AAE=", "_w"])
    found = parts_of(request, http_server.bodies[-1])["f"]
    assert [(part[0], part[2]) for part in found] == [("f", b"\x00\x01"), ("f", b"\xff")]


async def test_a_file_cannot_make_a_part_of_its_own(http_server: Server) -> None:
    made = tool(http_server.port, body={"x": "${a}", "y": "2"}, body_format="multipart")
    forged = '--b\r\nContent-Disposition: form-data; name="y"\r\n\r\n3\r\n--b--'
    request = await sent(http_server, made, a=forged)
    found = parts_of(request, http_server.bodies[-1])
    assert found == {"x": [(None, None, forged.encode())], "y": [(None, None, b"2")]}


@pytest.mark.parametrize("body_format", ["form", "multipart"])
async def test_one_object_is_the_whole_form(http_server: Server, body_format: Any) -> None:
    made = tool(http_server.port, body="${a}", body_format=body_format)
    request = await sent(http_server, made, a={"k&": "v=", "l": [1, 2], "o": {"x": 1}, "n": None})
    if body_format == "form":
        assert sorted(http_server.bodies[-1].split(b"&")) == [
            b"k%26=v%3D",
            b"l=1",
            b"l=2",
            b"o=%7B%22x%22%3A1%7D",
        ]
    else:
        found = parts_of(request, http_server.bodies[-1])
        assert {name: [part[2] for part in parts] for name, parts in found.items()} == {
            "k&": [b"v="], "l": [b"1", b"2"], "o": [b'{"x":1}'],
        }  # fmt: skip


async def test_files_in_one_object(http_server: Server) -> None:
    parts = {"file": BodyPart("base64", "${a}", "image/png"), "meta": BodyPart("json"), "gone": BodyPart()}
    made = tool(http_server.port, body="${b}", body_format="multipart", parts=parts)
    value = {"file": ["AAE=", None], "meta": [1], "note": "x"}
    request = await sent(http_server, made, a="p.png", b=value)
    assert parts_of(request, http_server.bodies[-1]) == {
        "file": [("p.png", "image/png", b"\x00\x01")],
        "meta": [(None, "application/json", b"[1]")],
        "note": [(None, None, b"x")],
    }
    with pytest.raises(InvalidInput, match="not base64"):
        await sent(http_server, made, b={"file": "%%%"})


async def test_binary_text_and_json(http_server: Server) -> None:
    port = http_server.port
    binary = tool(port, body="${file}", body_format="binary", headers={"Content-Type": "image/png"})
    assert (await sent(http_server, binary, file="AP8=")).content_type == "image/png"
    assert http_server.bodies[-1] == b"\x00\xff"
    with pytest.raises(InvalidInput, match="not base64"):
        await sent(http_server, binary, file="%%%")
    text = tool(port, body="${a}", body_format="text", headers={"Content-Type": "application/xml"})
    assert (await sent(http_server, text, a="<a/>")).content_type == "application/xml"
    assert http_server.bodies[-1] == b"<a/>"
    vendor = tool(
        port, body={"a": "${a}", "b": "${b}"}, body_format="json", headers={"Content-Type": "text/x"}
    )
    assert (await sent(http_server, vendor, a=[1])).content_type == "text/x"
    assert http_server.bodies[-1] == b'{"a":[1]}'
    await sent(http_server, tool(port, body="${a}", body_format="binary"))
    assert http_server.bodies[-1] == b""


# Auth


async def test_every_kind_of_auth(http_server: Server) -> None:
    port, ctx = http_server.port, Attempt({"KEY": "k/+ =", "USER": "me"})
    request = await sent(http_server, tool(port, auth=(Auth("bearer", "KEY"),)), ctx)
    assert request.headers["Authorization"] == "Bearer k/+ ="
    request = await sent(http_server, tool(port, auth=(Auth("basic", "KEY", "USER"),)), ctx)
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"me:k/+ =").decode()
    request = await sent(http_server, tool(port, auth=(Auth("basic", None, "USER"),)), ctx)
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"me:").decode()
    keys = (
        Auth("api_key", "KEY", location="header", name="X-Key"),
        Auth("api_key", "KEY", location="query", name="key"),
        Auth("api_key", "USER", location="cookie", name="session"),
        Auth("bearer", "OTHER"),
    )
    request = await sent(http_server, tool(port, auth=keys, query={"a": 1}, cookies={"b": 2}), ctx)
    assert request.headers["X-Key"] == "k/+ ="
    assert request.raw_path == "/?a=1&key=k%2F%2B%20%3D"
    assert request.headers["Cookie"] == "b=2; session=me"
    assert "Authorization" not in request.headers, "an optional secret that is not set"


async def test_a_secret_that_would_end_its_cookie_is_refused(http_server: Server) -> None:
    made = tool(http_server.port, auth=(Auth("api_key", "KEY", location="cookie", name="s"),))
    with pytest.raises(UnavailableError) as refused:
        await sent(http_server, made)
    assert SECRET not in str(refused.value)


WRONG = [
    ({"styles": {"zz": ParameterStyle("form")}}, "is not an argument"),
    ({"styles": {"a": ParameterStyle("form")}}, "is not a whole value in a path"),
    ({"query": {"q": "x${a}"}, "styles": {"a": ParameterStyle("form")}}, "is not a whole value in a path"),
    ({"query": {"q": "${a}"}, "styles": {"a": ParameterStyle("matrix")}}, "is not allowed in a query"),
    ({"body_format": "form"}, "there is no `body`"),
    ({"body": "x${a}", "body_format": "form"}, "mapping of its fields"),
    ({"body": {}, "body_format": "binary"}, "is one text"),
    ({"body": {"x": 1}, "body_format": "multipart", "headers": {"content-type": "x/y"}}, "with its boundary"),
    ({"body": {"x": 1}, "parts": {"x": BodyPart()}}, "multipart` only"),
    ({"body": {"x": 1}, "body_format": "multipart", "parts": {"y": BodyPart()}}, "no field `y`"),
    ({"cookies": {"a b": 1}}, "not the name of a cookie"),
    ({"cookies": {"a": 1}, "headers": {"Cookie": "b=2"}}, "not in both"),
    ({"auth": (Auth("bearer"),)}, "needs `secret`"),
    ({"auth": (Auth("bearer", "NONE"),)}, "is not declared"),
    ({"auth": (Auth("basic", "KEY"),)}, "needs `username_secret`"),
    ({"auth": (Auth("api_key", "KEY"),)}, "needs `in` and `name`"),
    ({"auth": (Auth("bearer", "KEY", name="x"),)}, "are for api_key"),
    ({"auth": (Auth("bearer", "KEY"),), "headers": {"authorization": "x"}}, "by `auth` and by the request"),
    ({"auth": (Auth("api_key", "KEY", location="query", name="q"),), "query": {"q": 1}}, "by the request"),
    ({"auth": (Auth("api_key", "KEY", location="header", name="a b"),)}, "not the name of a header"),
    ({"auth": (Auth("api_key", "KEY", location="header", name="Host"),)}, "Host is set by the client"),
    ({"auth": (Auth("hmac", "KEY", location="query", name="s", hmac=Hmac(nonce_header="TE")),)}, "TE is set"),
    ({"headers": {"X": Choice(((None, "a\nb"),))}}, "line breaks"),
    ({"headers": {"X": Choice((("a", Choice(((None, ["b"]),))),))}}, "a text, a number or a truth value"),
    ({"query": {"q": Choice((("a", {"b": 1}),))}}, "a text, a number or a truth value"),
]


@pytest.mark.parametrize(("config", "why"), WRONG)
async def test_what_does_not_go_together_is_refused_when_bound(
    http_server: Server, config: dict[str, Any], why: str
) -> None:
    with pytest.raises(ManifestError, match=why):
        HttpExecutor(tool(http_server.port, **config), http_server.egress)
