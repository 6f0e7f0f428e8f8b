"""Access tokens of an outside authorization server: this server is an OAuth 2.1 resource server.

RFC 9728 describes the resource, RFC 8414 the authorization server, RFC 9068 the token. Keys are read from the
server's JWKS, again when a token names an unknown one, so that they may be rotated.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from toolcrib.egress import Egress, EgressRequest, HostPolicy, HostRule
from toolcrib.errors import InvalidToken, ToolcribError, UnavailableError, UsageError
from toolcrib.spec import Caller, Scope
from toolcrib.spec.record import record
from toolcrib.state.installation import install_hint

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

GRANTED: tuple[Scope, ...] = ("read", "invoke")
"""Scopes that an outside server can grant: deciding is for this project's own tokens."""
# A token with HS256 could be signed with the public key as its secret, and `none` has no signature
# (RFC 8725, 2.1).
_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
"""Signatures with a public key only."""
_KEYS_S = 3600.0
# Else anybody who invents key ids makes this server ask the issuer with each request.
_AGAIN_S = 10.0
"""Seconds between two readings of the keys, also where a token has an unknown one or the issuer fails."""
_TIMEOUT_S = 10.0
# Clocks of two machines differ a little (RFC 7519, 4.1.4).
_LEEWAY_S = 30
_MOST_KNOWN = 1_024
_LONGEST = 16 << 10
_WELL_KNOWN = "/.well-known/oauth-protected-resource"


@record
class OAuthResource:
    """The names of this server and of its authorization server."""

    issuer: str
    """Address of the authorization server, exactly as its tokens name it."""
    resource: str
    """Address of this server's MCP endpoint as clients use it: the audience of the tokens."""

    def __post_init__(self) -> None:
        for address in (self.issuer, self.resource):
            parts = urlsplit(address)
            local = parts.hostname in ("localhost", "127.0.0.1", "::1")
            if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
                raise UsageError(f"{address!r} is not an https address")

    @property
    def metadata_path(self) -> str:
        """Path of the description of this resource (RFC 9728, 3.1)."""
        return _WELL_KNOWN + urlsplit(self.resource).path.rstrip("/")

    @property
    def metadata(self) -> dict[str, Any]:
        """The description of this resource."""
        return {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "scopes_supported": list(GRANTED),
            "bearer_methods_supported": ["header"],
        }

    def challenge(self, error: str | None = None) -> str:
        """Return the header WWW-Authenticate of a refusal (RFC 6750, 3)."""
        parts = urlsplit(self.resource)
        address = f"{parts.scheme}://{parts.netloc}{self.metadata_path}"
        about = "" if error is None else f'error="{error}", '
        return f'Bearer {about}scope="invoke", resource_metadata="{address}"'


