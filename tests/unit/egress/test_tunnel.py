"""The protocol of a client, by its first bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.egress.proxy.tunnel import protocol_of


@pytest.mark.parametrize(
    ("data", "protocol"),
    [
        (b"", "more"),
        (b"\x16", "tls"),
        (b"\x16\x03", "tls"),
        (b"\x16\x02\x01", "tls"),
        (b"\x16\x00\x00", "tls"),
        (b"\x15\x03\x01\x00\x02\x01\x00\x16\x03", "tls"),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", "other"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "other"),
        (b"*1\r\n$4\r\nPING\r\n", "other"),
        (b"EHLO me\r\n", "other"),
        (b"AMQP\x00\x00\x09\x01", "other"),
        (b"GET / HTTP/1.1\r\n", "http"),
        (b"GET / http/1.1\n", "http"),
        (b"\r\n\r\nGET / HTTP/1.1\r\n", "http"),
        (b" \tX\t/ HTTP/1.1 \r\n", "http"),
        (b"GET / HTTP/1.1", "http"),
        (b"GET /\r\n", "http"),
        (b"GET host.example:80\r\n", "http"),
        (b"GET http://other.example/x\r\n", "http"),
        (b"OPTIONS *\r\n", "http"),
        (b"FETCH\t/x", "http"),
        (b"get /x", "http"),
        (b"FETCH https://", "http"),
        (b"GET /\x00", "http"),
        (b"\x0b", "more"),
        (b"\x0bGET\x0b/", "http"),
        (b"003egit-upload-pack /project.git\x00host=example.org\x00", "other"),
        (b"0032git-upload-pack /x HTTP/1.1\r\n", "http"),
        (b"PING\r\n", "other"),
        (b"get key\r\n", "other"),
        (b"USER me 0 * :/me\r\n", "other"),
        (b"GET", "more"),
        (b"GE", "more"),
        (b"\r\n", "more"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2"),
        (b"a" * 65536, "other"),
        (b"GET /" + b"a" * 65536 + b" HTTP/1.1", "http"),
    ],
)
def test_a_protocol_is_known_by_its_first_bytes(data: bytes, protocol: str) -> None:
    assert protocol_of(data) == protocol


@given(st.binary(min_size=1, max_size=40), st.integers(1, 40))
def test_more_bytes_never_change_what_was_decided(data: bytes, size: int) -> None:
    first = protocol_of(data[:size])
    assert first in ("more", protocol_of(data))
