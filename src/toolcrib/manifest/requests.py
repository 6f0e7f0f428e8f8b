"""Check the request of an HTTP tool: its address, and that styles, body and auth fit each other.

Lint and the executor use the same functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.errors import HostNotAllowed, ManifestError
from toolcrib.spec import Auth, Choice, Hmac, HttpExec, Network, OAuth2, Tool
from toolcrib.template import Namespaces, escape, problems, references
from toolcrib.template.styles import STYLES
from toolcrib.template.url import UrlTemplate, parse_url

if TYPE_CHECKING:
    from toolcrib.egress import HostPolicy


TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header or cookie (RFC 9110, 5.6.2)."""
SET_BY_CLIENT = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization"}
    | {"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that no tool can give: with a second length, a request could look like two."""
_OF_CLIENT = "the header {} is set by the client and cannot be given"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HTTP = ("exec", "http")
_URL = (*_HTTP, "url")
_LONE = re.compile(r"\$\{[^{}]+\}")


class RequestFault(NamedTuple):
    """One thing wrong with a request."""

    rule: str
    path: tuple[str | int, ...]
    message: str
    hint: str | None = None


def bind_url(url: str, network: Network, names: Namespaces) -> UrlTemplate:
    """Return the parsed URL. Its host may have placeholders only if the permission lists the hosts."""
    return parse_url(url, names, host_placeholders=network.mode == "hosts")


def bind_policy(url: UrlTemplate, network: Network, allowed_hosts: tuple[str, ...] | None) -> HostPolicy:
    """Return the hosts that the tool may reach. Raises ManifestError if its own URL is not among them."""
    from toolcrib.egress import Destination, HostPolicy

    if network.mode == "none":
        raise ManifestError("the tool calls a URL, but permissions.network is false")
    try:
        host = url.literal_host
        own = Destination.parse(f"{url.scheme}://{host}:{url.port}") if host is not None else None
        policy = HostPolicy.of(
            network, own.host if own else None, own.port if own else url.port, allowed_hosts=allowed_hosts
        )
    except ValueError as error:
        raise ManifestError(str(error)) from None
    if own is not None:
        try:
            HostPolicy(policy.rules).check(own)
        except HostNotAllowed as error:
            raise ManifestError(error.message, hint=error.hint, details=error.details) from None
    return policy


def url_faults(url: str, network: Network, names: Namespaces) -> Iterator[RequestFault]:
    """Yield the reasons why a request to `url` cannot be sent; bad placeholders are another check."""
    if problems(url, names):
        return
    try:
        parsed = bind_url(url, network, names)
    except ManifestError as error:
        yield RequestFault("url", _URL, error.message, error.hint)
        return
    if network.mode == "none":
        return
    try:
        bind_policy(parsed, network, None)
    except ManifestError as error:
        yield RequestFault("network", _URL, error.message, error.hint)


def request_faults(tool: Tool, names: Namespaces) -> Iterator[RequestFault]:
    """Yield the reasons why a request cannot be made; placeholders and URL are other checks."""
    config = tool.config
    assert isinstance(config, HttpExec)
    if config.styles:
        yield from _styles(config, names)
    yield from _headers(config)
    yield from _fractions(config)
    yield from _body(config)
    yield from _cookies(tool, config)
    for at, auth in enumerate(tool.auth):
        where = ("auth", at) if len(tool.auth) > 1 else ("auth",)
        yield from _auth(tool, auth, where)


def signed(auth: Auth) -> tuple[str, str, str] | None:
    """Return what an entry of `auth` adds: `header`, `query` or `cookie`, a name, and a template as value.

    None for basic, which no template can express.
    """
    if auth.type == "bearer":
        return "header", "Authorization", f"Bearer ${{secret:{auth.secret}}}"
    if auth.type == "api_key" and auth.location is not None and auth.name is not None:
        return auth.location, escape(auth.name), f"${{secret:{auth.secret}}}"
    return None


def with_auth_written(tool: Tool, config: HttpExec) -> Tool:
    """Return the tool with its `auth` as headers and query of the request; what no template can say stays."""
    headers, query = dict(config.headers), dict(config.query)
    left: list[Auth] = []
    for auth in tool.auth:
        place, name, value = signed(auth) or ("", "", "")
        if place == "header" and name.lower() not in {header.lower() for header in headers}:
            headers[name] = value
        elif place == "query" and name not in query:
            query[name] = value
        else:
            left.append(auth)
    return replace(tool, config=replace(config, headers=headers, query=query), auth=tuple(left))


def _styles(config: HttpExec, names: Namespaces) -> Iterator[RequestFault]:
    """Check that each style belongs to an argument whose position allows it."""
    places = _places(config)
    for name, style in config.styles.items():
        path = (*_HTTP, "styles", name)
        if name not in names.arguments:
            yield RequestFault("style", path, f"`{name}` is not an argument", "declare it in inputs.schema")
            continue
        found = places.get(name)
        if not found:
            message = f"`${{{name}}}` is not a whole value in a path, query, header, cookie or form"
            yield RequestFault("style", path, message, f'write the whole value as "${{{name}}}"')
        for place in sorted(found or ()):
            if style.style not in STYLES[place]:
                message = f"the style {style.style} is not allowed in a {place}"
                yield RequestFault("style", path, message, f"one of {', '.join(STYLES[place])}")


def _places(config: HttpExec) -> dict[str, set[str]]:
    """Return argument names to the kinds of position, outside JSON, where they are used."""
    found: dict[str, set[str]] = {}
    try:
        for reference in references(config.url.partition("?")[0]):
            found.setdefault(reference.name, set()).add("path")
        for place, _, entries in _texts_sent(config):
            for value in entries.values():
                text = value if isinstance(value, str) else ""
                inside = references(text)
                if len(inside) == 1 and inside[0].length == len(text):
                    found.setdefault(inside[0].name, set()).add(place)
    except ManifestError:
        return found
    return found


def _texts_sent(config: HttpExec) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the values that are sent as text: kind of position, key in the block, and values by name."""
    yield "query", "query", config.query
    yield "header", "headers", config.headers
    yield "cookie", "cookies", config.cookies
    if isinstance(config.body, dict) and (config.body_format == "form" or is_form(config)):
        yield "query", "body", config.body


def _headers(config: HttpExec) -> Iterator[RequestFault]:
    """Check the names of headers, and that no text in them ends one."""
    seen: set[str] = set()
    for name, value in config.headers.items():
        place, lower = (*_HTTP, "headers", name), name.lower()
        if not TOKEN.fullmatch(name):
            yield RequestFault("body", place, f"`{name}` is not a header name")
        elif lower in SET_BY_CLIENT:
            yield RequestFault("body", place, _OF_CLIENT.format(name))
        elif lower in seen:
            yield RequestFault("body", place, f"the header {name} is given twice")
        elif any(map(_CONTROL.search, _texts(value))):
            message = "a header cannot contain line breaks or other control characters"
            yield RequestFault("body", place, message)
        seen.add(lower)


def _fractions(config: HttpExec) -> Iterator[RequestFault]:
    """Check that no number with a fraction is sent as text: YAML and JSON drop how 1.10 was written."""
    for place, key, entries in _texts_sent(config):
        for name, value in entries.items():
            if _is_float(value):
                noun = "query value" if place == "query" else place
                message = (
                    f"the {noun} {name} is a number, which may be sent as another text than is written here"
                )
                yield RequestFault("body", (*_HTTP, key, name), message, "put it in quotes, as it is written")


def _is_float(value: Any) -> bool:
    """Return True if a value, or one of a list or choice, is a number with a fraction or an exponent."""
    if isinstance(value, Choice):
        return any(_is_float(branch) for _, branch in value.branches)
    if isinstance(value, list):
        return any(map(_is_float, value))
    return isinstance(value, float)


def _texts(value: Any) -> Iterator[str]:
    """Yield a text, or the texts that a choice has."""
    if isinstance(value, Choice):
        yield from (text for _, branch in value.branches for text in _texts(branch))
    else:
        yield str(value)


def is_form(config: HttpExec) -> bool:
    """Return True if the headers say that the body is a form."""
    types = (str(value) for name, value in config.headers.items() if name.lower() == "content-type")
    return next(types, "").startswith("application/x-www-form-urlencoded")


def _body(config: HttpExec) -> Iterator[RequestFault]:
    form, body = config.body_format, config.body
    path = (*_HTTP, "body_format")
    if form is not None and body is None:
        yield RequestFault("body", path, f"`body_format` is {form}, but there is no `body`")
        return
    if form in ("form", "multipart") and not isinstance(body, dict) and not _LONE.fullmatch(str(body)):
        hint = 'write a mapping, or the whole body as "${name}"'
        yield RequestFault("body", path, f"a body of format {form} is a mapping of its fields", hint)
    if form in ("text", "binary", "file") and not isinstance(body, str):
        yield RequestFault("body", path, f"a body of format {form} is one text")
    if form == "multipart" and any(name.lower() == "content-type" for name in config.headers):
        message = "the content type of a multipart body is set by the client, with its boundary"
        yield RequestFault("body", (*_HTTP, "headers"), message)
    for name, part in config.parts.items():
        place = (*_HTTP, "parts", name)
        if form != "multipart":
            yield RequestFault("body", place, "`parts` is for `body_format: multipart` only")
        elif isinstance(body, dict) and name not in body:
            yield RequestFault("body", place, f"`body` has no field `{name}`")
        if part.content_type is not None and not part.content_type.isprintable():
            yield RequestFault("body", place, "`content_type` contains a control character")


def _cookies(tool: Tool, config: HttpExec) -> Iterator[RequestFault]:
    keys = [auth.name for auth in tool.auth if auth.location == "cookie"]
    for name in config.cookies:
        if not TOKEN.fullmatch(name):
            yield RequestFault("body", (*_HTTP, "cookies", name), f"`{name}` is not the name of a cookie")
    if (config.cookies or keys) and any(name.lower() == "cookie" for name in config.headers):
        message = "write cookies in `cookies` or in the header Cookie, not in both"
        yield RequestFault("body", (*_HTTP, "headers"), message)


def _auth(tool: Tool, auth: Auth, path: tuple[str | int, ...]) -> Iterator[RequestFault]:
    config = tool.config
    assert isinstance(config, HttpExec)
    declared = {secret.name for secret in tool.permissions.secrets}
    needed = {"basic": "username_secret", "oauth2": "oauth2"}.get(auth.type, "secret")
    if getattr(auth, needed) is None:
        yield RequestFault("auth", path, f"`auth` of type {auth.type} needs `{needed}`")
    for field in ("hmac", "oauth2"):
        if getattr(auth, field) is not None and auth.type != field:
            yield RequestFault("auth", path, f"`{field}` is for {field}, not for {auth.type}")
    if auth.oauth2 is not None:
        yield from _oauth2(tool, auth, auth.oauth2, path)
    for name in (auth.secret, auth.username_secret, auth.oauth2 and auth.oauth2.refresh_secret):
        if name is not None and name not in declared:
            hint = f"add to permissions.secrets: {name}: {{type: string, required: true}}"
            yield RequestFault("auth", path, f"the secret {name} is not declared", hint)
    yield from _key(config, auth, path)


def _oauth2(tool: Tool, auth: Auth, rule: OAuth2, path: tuple[str | int, ...]) -> Iterator[RequestFault]:
    """Check that the token can be fetched: addresses, the client's id, and what the grant needs."""
    assert isinstance(tool.config, HttpExec)
    own = tool.config.url
    for field in ("token_url", "device_url"):
        url = getattr(rule, field)
        if url is not None and "${" in url:
            yield RequestFault("auth", (*path, "oauth2", field), f"`{field}` cannot contain a placeholder")
        elif url is not None:
            if tool.permissions.network.mode != "hosts" and _host(url) != _host(own):
                message = (
                    f"`{field}` has another host than the tool, which `permissions.network` does not list"
                )
                yield RequestFault("auth", (*path, "oauth2", field), message, "write {allow: [both hosts]}")
            for fault in url_faults(url, tool.permissions.network, Namespaces.of(tool)):
                yield RequestFault("auth", (*path, "oauth2", field), fault.message, fault.hint)
    # True if both are there, and if neither is.
    if (rule.client_id is None) is (auth.username_secret is None):
        yield RequestFault("auth", path, "oauth2 needs either `client_id` or `username_secret`")
    needed = {"refresh_token": "refresh_secret", "device_code": "device_url"}.get(rule.grant)
    if needed is not None and getattr(rule, needed) is None:
        yield RequestFault("auth", path, f"the grant {rule.grant} needs `{needed}`")


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].lower()


