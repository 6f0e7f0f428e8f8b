"""Security schemes of a document as the `auth` of a tool, with a secret for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolcrib.manifest.openapi.document import MAX_NAME, Node, OpenApiDocument, RefProblem, unique
from toolcrib.manifest.requests import TOKEN
from toolcrib.spec import Auth, SecretSpec
from toolcrib.spec.record import record

_LONGEST_TITLE = 24


@record
class OperationAuth:
    """The credentials of an operation."""

    auth: tuple[Auth, ...] = ()
    secrets: tuple[SecretSpec, ...] = ()
    notes: tuple[str, ...] = ()


class Security:
    """The security schemes of one document; `names` replaces the names of secrets, by scheme."""

    def __init__(self, document: OpenApiDocument, title: str, names: Mapping[str, str] | None) -> None:
        self._document = document
        self._title = _cut(title, _LONGEST_TITLE, " ")
        self._given = dict(names or {})
        root = document.root
        old = document.version == "2.0"
        self._schemes = root.at("securityDefinitions") if old else root.at("components", "securitySchemes")
        self._secrets: dict[tuple[str, str], str] = {}

    def of(self, operation: Node) -> OperationAuth:
        """Return the credentials of an operation: the first of its alternatives that is supported."""
        own = operation.object.get("security")
        wanted = own if isinstance(own, list) else self._document.root.object.get("security")
        return self._choose(wanted)

    def header(self, required: bool) -> OperationAuth:
        """Return a secret for an operation that has `Authorization` as a parameter."""
        secret = self._secret("authorization")
        auth = Auth("api_key", secret, location="header", name="Authorization")
        note = f"the parameter Authorization is the secret {secret}"
        return OperationAuth((auth,), (SecretSpec(secret, required=required),), (note,))

    def _choose(self, wanted: Any) -> OperationAuth:
        optional = False
        faults: list[str] = []
        best: OperationAuth | None = None
        for alternative in wanted if isinstance(wanted, list) else ():
            if not isinstance(alternative, dict):
                continue
            # An empty requirement makes all others optional (OpenAPI 3.0, Security Requirement Object).
            if not alternative:
                optional = True
                continue
            found = self._together(alternative)
            if isinstance(found, str):
                faults.append(found)
            elif best is None or (best.notes and not found.notes):
                # A note is about a token that a person must get first, or about a key that is not sent.
                best = found
        if best is None:
            reasons = "; ".join(dict.fromkeys(faults))
            return OperationAuth(notes=(f"called without credentials: {reasons}",) if reasons else ())
        if optional:
            secrets = tuple(SecretSpec(secret.name, required=False) for secret in best.secrets)
            return OperationAuth(best.auth, secrets, best.notes)
        return best

    def _together(self, names: Mapping[str, Any]) -> OperationAuth | str:
        """Return all schemes of one alternative, or the reason that it is not supported."""
        parts: list[OperationAuth] = []
        for name in names:
            found = self._read(name)
            if isinstance(found, str):
                return found
            parts.append(found)
        return _joined(parts)

    def _read(self, name: str) -> OperationAuth | str:
        try:
            node = self._document.follow(self._schemes.at(name))
        except RefProblem as problem:
            return f"the security scheme {name!r} cannot be read: {problem}"
        value = node.object
        kind, scheme = str(value.get("type", "")).lower(), str(value.get("scheme", "")).lower()
        if kind == "basic" or (kind == "http" and scheme == "basic"):
            user, password = self._secret(name, "user"), self._secret(name, "password")
            secrets = (SecretSpec(user), SecretSpec(password, required=False))
            return OperationAuth((Auth("basic", password, user),), secrets)
        secret = self._secret(name)
        if kind == "apikey":
            place, key = str(value.get("in", "")).lower(), value.get("name")
            if place not in ("header", "query", "cookie") or not isinstance(key, str) or not key.strip():
                return f"the security scheme {name!r} has no valid `in` or `name`"
            # A line break in the name of a header would add headers to every request.
            if place != "query" and not TOKEN.fullmatch(key.strip()):
                return f"the security scheme {name!r} has a `name` that is not valid in a {place}"
            auth = Auth("api_key", secret, location=place, name=key.strip())  # type: ignore[arg-type]  # checked
            return OperationAuth((auth,), (SecretSpec(secret),))
        if kind == "http" and scheme == "bearer":
            return OperationAuth((Auth("bearer", secret),), (SecretSpec(secret),))
        if kind in ("oauth2", "openidconnect"):
            note = f"{name} is {value['type']}: {secret} must hold an access token, which you get yourself"
            return OperationAuth((Auth("bearer", secret),), (SecretSpec(secret),), (note,))
        if not value:
            return f"the security scheme {name!r} is not defined"
        return f"the security scheme {name!r} ({' '.join(filter(None, (kind, scheme)))}) is not supported"

    def _secret(self, scheme: str, part: str = "") -> str:
        given = self._given.get(scheme)
        if given is not None:
            return f"{given}_{part.upper()}" if part else given
        if (scheme, part) not in self._secrets:
            name = unique(variable(self._title, scheme, part), set(self._secrets.values()))
            self._secrets[scheme, part] = name
        return self._secrets[scheme, part]


def _joined(parts: list[OperationAuth]) -> OperationAuth:
    """Combine several schemes; of those that set the same header only the first is used."""
    auth: dict[tuple[str, str], Auth] = {}
    secrets: dict[str, SecretSpec] = {}
    notes: list[str] = []
    for part in parts:
        notes += part.notes
        (one,) = part.auth
        first = auth.setdefault(_place(one), one)
        if first == one:
            secrets |= {secret.name: secret for secret in part.secrets}
        else:
            where = " ".join(_place(one))
            notes.append(f"the {where} is set by {first.secret} and {one.secret}; only the first is sent")
    return OperationAuth(tuple(auth.values()), tuple(secrets.values()), tuple(dict.fromkeys(notes)))


def _place(auth: Auth) -> tuple[str, str]:
    if auth.type == "api_key":
        name = auth.name or ""
        # Names of headers have no case (RFC 9110, 5.1).
        return auth.location or "", name.lower() if auth.location == "header" else name
    return "header", "authorization"


def variable(*words: str) -> str:
    """Return the name of an environment variable made of some words."""
    plain = "_".join(re.sub(r"[^A-Za-z0-9]+", "_", word).strip("_") for word in words if word).upper()
    plain = plain or "API"
    return _cut("_" + plain if plain[0].isdigit() else plain, MAX_NAME, "_").rstrip("_")


def _cut(text: str, longest: int, between: str) -> str:
    """Return a text of at most this length, cut between two words where there are several."""
    return text if len(text) <= longest else text[: longest + 1].rpartition(between)[0] or text[:longest]
