"""Where an operation is: server, variables, and the address written out."""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

from toolcrib.manifest.openapi.document import Document, Node
from toolcrib.manifest.openapi.request import Unusable

__all__ = ["NO_SERVER", "Server", "base_url", "checked"]

NO_SERVER = "the document names no server with a host; give one with --server URL"
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_HTTP = ("https", "http")


class Server:
    """The base of an address: scheme and host, and the path in front."""

    __slots__ = ("host", "url")

    def __init__(self, url: str, host: str) -> None:
        self.url = url
        """Without a slash at the end."""
        self.host = host
        """As a permission names it: with the port where it is not the scheme's own."""


def base_url(document: Document, path: Node, operation: Node, given: str | None) -> Server:
    """The server of an operation; `given` takes the place of all others. Raises Unusable without one."""
    if given is not None:
        return checked(given)
    if document.version == "2.0":
        return checked(_of_2_0(document, operation))
    for level in (operation, path, document.root):
        servers = level.at("servers")
        for server in servers.items():
            if isinstance(server.object.get("url"), str):
                return checked(_absolute(_written_out(server), document))
    return checked(_absolute("/", document))


def checked(url: str) -> Server:
    """A server's URL in one form. Raises Unusable for one that no tool can call."""
    try:
        parts = urlsplit(url.strip())
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise Unusable(f"the server {url!r} is no address: {error}") from None
    if parts.scheme.lower() not in _HTTP:
        raise Unusable(f"the server {url!r} is neither http nor https" if parts.scheme else NO_SERVER)
    if not host:
        raise Unusable(NO_SERVER)
    if parts.username is not None or not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise Unusable(f"the server {url!r} has a host that no tool can call")
    own = {"https": 443, "http": 80}[parts.scheme.lower()]
    named = f"[{host}]" if ":" in host else host
    authority = named if port in (None, own) else f"{named}:{port}"
    path = parts.path.rstrip("/")
    return Server(f"{parts.scheme.lower()}://{authority}{path}", authority)


def _of_2_0(document: Document, operation: Node) -> str:
    root = document.root.object
    schemes = operation.object.get("schemes") or root.get("schemes")
    known = [scheme for scheme in _HTTP if isinstance(schemes, list) and scheme in schemes]
    host, base = root.get("host"), root.get("basePath")
    own = urlsplit(document.root.resource.uri)
    scheme = known[0] if known else own.scheme if own.scheme in _HTTP else "https"
    if not isinstance(host, str) or not host:
        host = own.netloc if own.scheme in _HTTP else ""
    # Some write the scheme or the path into the host.
    host = re.sub(r"^https?://", "", host).rstrip("/")
    path = base if isinstance(base, str) else ""
    return f"{scheme}://{host}/{path.lstrip('/')}" if host else ""


def _written_out(server: Node) -> str:
    """The URL with each variable's default, or else its first value."""

    def value(found: re.Match[str]) -> str:
        rule = server.at("variables", found[1]).object
        options = rule.get("enum")
        default = rule.get("default")
        if default is None and isinstance(options, list) and options:
            default = options[0]
        if default is None or default == "":
            if default == "" and found[1] in server.at("variables").object:
                return ""
            raise Unusable(
                f"the server variable {found[1]!r} has no value; give the server with --server URL"
            )
        return str(default)

    url = str(server.value["url"])
    for _ in range(3):  # A default may hold a variable itself.
        written = _VARIABLE.sub(value, url)
        if written == url:
            break
        url = written
    return url


def _absolute(url: str, document: Document) -> str:
    url = url.strip()
    if url.startswith("//"):
        return f"https:{url}"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url):
        return url
    own = document.root.resource.uri
    if own.startswith(("http://", "https://")):
        return urljoin(own, url)
    # A host without its scheme, as some write it.
    if re.match(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:\d+)?(/|$)", url) and not url.startswith("/"):
        return f"https://{url}"
    raise Unusable(NO_SERVER)
