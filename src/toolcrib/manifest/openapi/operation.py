"""Build the tool of one operation: its server, its request and its response."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from toolcrib.manifest.openapi.bodies import ExpectedResponse, expected_response, place_body, place_old_body
from toolcrib.manifest.openapi.document import MAX_NAME, Node, OpenApiDocument, clean
from toolcrib.manifest.openapi.parameters import Parameter, Request, Unusable, collect, place
from toolcrib.manifest.openapi.schemas import Schemas
from toolcrib.manifest.openapi.security import OperationAuth, Security
from toolcrib.manifest.openapi.translation import flag
from toolcrib.manifest.requests import request_faults, url_faults
from toolcrib.spec import Annotations, HttpExec, Network, Permissions, Tool
from toolcrib.spec.record import record
from toolcrib.template import Namespaces, escape

_READS = Annotations(read_only=True, destructive=False, idempotent=True, open_world=True)
_REPLACES = Annotations(read_only=False, destructive=True, idempotent=True, open_world=True)
_ADDS = Annotations(read_only=False, idempotent=False, open_world=True)
METHODS: Mapping[str, Annotations] = {
    "get": _READS,
    "head": _READS,
    "options": _READS,
    "put": _REPLACES,
    "delete": _REPLACES,
    "post": _ADDS,
    "patch": _ADDS,
}
"""The methods of HTTP tools, each with the annotations that it implies (RFC 9110, 9.2)."""

_SEGMENT = re.compile(r"\{([^{}]*)\}")


@record
class Operation:
    """One operation of the document."""

    method: str
    path: str
    item: Node
    """The path item that contains it."""
    node: Node


class ToolBuilder:
    """Builds the tools of one document, which share its schemas and security schemes."""

    def __init__(
        self,
        document: OpenApiDocument,
        losses: dict[str, str],
        *,
        server: str | None = None,
        secrets: Mapping[str, str] | None = None,
        bind: Mapping[str, str] | None = None,
    ) -> None:
        self.document = document
        self._bind = dict(bind or {})
        self.bound: set[str] = set()
        """The secrets of `bind` that some operation uses."""
        self.requests = Schemas(document, "request", losses)
        self.responses = Schemas(document, "response", losses)
        root = document.root
        self.version = clean(str(root.at("info", "version").value or "")) or "1"
        self._security = Security(document, clean(root.at("info", "title").value), secrets)
        self._server = server

    def make(self, operation: Operation, name: str, notes: list[str]) -> Tool:
        """Return the tool of an operation; add its losses to `notes`. Raises Unusable if unsupported."""
        node, document = operation.node, self.document
        server = base_url(document, operation.item, node, self._server)
        parameters = collect(document, operation.item.at("parameters"), node.at("parameters"), notes)
        access = self._access(node, parameters)
        names = {*(secret.name for secret in access.secrets), *self._bind.values()}
        request = Request(frozenset(names), notes=notes, bind=self._bind)
        self._fill(request, operation, parameters, access)
        self.bound |= request.secrets.keys()
        produces = node.object.get("produces", document.root.object.get("produces"))
        found = expected_response(node, produces, self.responses, document)
        if found.accept is not None and not any(key.lower() == "accept" for key in request.headers):
            request.headers["Accept"] = escape(found.accept)
        notes += access.notes
        tool = self._tool(operation, name, request, access, server, found)
        # The checks of `toolcrib lint`: an operation that would fail there is skipped with its reason.
        namespaces = Namespaces.of(tool)
        assert isinstance(tool.config, HttpExec)
        for fault in url_faults(tool.config.url, tool.permissions.network, namespaces):
            raise Unusable(fault.message)
        for wrong in request_faults(tool, namespaces):
            raise Unusable(wrong.message)
        return tool

    def _access(self, node: Node, parameters: list[Parameter]) -> OperationAuth:
        access = self._security.of(node)
        if not access.auth:
            for parameter in parameters:
                if parameter.place == "header" and parameter.name.lower() == "authorization":
                    return self._security.header(parameter.required)
        return access

    def _fill(
        self, request: Request, operation: Operation, parameters: list[Parameter], access: OperationAuth
    ) -> None:
        """Add the parameters, then the body: so parameters keep their names."""
        # A parameter that a security scheme sends is not an argument: a model must not choose the key.
        keys = {(auth.location, (auth.name or "").lower()) for auth in access.auth}
        bodies: list[Parameter] = []
        for parameter in parameters:
            if parameter.place in ("body", "formData"):
                bodies.append(parameter)
            elif parameter.place == "path" and f"{{{parameter.name}}}" not in operation.path:
                request.notes.append(f"the path parameter {parameter.name!r} is not in the path")
            elif (parameter.place, parameter.name.lower()) not in keys:
                place(parameter, request, self.requests, self.document)
        for name in _SEGMENT.findall(operation.path):
            if name not in request.path:
                if not name:
                    raise Unusable("the path has a parameter without a name")
                request.path[name] = request.argument(name, {"type": "string"}, set(), required=True)
                request.notes.append(f"the path parameter {name!r} has no description")
        node = operation.node
        if self.document.version == "2.0":
            consumes = node.object.get("consumes", self.document.root.object.get("consumes"))
            place_old_body(bodies, consumes, request, self.requests)
        elif node.object.get("requestBody") is not None:
            place_body(node.at("requestBody"), request, self.requests, self.document)

    def _tool(
        self,
        operation: Operation,
        name: str,
        request: Request,
        access: OperationAuth,
        server: OperationServer,
        found: ExpectedResponse,
    ) -> Tool:
        path, hash_, _ = operation.path.partition("#")
        if hash_:
            request.notes.append("the part of the path after `#` is not sent")
        url = escape(server.url) + _template("/" + path.lstrip("/"), request.path)
        config = HttpExec(
            operation.method.upper(),
            url,
            request.headers,
            request.query,
            request.body,
            cookies=request.cookies,
            styles=request.styles,
            body_format=request.body_format,
            parts=request.parts,
        )
        deprecated = flag(operation.node.object.get("deprecated")) is True
        tags = [tag(text) for text in operation.node.at("tags").value or () if isinstance(text, str)]
        definitions = self.requests.closure(request.needs)
        secrets = tuple({**{one.name: one for one in access.secrets}, **request.secrets}.values())
        return Tool(
            name,
            _description(operation, deprecated=deprecated),
            "http",
            request.input_schema(definitions),
            config,
            output=found.output,
            permissions=Permissions(Network("hosts", (server.host.lower(),)), secrets=secrets),
            annotations=METHODS[operation.method],
            tags=tuple(dict.fromkeys([*filter(None, tags), *(["deprecated"] if deprecated else [])])),
            version=self.version,
            extensions={"openapi": {"method": operation.method, "path": operation.path}},
            auth=access.auth,
        )


def _template(path: str, arguments: Mapping[str, str]) -> str:
    """Return the path as a template: `{id}` is the argument, all else is literal."""
    pieces = _SEGMENT.split(path)
    texts, names = pieces[::2], pieces[1::2]
    out = [
        f"{escape(text, before_placeholder=True)}${{{arguments[name]}}}"
        for text, name in zip(texts, names, strict=False)
    ]
    return "".join(out) + escape(texts[-1])


def _description(operation: Operation, *, deprecated: bool) -> str:
    value: dict[str, Any] = operation.node.object
    summary, text = clean(value.get("summary")), clean(value.get("description"))
    if not text:
        text = clean(operation.item.object.get("description"))
    if summary and text and not text.startswith(summary):
        summary = summary if summary.endswith((".", "!", "?")) else f"{summary}."
        text = f"{summary}\n\n{text}"
    text = text or summary or f"{operation.method.upper()} {operation.path}"
    return f"Deprecated. {text}" if deprecated else text


NO_SERVER = "the document names no server with a host; give one with --server URL"
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_HTTP = ("https", "http")


class OperationServer(NamedTuple):
    """The server of an operation."""

    url: str
    """Scheme, host and base path, without a slash at the end."""
    host: str
    """The host as in a permission: with the port unless it is the default of the scheme."""


def base_url(document: OpenApiDocument, path: Node, operation: Node, given: str | None) -> OperationServer:
    """Return the server of an operation; `given` replaces all others. Raises Unusable without one."""
    if given is not None:
        return checked(given)
    if document.version == "2.0":
        return checked(_of_2_0(document, operation))
    # The nearest level that names a server replaces those above it (OpenAPI 3.1, Operation Object).
    for level in (operation, path, document.root):
        servers = level.at("servers")
        for server in servers.items():
            if isinstance(server.object.get("url"), str):
                return checked(_absolute(_filled_in(server), document))
    return checked(_absolute("/", document))


def checked(url: str) -> OperationServer:
    """Check and normalise the URL of a server. Raises Unusable if no tool can call it."""
    try:
        parts = urlsplit(url.strip())
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise Unusable(f"the server {url!r} is not a URL: {error}") from None
    if parts.scheme.lower() not in _HTTP:
        raise Unusable(f"the server {url!r} is neither http nor https" if parts.scheme else NO_SERVER)
    if not host:
        raise Unusable(NO_SERVER)
    # `https://known.example@other.example` looks like the one host and calls the other.
    if parts.username is not None or not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise Unusable(f"the server {url!r} has a user name, or a host name that is not supported")
    own = {"https": 443, "http": 80}[parts.scheme.lower()]
    named = f"[{host}]" if ":" in host else host
    authority = named if port in (None, own) else f"{named}:{port}"
    path = parts.path.rstrip("/")
    return OperationServer(f"{parts.scheme.lower()}://{authority}{path}", authority)


def _of_2_0(document: OpenApiDocument, operation: Node) -> str:
    root = document.root.object
    schemes = operation.object.get("schemes") or root.get("schemes")
    known = [scheme for scheme in _HTTP if isinstance(schemes, list) and scheme in schemes]
    host, base = root.get("host"), root.get("basePath")
    own = urlsplit(document.root.resource.uri)
    # Scheme and host default to those that the document was fetched from (OpenAPI 2.0, Swagger Object).
    scheme = known[0] if known else own.scheme if own.scheme in _HTTP else "https"
    if not isinstance(host, str) or not host:
        host = own.netloc if own.scheme in _HTTP else ""
    # Some write the scheme or the path into the host.
    host = re.sub(r"^https?://", "", host).rstrip("/")
    path = base if isinstance(base, str) else ""
    return f"{scheme}://{host}/{path.lstrip('/')}" if host else ""


def _filled_in(server: Node) -> str:
    """Return the URL with each variable replaced by its default, or else its first value."""

    def value(found: re.Match[str]) -> str:
        rule = server.at("variables", found[1])
        default = rule.object.get("default")
        if default is None:
            default = rule.at("enum", 0).value
        if default is None:
            raise Unusable(
                f"the server variable {found[1]!r} has no value; give the server with --server URL"
            )
        return str(default)

    url = str(server.value["url"])
    for _ in range(3):  # A default may contain a variable.
        written = _VARIABLE.sub(value, url)
        if written == url:
            break
        url = written
    return url


def _absolute(url: str, document: OpenApiDocument) -> str:
    url = url.strip()
    if url.startswith("//"):
        return f"https:{url}"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url):
        return url
    own = document.root.resource.uri
    # A relative server URL starts at the document's own address (OpenAPI 3.1, Server Object).
    if own.startswith(("http://", "https://")):
        return urljoin(own, url)
    # A host without its scheme, as some write it.
    if re.match(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:\d+)?(/|$)", url) and not url.startswith("/"):
        return f"https://{url}"
    raise Unusable(NO_SERVER)


def tag(text: Any) -> str | None:
    """Return a text as a valid tag of a manifest, or None if nothing is left."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", str(text)).strip("-")[:MAX_NAME]
    if plain and not (plain[0].isalpha() or plain[0] == "_"):
        plain = f"_{plain}"[:MAX_NAME]
    return plain or None