def _key(config: HttpExec, auth: Auth, path: tuple[str | int, ...]) -> Iterator[RequestFault]:
    """Check the place of an API key, and that the request does not set it too."""
    if auth.type not in ("api_key", "hmac"):
        if auth.location is not None or auth.name is not None:
            yield RequestFault("auth", path, f"`in` and `name` are for api_key and hmac, not for {auth.type}")
        place, name = "header", "Authorization"
    elif auth.location is None or auth.name is None:
        yield RequestFault("auth", path, f"`auth` of type {auth.type} needs `in` and `name`")
        return
    else:
        place, name = auth.location, auth.name
    rule = auth.hmac or Hmac()
    for kind, given in ((place, name), ("header", rule.timestamp_header), ("header", rule.nonce_header)):
        if given is not None and kind != "query" and not TOKEN.fullmatch(given):
            yield RequestFault("auth", path, f"`{given}` is not the name of a {kind}")
        elif given is not None and kind == "header" and given.lower() in SET_BY_CLIENT:
            yield RequestFault("auth", path, _OF_CLIENT.format(given))
    entries = {"header": config.headers, "query": config.query, "cookie": config.cookies}[place]
    taken = {entry.lower() for entry in entries} if place == "header" else set(entries)
    if (name.lower() if place == "header" else name) in taken:
        yield RequestFault("auth", path, f"the {place} {name} is given by `auth` and by the request")
