"""Heads of HTTP/1 messages: one meaning or an error, and written anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.egress import Destination
from toolcrib.egress.proxy.head import BadMessage, RequestHead, ResponseHead

THERE = Destination.parse("http://api.test:8080/a%20b?c=d")


def request(*fields: str, line: str = "POST http://api.test/ HTTP/1.1") -> RequestHead:
    return RequestHead.parse("\r\n".join([line, *fields, "", ""]).encode("latin-1"))


def response(*fields: str, status: str = "200 OK", method: str = "GET") -> ResponseHead:
    return ResponseHead.parse("\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""]).encode(), method)


def test_a_forwarded_head_is_for_the_target_and_without_hop_by_hop_headers() -> None:
    head = request(
        "Host: other.test",
        "Connection: keep-alive, X-Mine , content-length",
        "Keep-Alive: timeout=5",
        "X-Mine: 1",
        "X-Kept:  two words ",
        "Proxy-Authorization: Basic x",
        "Proxy-Connection: keep-alive",
        "PROXY-Anything: 1",
        "Upgrade: h2c",
        "HTTP2-Settings: AA",
        "TE: trailers",
        "Trailer: X",
        "Content-Length: 3",
    )
    assert head.onward(THERE) == (
        b"POST /a%20b?c=d HTTP/1.1\r\nHost: api.test:8080\r\nX-Kept: two words\r\n"
        b"Content-Length: 3\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ((), 0),
        (("Content-Length: 0",), 0),
        (("content-length: 12",), 12),
        (("Transfer-Encoding: Chunked",), "chunked"),
    ],
)
def test_the_end_of_a_requests_body(fields: tuple[str, ...], body: object) -> None:
    head = request(*fields)
    assert head.body == body
    assert head.onward(THERE).lower().count(b"content-length") == len(fields) * (body != "chunked")


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Length: 1", "Transfer-Encoding: chunked"),
        ("Content-Length: 1", "Content-Length: 1"),
        ("Content-Length: 1, 1",),
        ("Content-Length: +1",),
        ("Content-Length: -1",),
        ("Content-Length: 0x1",),
        ("Content-Length: ",),
        ("Content-Length: 1_0",),
        ("Content-Length: \u00b2",),
        ("Content-Length: 9999999999999999999",),
        ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding\t: chunked",),
        (" Transfer-Encoding: chunked",),
        ("Transfer-Encoding:\x0bchunked",),
        ("X: 1", " folded"),
        ("X: 1", "\tfolded"),
        ("X: a\rb",),
        ("X: a\nContent-Length: 5",),
        ("X: a\x00b",),
        ("X: a\x7fb",),
        ("X",),
        (": x",),
        ("X Y: 1",),
        ("X\u00e9: 1",),
        ("Host: a.test", "Host: b.test"),
    ],
)
def test_an_ambiguous_request_is_refused(fields: tuple[str, ...]) -> None:
    with pytest.raises(BadMessage):
        request(*fields)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "GET",
        "GET http://api.test/",
        "GET  http://api.test/ HTTP/1.1",
        "GET http://api.test/ HTTP/1.1 ",
        " GET http://api.test/ HTTP/1.1",
        "GET\thttp://api.test/\tHTTP/1.1",
        "GET http://api.test/ HTTP/2.0",
        "GET http://api.test/ HTTP/1.10",
        "GET http://api.test/ http/1.1",
        "GET http://api.test/a b HTTP/1.1",
        "GET http://api.test/\x01 HTTP/1.1",
        "G(T http://api.test/ HTTP/1.1",
        "GET http://api.test/\xff HTTP/1.1",
        "PRI * HTTP/2.0",
    ],
)
def test_a_malformed_request_line_is_refused(line: str) -> None:
    with pytest.raises(BadMessage):
        request(line=line)


def test_an_old_client_cannot_send_chunks() -> None:
    with pytest.raises(BadMessage):
        request("Transfer-Encoding: chunked", line="POST http://api.test/ HTTP/1.0")


@pytest.mark.parametrize("raw", [b"", b"GET / HTTP/1.1\n\n", b"GET / HTTP/1.1\r\nA: 1\n\r\n", b"\r\n\r\n"])
def test_other_line_ends_are_refused(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        RequestHead.parse(raw)


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_crashes(data: bytes) -> None:
    for raw in (data, data + b"\r\n\r\n", b"GET http://a.test/ HTTP/1.1\r\n" + data + b"\r\n\r\n"):
        try:
            sent = RequestHead.parse(raw).onward(THERE)
        except BadMessage:
            continue
        # What is let through is read in the same way again.
        again = RequestHead.parse(sent)
        assert again.onward(THERE) == sent


@pytest.mark.parametrize(
    ("fields", "more", "body"),
    [
        (("Content-Length: 5",), {}, 5),
        (("Content-Length: 5", "Content-Length: 5"), {}, 5),
        (("Content-Length: 5", "Transfer-Encoding: chunked"), {}, "chunked"),
        ((), {}, "rest"),
        (("Content-Length: 5",), {"method": "HEAD"}, 0),
        (("Content-Length: 5",), {"status": "304 Not Modified"}, 0),
        (("Transfer-Encoding: chunked",), {"status": "204"}, 0),
        ((), {"status": "100 Continue"}, 0),
    ],
)
def test_the_end_of_an_answers_body(fields: tuple[str, ...], more: dict[str, str], body: object) -> None:
    assert response(*fields, **more).body == body


def test_a_forwarded_answer_closes_the_connection() -> None:
    head = response(
        "Connection: keep-alive, x-hop", "X-Hop: 1", "Set-Cookie: a", "set-cookie: b", "Content-Length: 5"
    )
    assert head.onward(chunked=False) == (
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
    )
    head = response("Transfer-Encoding: chunked", "Content-Length: 5")
    assert b"\r\nTransfer-Encoding: chunked\r\nConnection: close" in head.onward(chunked=True)
    assert b"Content-Length" not in head.onward(chunked=True) + head.onward(chunked=False)
    assert b"Content-Length: 5" in response("Content-Length: 5", method="HEAD").onward(chunked=False)


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: x",),
        ("Transfer-Encoding: gzip",),
        ("A: 1", " b"),
    ],
)
def test_an_ambiguous_answer_is_refused(fields: tuple[str, ...]) -> None:
    with pytest.raises(BadMessage):
        response(*fields)