class OutsideTokens:
    """Verifies the tokens of one authorization server."""

    def __init__(self, named: OAuthResource) -> None:
        self.resource = named
        self._egress = Egress()
        self._keys: KeySet | None = None
        self._read = self._asked = float("-inf")
        self._reading = asyncio.Lock()
        self._known: dict[str, tuple[Caller, float]] = {}

    async def close(self) -> None:
        """Close the connections to the authorization server."""
        await self._egress.aclose()

    @staticmethod
    def is_one(text: str) -> bool:
        """Return True if a bearer token has the form of a JWT."""
        return text.count(".") == 2 and len(text) <= _LONGEST

    async def verify(self, text: str) -> Caller:
        """Return the caller with this token. Raises InvalidToken; UnavailableError without keys."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        caller, ends = self._known.get(digest, (None, 0.0))
        if caller is None or ends <= time.time():
            self._known.pop(digest, None)
            claims = await self._claims(text)
            caller = _caller(claims)
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[digest] = (caller, min(claims["exp"], time.time() + _KEYS_S))
        return caller

    async def _claims(self, text: str) -> Mapping[str, Any]:
        """Return the claims of a token with a good signature that is meant for this server, now."""
        try:
            from joserfc import jwt
            from joserfc.errors import JoseError
        except ImportError:
            raise UnavailableError(
                "tokens of an authorization server need joserfc, which is not installed",
                hint=install_hint("oauth"),
            ) from None
        must: dict[str, Any] = {"exp": {"essential": True}, "sub": {"essential": True}}
        must["iss"] = {"essential": True, "value": self.resource.issuer}
        # A token for another service of this issuer must not work here (RFC 8707): that service could use it.
        must["aud"] = {"essential": True, "value": self.resource.resource}
        reason = ""
        for again in (False, True):
            keys = await self._key_set(again=again)
            try:
                claims = jwt.decode(text, keys, algorithms=list(_ALGORITHMS)).claims
            except (JoseError, ValueError, KeyError, TypeError) as error:
                reason = str(error)
                continue
            try:
                jwt.JWTClaimsRegistry(leeway=_LEEWAY_S, **must).validate(claims)
            except JoseError as error:
                raise _invalid(str(error)) from None
            return claims
        raise _invalid(f"its signature is not valid: {reason[:100]}")

    async def _key_set(self, *, again: bool) -> KeySet:
        """Return the keys; `again` reads them anew, unless that was done a moment ago."""
        # One reading serves all requests that wait for keys.
        async with self._reading:
            now = time.monotonic()
            keys = self._keys if now - self._read <= _KEYS_S else None
            if (keys is None or again) and now - self._asked > _AGAIN_S:
                try:
                    keys = self._keys = await self._read_keys()
                    self._read = time.monotonic()
                    self._known.clear()  # A key may be gone because it was stolen.
                finally:
                    # Also without an answer: while the issuer fails, slowly perhaps, no token waits for it in
                    # turn after all others.
                    self._asked = time.monotonic()
            if keys is None:
                raise UnavailableError(f"{self.resource.issuer} did not answer a moment ago", retryable=True)
            return keys

    async def _read_keys(self) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        parts = urlsplit(self.resource.issuer)
        origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        # RFC 8414, 3.1 puts the well-known part before the path of the issuer; OpenID Connect puts it behind.
        for name in ("oauth-authorization-server", "openid-configuration"):
            found = await self._get(f"{origin}/.well-known/{name}{path}")
            if found is not None:
                break
        else:
            found = await self._get(f"{origin}{path}/.well-known/openid-configuration")
        # RFC 8414, 3.3: another issuer on the same host could otherwise give its keys for this one.
        if found is None or found.get("issuer") != self.resource.issuer:
            raise UnavailableError(f"{self.resource.issuer} does not describe itself as this issuer")
        keys = await self._get(str(found.get("jwks_uri")))
        try:
            return KeySet.import_key_set(keys)  # type: ignore[arg-type] # checked by the library
        except (JoseError, ValueError, TypeError, KeyError):
            raise UnavailableError(f"the keys of {self.resource.issuer} cannot be read") from None

    async def _get(self, url: str) -> dict[str, Any] | None:
        """Return the JSON object at an address; None without one. Private addresses are the issuer's own."""
        issuer = urlsplit(self.resource.issuer)
        policy = HostPolicy((HostRule.parse(issuer.netloc, issuer.port),), any_public=True)
        request = EgressRequest("GET", url, timeout_s=_TIMEOUT_S, follow_redirects=False)
        try:
            answer = await self._egress.request(request, policy)
            found = msgspec.json.decode(answer.body) if answer.status == 200 else None
        except (ToolcribError, ValueError, RecursionError) as error:
            raise UnavailableError(f"{issuer.netloc} does not answer: {error}", retryable=True) from None
        return found if isinstance(found, dict) else None


def _caller(claims: Mapping[str, Any]) -> Caller:
    # RFC 9068 has a text `scope`; some servers write `scp`, also as a list.
    given = claims.get("scope", claims.get("scp", ""))
    words = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    subject = str(claims["sub"])
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", subject).strip("-.")[:40]
    # Different subjects may have the same plain form, and must not become one caller.
    mark = hashlib.sha256(f"{claims['iss']}\0{subject}".encode()).hexdigest()[:12]
    scopes = frozenset(scope for scope in GRANTED if scope in words)
    return Caller(f"oauth-{plain}-{mark}", scopes, owner=subject)


def _invalid(reason: str) -> InvalidToken:
    return InvalidToken(f"the access token is refused: {reason}", hint="Get a new one from its server.")
