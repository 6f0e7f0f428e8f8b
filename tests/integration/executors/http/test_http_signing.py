"""Signed requests: known answers, and the bytes that reach a server."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.executors.http.http_doubles import Attempt, Server, a_tool
from toolcrib.egress import EgressRequest
from toolcrib.errors import HttpFailed, UnavailableError
from toolcrib.executors.http.executor import HttpExecutor
from toolcrib.executors.http.signing import Signer
from toolcrib.spec import Auth, Call, Hmac

GITHUB = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
RFC_4231_CASE_2 = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
RFC_2202_CASE_2 = "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
WHAT = b"what do ya want for nothing?"
KNOWN = [
    ("It's a Secret to Everybody", b"Hello, World!", {"value": "sha256={signature}"}, f"sha256={GITHUB}"),
    ("Jefe", WHAT, {}, RFC_4231_CASE_2),
    ("4a656665", WHAT, {"key_encoding": "hex"}, RFC_4231_CASE_2),
    (
        "SmVmZQ==",
        WHAT,
        {"key_encoding": "base64", "encoding": "base64"},
        b64encode(bytes.fromhex(RFC_4231_CASE_2)).decode(),
    ),
    ("Jefe", WHAT, {"algorithm": "sha1"}, RFC_2202_CASE_2),
]


@pytest.mark.parametrize(("key", "body", "rule", "expected"), KNOWN)
def test_known_answers(key: str, body: bytes, rule: dict[str, Any], expected: str) -> None:
    auth = Auth("hmac", "KEY", location="header", name="X-Signature", hmac=Hmac(parts=("body",), **rule))
    request = EgressRequest("POST", "https://api.example.com/", body=body)
    Signer(auth).sign(request, {"KEY": key})
    assert list(request.headers) == [("X-Signature", expected)]


def test_every_part_of_a_request() -> None:
    parts = (
        "text:v0",
        "method",
        "url",
        "host",
        "path",
        "query",
        "target",
        "timestamp",
        "header:X-A",
        "body_sha256",
    )
    rule = Hmac(
        parts=parts, separator="|", timestamp="iso", timestamp_header="X-Time", value="{username}:{signature}"
    )
    auth = Auth("hmac", "KEY", "USER", "header", "Authorization", hmac=rule)
    request = EgressRequest("PUT", "https://a.example:8443/p%20q?x=1", [("x-a", "1")], b"{}")
    Signer(auth, lambda: 1_700_000_000.9).sign(request, {"KEY": "k", "USER": "me"})
    message = (
        "v0|PUT|https://a.example:8443/p%20q?x=1|a.example:8443|/p%20q|x=1|/p%20q?x=1|2023-11-14T22:13:20Z|1|"
        + hashlib.sha256(b"{}").hexdigest()
    )
    digest = hmac.new(b"k", message.encode(), hashlib.sha256).hexdigest()
    assert dict(request.headers) == {
        "x-a": "1",
        "X-Time": "2023-11-14T22:13:20Z",
        "Authorization": f"me:{digest}",
    }


def test_a_key_in_another_form_is_refused_without_its_value() -> None:
    auth = Auth("hmac", "KEY", location="header", name="X", hmac=Hmac(key_encoding="hex"))
    with pytest.raises(UnavailableError, match="KEY is not hex") as raised:
        Signer(auth).sign(EgressRequest("GET", "https://a.example"), {"KEY": "nothex"})
    assert "nothex" not in str(raised.value)


async def test_each_attempt_is_signed_anew_over_the_body_that_is_sent(http_server: Server) -> None:
    rule = Hmac(parts=("timestamp", "nonce", "body"), timestamp_header="X-Time", nonce_header="X-Nonce")
    auth = Auth("hmac", "KEY", location="query", name="sig", hmac=rule)
    tool = replace(a_tool(http_server.port, "/x?y=1", method="POST", body={"a": "${a}"}), auth=(auth,))
    clock = iter([100.0, 200.0])
    executor = HttpExecutor(tool, http_server.egress, now=lambda: next(clock))
    http_server.json({}, status=503)
    for _ in range(2):
        with pytest.raises(HttpFailed) as raised:
            await executor.run(Call("t", {"a": "é"}), Attempt({"KEY": "Jefe"}))
        assert raised.value.retryable
    assert [request.headers["X-Time"] for request in http_server.got] == ["100", "200"]
    for request, body in zip(http_server.got, http_server.bodies, strict=True):
        message = "\n".join([request.headers["X-Time"], request.headers["X-Nonce"], body.decode()])
        assert body == '{"a":"é"}'.encode()
        assert request.query["sig"] == hmac.new(b"Jefe", message.encode(), hashlib.sha256).hexdigest()
        assert request.query["y"] == "1"
    assert http_server.got[0].headers["X-Nonce"] != http_server.got[1].headers["X-Nonce"]
