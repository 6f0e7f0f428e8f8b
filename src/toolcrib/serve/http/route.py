"""A route: the one definition from which requests are routed and checked, and the docs are written."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from toolcrib.errors import ToolcribError
from toolcrib.serve.auth import Client
from toolcrib.serve.http.reading import read_body, read_json
from toolcrib.spec import Scope
from toolcrib.spec.record import record

MAX_BODY = 4 * 1024 * 1024
"""Bytes of a body, unless the route says otherwise."""
_PARAMETER = re.compile(r"\{(\w+)\}")
S = TypeVar("S")
H = TypeVar("H", bound=Callable[..., Any])


@dataclass(slots=True)
class Answer:
    """A JSON answer."""

    value: Any = None
    """A value that msgspec can write: a struct, a dict, … None for an answer without a body."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    etag: Any = None
    """Add the ETag of this value, and answer 304 to a client that has it: True means the ETag of the body."""


@dataclass(slots=True)
class HttpRequest(Generic[S]):
    """A request whose client may make it."""

    http: Request
    route: Route
    services: S
    """The services that `create_app` was given."""
    sender: Client | None
    """None on a route without a scope."""
    query: Any
    """The struct that the route names, or None."""
    data: bytes
    """The body as it was sent."""
    media_type: str
    """The type of the body, in lower case and without parameters; "" without a body."""

    @property
    def client(self) -> Client:
        """The sender, on a route with a scope."""
        assert self.sender is not None
        return self.sender

    @property
    def path(self) -> dict[str, str]:
        """The parameters of the path."""
        parameters: dict[str, str] = self.http.path_params
        return parameters

    def body(self) -> Any:
        """Read the JSON body as the type that the route names. Raises InvalidInput and MissingField."""
        return read_body(self.data, self.route.body)

    def json(self) -> Any:
        """Read the JSON body as it is. Raises InvalidInput."""
        return read_json(self.data)


class EventStream(NamedTuple):
    """An answer of server-sent events, in place of its media type."""

    data: tuple[Any, ...]
    """The types of the JSON that is the data of an event."""


Handled = Answer | Response
Handler = Callable[[HttpRequest[Any]], Handled | Awaitable[Handled]]


@record
class Route:
    """One method of one address. Paths are relative to where the application is mounted."""

    method: str
    path: str
    """The path, with parameters in braces: `/tools/bundles/{bundleID}`."""
    handler: Handler
    """Its name is the operation's id, its docstring the description. A plain function runs in a thread, so it
    may wait for files; a coroutine function runs on the event loop, so it must not."""
    scope: Scope | None
    """The right that a token needs; None for a route without a token or session."""
    answers: Mapping[int, Any]
    """Status to the type of the JSON answer, None for one without a body, a media type, or several."""
    _: KW_ONLY
    query: Any = None
    """The msgspec struct of the query, if there is one."""
    body: Any = None
    """The type of the JSON body, if there is one."""
    raw: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Other media types of the body, with their description and an example: the handler gets the bytes."""
    headers: tuple[str, ...] = ()
    """Names of the request headers that the handler reads, of those in `HEADERS`."""
    located: bool = False
    """Its answers 201 and 202 have `Location`."""
    errors: tuple[type[ToolcribError], ...] = ()
    """Errors besides those that every route can have."""
    max_body: int = MAX_BODY

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters of the path."""
        return _PARAMETER.findall(self.path)


class Routes(list[Route]):
    """The routes of a module, each written above its handler."""

    def add(
        self,
        method: str,
        path: str,
        scope: Scope | None,
        answers: Mapping[int, Any],
        *errors: type[ToolcribError],
        **more: Any,
    ) -> Callable[[H], H]:
        """Add the route of the handler below; `more` are further fields of `Route`."""

        def add(handler: H) -> H:
            self.append(Route(method, path, handler, scope, answers, errors=errors, **more))
            return handler

        return add
