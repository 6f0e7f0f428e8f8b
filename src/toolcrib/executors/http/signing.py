"""Signatures of requests with a shared key (HMAC, RFC 2104), made of the request as it is sent."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets as random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from toolcrib.egress import EgressRequest
from toolcrib.errors import UnavailableError
from toolcrib.spec import Auth, Hmac


class Signer:
    """Signs the requests of one tool by one entry of its `auth`.

    Time stamp and nonce are made anew for each request, so also for each retry. `now` returns seconds since
    1970.
    """

    def __init__(self, auth: Auth, now: Callable[[], float] = time.time) -> None:
        self._auth = auth
        self._rule = auth.hmac or Hmac()
        self._now = now
        rule = self._rule
        headers = (rule.timestamp_header, rule.nonce_header, auth.name if auth.location == "header" else None)
        self.headers = frozenset(name.lower() for name in headers if name)
        """The headers that it sets, in lower case; they never follow a redirect to another origin."""

    def sign(self, request: EgressRequest, secrets: Mapping[str, str]) -> None:
        """Add the signature, and the time stamp and the nonce that it covers."""
        rule, auth = self._rule, self._auth
        key = secrets.get(auth.secret or "")
        if key is None:
            return
        # Anew for each request: servers refuse a nonce that they have seen.
        stamp, nonce = self._stamp(), random.token_hex(16)
        message = rule.separator.encode().join(_part(part, request, stamp, nonce) for part in rule.parts)
        digest = hmac.new(self._key(key), message, getattr(hashlib, rule.algorithm)).digest()
        user = secrets.get(auth.username_secret or "", "")
        names = {
            "signature": _written(digest, rule.encoding),
            "timestamp": stamp,
            "nonce": nonce,
            "username": user,
        }
        value = rule.value
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
        given = ((rule.timestamp_header, stamp), (rule.nonce_header, nonce))
        headers = [(name, text) for name, text in given if name]
        if auth.location == "query":
            mark = "&" if urlsplit(request.url).query else "?"
            request.url += f"{mark}{quote(auth.name or '', safe='')}={quote(value, safe='')}"
        else:
            headers.append((auth.name or "", value))
        request.headers = [*request.headers, *headers]

    def _stamp(self) -> str:
        now = self._now()
        if self._rule.timestamp == "iso":
            return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return str(int(now * 1000) if self._rule.timestamp == "unix_ms" else int(now))

    def _key(self, text: str) -> bytes:
        try:
            if self._rule.key_encoding == "base64":
                return base64.b64decode(text, validate=True)
            return bytes.fromhex(text) if self._rule.key_encoding == "hex" else text.encode()
        except (binascii.Error, ValueError):
            message = (
                f"the secret {self._auth.secret} is not {self._rule.key_encoding}, as `key_encoding` says"
            )
            raise UnavailableError(message) from None


def _part(part: str, request: EgressRequest, stamp: str, nonce: str) -> bytes:
    """Return one part of the message that is signed."""
    kind, _, rest = part.partition(":")
    url = urlsplit(request.url)
    if kind == "body":
        return request.body or b""
    if kind == "header":
        found = (value for name, value in request.headers if name.lower() == rest.lower())
        return next(found, "").encode()
    texts: dict[str, str] = {
        "text": rest,
        "method": request.method,
        "url": request.url,
        "host": url.netloc,
        "path": url.path or "/",
        "query": url.query,
        "target": f"{url.path or '/'}{'?' if url.query else ''}{url.query}",
        "timestamp": stamp,
        "nonce": nonce,
    }
    if kind in texts:
        return texts[kind].encode()
    digest = getattr(hashlib, kind.removeprefix("body_"))(request.body or b"")
    return str(digest.hexdigest()).encode()


def _written(digest: bytes, encoding: str) -> str:
    if encoding == "hex":
        return digest.hex()
    if encoding == "base64":
        return base64.b64encode(digest).decode()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
