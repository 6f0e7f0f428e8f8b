"""The first message of TLS: parsed in any division, and never misread."""

from __future__ import annotations

import itertools
import ssl

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolcrib.egress.proxy.tunnel import MAX_HELLO_BYTES, ClientHello, HelloReader

CONTEXT = ssl.create_default_context()


def real_hello(name: str | None) -> bytes:
    """Return the first message of OpenSSL."""
    context = CONTEXT
    if name is None:
        context = ssl.create_default_context()
        context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def vector(size: int, data: bytes) -> bytes:
    return len(data).to_bytes(size) + data


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2) + vector(2, content)


def names(*entries: bytes, kind: int = 0) -> bytes:
    return extension(0, vector(2, b"".join(bytes([kind]) + vector(2, entry) for entry in entries)))


def message(extensions: bytes | None) -> bytes:
    """A handshake message of our own making."""
    body = b"\x03\x03" + bytes(32) + vector(1, b"") + vector(2, b"\x13\x01") + vector(1, b"\x00")
    if extensions is not None:
        body += vector(2, extensions)
    return b"\x01" + vector(3, body)


def records(data: bytes, size: int = 1 << 14) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"\x16\x03\x01" + vector(2, piece) for piece in pieces)


def read(data: bytes) -> ClientHello | None:
    return HelloReader().feed(data)


@pytest.mark.parametrize("name", ["api.example.org", "a.b", None])
def test_what_openssl_sends_is_read(name: str | None) -> None:
    assert read(real_hello(name)) == ClientHello(name)


REAL = real_hello("api.example.org")


@given(st.lists(st.integers(0, len(REAL)), max_size=8), st.integers(1, 600))
@example(list(range(len(REAL))), 1)
def test_it_is_read_however_it_is_split(cuts: list[int], size: int) -> None:
    data = records(REAL[5:], size)
    reader = HelloReader()
    edges = [0, *sorted(cut * len(data) // len(REAL) for cut in cuts), len(data)]
    answers = [reader.feed(data[a:b]) for a, b in itertools.pairwise(edges)]
    assert [it for it in answers if it is not None] == [ClientHello("api.example.org")]


@given(st.integers(0, len(REAL) - 1))
def test_a_part_of_it_is_not_enough(size: int) -> None:
    assert read(REAL[:size]) is None


@given(st.binary(max_size=400))
@example(b"\x16\x03\x01\xff\xff")
@example(b"\x16\x03\x01\x00\x00")
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    for start in (b"", b"\x16\x03\x01", REAL[:5]):
        try:
            hello = read(start + data)
        except ValueError:
            continue
        assert hello is None or isinstance(hello, ClientHello)


@given(st.integers(0, len(REAL) - 1), st.integers(0, 255))
def test_a_changed_byte_never_crashes(at: int, value: int) -> None:
    data = bytearray(REAL)
    data[at] = value
    try:
        hello = read(bytes(data))
    except ValueError:
        return
    assert hello is None or isinstance(hello, ClientHello)


@pytest.mark.parametrize("data", [b"\x15", b"\x14\x03", b"\x17\x03\x03", b"\x16\x02", b"GET", b"\x80\x2e"])
def test_another_record_before_the_hello_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a handshake"):
        read(data)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (records(b"\x00\x00\x00\x00"), "not a client's hello"),
        (records(message(names(b"a.org") + names(b"b.org"))), "two servers"),
        (records(message(names(b"a.org", b"b.org"))), "left over"),
        (records(message(names(b"a.org", kind=1))), "something other than"),
        (records(message(names(b""))), "not a host name"),
        (records(message(names(b"\xff.org"))), "not a host name"),
        (records(message(names())), "breaks off"),
        (records(message(b"\x00\x00\x00\x09\x00")), "breaks off"),
        (records(message(b"")[:-1] + b"\x05"), "breaks off"),
        (records(message(names(b"a.org")) + message(names(b"b.org"))), "another message"),
        (records(b"\x01\xff\xff\xff"), "too long"),
        (records(b"\x01\x00\x7f\xf0" + bytes(MAX_HELLO_BYTES), 1), "too long"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read(data)


def test_a_hello_without_extensions_names_nobody() -> None:
    assert read(records(message(None))) == read(records(message(b""))) == ClientHello(None)


def test_a_hidden_hello_is_noticed() -> None:
    hello = records(message(names(b"a.org") + extension(0xFE0D, b"\x00")))
    assert read(hello) == ClientHello("a.org", encrypted=True)
