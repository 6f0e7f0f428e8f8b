"""The HTTP interface of one project, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp

from toolcrib.guard import Tokens
from toolcrib.project import Project
from toolcrib.project.mcp_catalog import mcp_catalog
from toolcrib.serve.auth import Access, LoginSessions, OAuthResource, OutsideTokens, TrustedHosts
from toolcrib.serve.http import BODY_S, GRACE_S, create_app, open_socket, serve_app
from toolcrib.serve.mcp import ServerSettings
from toolcrib.serve.mcp.http import McpEndpoint
from toolcrib.serve.rest.calls.quick_invoke import QuickInvoke
from toolcrib.serve.rest.changes import Changes
from toolcrib.serve.rest.routes import ROUTES
from toolcrib.serve.rest.running import ServerCalls
from toolcrib.serve.rest.services import Services
from toolcrib.serve.rest.ui.links import hand_out_links
from toolcrib.serve.rest.ui.session import login_path

_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound to it here


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The address of a server."""

    host: str = "127.0.0.1"
    """The address to listen on. Any but a loopback address lets other machines connect."""
    port: int = 8745
    """0 takes a free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which clients may address the server."""
    oauth: OAuthResource | None = None
    """The authorization server whose access tokens MCP clients may use, beside this project's own."""
    body_s: float = BODY_S
    """Seconds that the body of a request may take, beside those of its length."""


async def serve_http(
    project: Project,
    settings: HttpSettings | None = None,
    announce: Callable[[Sequence[str], str], None] | None = None,
) -> None:
    """Serve an open project over HTTP until SIGINT or SIGTERM.

    `announce` gets the addresses and a one-time login link once requests can come. Raises UsageError and
    ConflictError for an address that cannot be used.
    """
    settings = settings or HttpSettings()
    listening = open_socket(settings.host, settings.port)
    port = listening.getsockname()[1]
    closing = asyncio.Event()
    hosts = (settings.host, *settings.allowed_hosts)
    served = rest_app(
        project,
        allowed_hosts=hosts,
        closing=closing,
        body_s=settings.body_s,
        oauth=settings.oauth,
    )
    async with served as (app, login):
        # No client can use the address of all addresses as the name of one machine.
        names = (_LOCAL.get(settings.host, settings.host), *settings.allowed_hosts)
        addresses = [f"http://{f'[{name}]' if ':' in name else name}:{port}" for name in names]
        async with hand_out_links(project.vault, lambda: addresses[0] + login()):
            if announce is not None:
                announce(addresses, addresses[0] + login())
            await serve_app(app, listening, closing)


@asynccontextmanager
async def rest_app(
    project: Project,
    *,
    allowed_hosts: Sequence[str] = (),
    closing: asyncio.Event | None = None,
    body_s: float = BODY_S,
    oauth: OAuthResource | None = None,
) -> AsyncIterator[tuple[ASGIApp, Callable[[], str]]]:
    """Give the application for an open project, and what makes a one-time login link: its path and fragment.

    The application can be mounted below any prefix. Set `closing` when the server stops: long requests end.
    """
    access = Access(
        Tokens(project.vault),
        LoginSessions(),
        TrustedHosts(allowed_hosts),
        project.folders.hide,
    )
    # Durable calls run here too: there may be no worker process.
    project.calls.serve()
    calls = ServerCalls(project.invoke, project.calls)
    services = Services(
        project=project,
        calls=calls,
        access=access,
        changes=Changes(project, calls),
        closing=closing or asyncio.Event(),
    )
    try:
        rest = QuickInvoke(create_app(ROUTES, services, access, body_s=body_s), services, body_s)
        endpoint = McpEndpoint(
            rest,
            mcp_catalog(project),
            access,
            ServerSettings.of_project(project),
            outside=None if oauth is None else OutsideTokens(oauth),
            body_s=body_s,
        )
        ending = asyncio.create_task(_end_with(services.closing, endpoint, calls))
        try:
            yield endpoint, lambda: login_path(access.sessions.new_code())
        finally:
            ending.cancel()
            await endpoint.close()
    finally:
        await calls.close()


async def _end_with(closing: asyncio.Event, endpoint: McpEndpoint, calls: ServerCalls) -> None:
    """End what lasts long when the server stops, so that each request has an answer."""
    await closing.wait()
    calls.stop()
    await endpoint.close()
    await asyncio.sleep(GRACE_S)
    await calls.close()
