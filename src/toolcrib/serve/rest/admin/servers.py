"""The routes of the MCP servers that the project uses."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, convert, field
from starlette.concurrency import run_in_threadpool

from toolcrib.errors import (
    ApprovalRequired,
    ConflictError,
    DeniedError,
    NotFoundError,
    NotTrusted,
    ToolUnavailable,
    UsageError,
)
from toolcrib.project.new_server import NewServer, OldServer, entry_of, start, watch
from toolcrib.project.tools.servers import Servers
from toolcrib.serve.http import Answer, Problem, Routes
from toolcrib.serve.rest.calls.routes import Watched
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, location, require_person

ROUTES = Routes()
_ONE = "/servers/{server}"


class ServerAnswer(Struct, kw_only=True):
    """An MCP server that the project uses."""

    name: str
    transport: Literal["stdio", "http", "sse"]
    where: str
    """Its command line or address."""
    state: Literal["not trusted", "stopped", "logging in", "starting", "ready", "waiting"]
    """`stopped`: not needed yet; `waiting`: it failed, and starts again after a pause."""
    protocol: str | None
    tools: list[str]
    """The full names of its tools."""
    waiting: dict[str, str]
    """Tools that wait for trust, each with the reason."""
    unusable: list[str]
    """Tools that cannot be used, and why."""
    starts: int
    """Number of times that this server process has started it."""
    error: Problem | None
    """Its last failure, if it has not been ready since."""
    stderr: str
    """The end of what its process wrote to standard error."""
    sandbox: str | None
    grants: list[str]
    """A sentence on what its process may use."""


class ServerList(Struct, kw_only=True):
    """The MCP servers that the project uses."""

    servers: list[ServerAnswer]
    wrong: dict[str, str]
    """Entries of the settings that cannot be used, and why."""
    notes: dict[str, str]
    """Servers whose entries have parts without effect."""


class ServerEntry(Body, kw_only=True):
    """A server to add to `.mcp.json`, or without `command` and `url` one that is there already."""

    name: str
    command: list[str] = field(default_factory=list)
    """The program and its arguments; empty for a remote server."""
    url: str | UnsetType = UNSET
    """The address of a remote server."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of the program; `${NAME}` in a value is a secret."""
    hosts: list[str] | UnsetType = UNSET
    """The hosts that it may reach; `*` is every public one."""
    read: list[str] | UnsetType = UNSET
    """Paths that it may read, besides those in its command."""
    write: list[str] | UnsetType = UNSET
    """With one of these three, a server that is there already gets them in place of its own."""
    trust: str | UnsetType = UNSET
    """`digest` of the server as a person has seen it. Without it nothing is added."""


class ServerPlan(Struct, kw_only=True):
    """A server that would be added."""

    lines: list[str]
    """The command that would be started, and what its process may use."""
    digest: str


class ServerRemoved(Struct, kw_only=True):
    """The end of a server in `.mcp.json`."""

    file: str
    left: str | None
    """Things that a person still has to remove by hand."""


class WatchedServer(Struct, kw_only=True):
    """One session of a server that was started for it alone."""

    tools: list[str]
    """The names of the tools that it listed."""
    error: Problem | None
    """The reason why it did not list them."""
    watched: Watched


class LoginHosts(Body, kw_only=True):
    """A login to begin."""

    hosts: Annotated[list[str], Meta(max_length=20)] = field(default_factory=list)
    """Hosts beside the server's own that the person has allowed to take part."""


class LoginAnswer(Struct, kw_only=True, frozen=True):
    """The next step of the person; nothing if both are null."""

    address: str | None
    """The address to open in a browser on the machine of this server, within five minutes."""
    host: str | None
    """A host that would take part in the login. To allow it, send it under `hosts`."""


class LogoutAnswer(Struct, kw_only=True, rename="camel"):
    """The end of a login."""

    logged_out: bool
    """False if there was no login."""


@ROUTES.add("GET", "/servers", "admin", {200: ServerList})
def list_servers(request: RestRequest) -> Answer:
    """List the MCP servers that the project uses, with their states. None is started for it."""
    servers: Servers | None = request.services.project.servers
    if servers is None:
        return Answer(ServerList(servers=[], wrong={}, notes={}))
    found = [convert(one.as_dict(), ServerAnswer) for one in servers.mounted.values()]
    return Answer(ServerList(servers=found, wrong=servers.wrong, notes=dict(servers.notes)))


@ROUTES.add(
    "POST",
    "/servers",
    "admin",
    {200: ServerPlan, 201: ServerAnswer},
    *(DeniedError, NotTrusted, UsageError, ConflictError, ToolUnavailable),
    body=ServerEntry,
    located=True,
)
async def add_server(request: RestRequest) -> Answer:
    """Add an MCP server to `.mcp.json` or change it, start it and trust the tools that it lists.

    Without `trust` the answer says what would be started and what it may use. Only the session of a person
    does it, never a token.
    """
    body, project = request.body(), request.services.project
    new = await _trusted(request, body)
    if body.trust is UNSET:
        return Answer(ServerPlan(lines=new.lines(), digest=new.digest))
    config = await run_in_threadpool(new.add, project, "page")
    mounted = await start(project, body.name, config, "page")
    at = location(request, f"/servers/{body.name}")
    return Answer(convert(mounted.as_dict(), ServerAnswer), status=201, headers=at)


@ROUTES.add(
    "POST",
    "/servers/watch",
    "admin",
    {200: WatchedServer},
    *(ApprovalRequired, DeniedError, NotTrusted, UsageError, ConflictError, ToolUnavailable),
    body=ServerEntry,
)
async def watch_server(request: RestRequest) -> Answer:
    """Start a server once, observed, with what it may use, and list its tools. Nothing is added or changed.

    The grants of the answer go to `hosts`, `read` and `write` of an entry. It needs `trust`, and only the
    session of a person does it, never a token.
    """
    body: ServerEntry = request.body()
    new = await _trusted(request, body)
    if body.trust is UNSET:
        raise ApprovalRequired(
            f"nobody has trusted {body.name} as it is now",
            hint="Once a person has seen what it would start, send its `digest` as `trust`.",
        )
    seen = await watch(request.services.project, new)
    error = None if seen.error is None else seen.error.as_dict()
    return Answer(convert({"tools": seen.tools, "error": error, "watched": seen.watched}, WatchedServer))


async def _trusted(request: RestRequest, body: ServerEntry) -> NewServer:
    """Return the server of an entry, as a person has seen it if there is `trust`."""
    require_person(request, "trust", "toolcrib servers add NAME -- COMMAND")
    project = request.services.project
    hosts, read, write = body.hosts or [], body.read or [], body.write or []
    if body.command or body.url or body.env:
        url = None if body.url is UNSET else body.url
        entry = entry_of(body.command, url, body.env, hosts, files=bool(read or write))
        new = await run_in_threadpool(NewServer.of, project, body.name, entry, read, write)
    else:
        same = body.hosts is body.read is body.write is UNSET
        given = None if same else {"hosts": hosts, "read": read, "write": write}
        new = await run_in_threadpool(NewServer.again, project, body.name, given)
    if body.trust not in (UNSET, new.digest):
        raise ConflictError(f"what {body.name} would start has just changed", hint="Look at it again.")
    return new


@ROUTES.add("GET", _ONE, "admin", {200: ServerAnswer}, NotFoundError)
def show_server(request: RestRequest) -> Answer:
    """Return an MCP server and its state."""
    return Answer(convert(_servers(request).get(request.path["server"]).as_dict(), ServerAnswer))


@ROUTES.add(
    "DELETE",
    _ONE,
    "admin",
    {200: ServerRemoved},
    NotFoundError,
    DeniedError,
    UsageError,
    ConflictError,
    NotTrusted,
)
async def remove_server(request: RestRequest) -> Answer:
    """Remove an MCP server from `.mcp.json`, with its package, its login and all that is trusted of it.

    Its running calls fail. A server of the setting `mcp_servers` is removed there, by hand. Only the session
    of a person does it, never a token.
    """
    name, project = request.path["server"], request.services.project
    require_person(request, "trust", f"toolcrib servers remove {name}")
    old = await run_in_threadpool(OldServer.of, project, name)
    config = await run_in_threadpool(old.remove, project, "page")
    await project.catalog.remove_server(name, config)
    return Answer(ServerRemoved(file=str(old.path), left=old.left(project)))


@ROUTES.add("POST", f"{_ONE}/restart", "admin", {200: ServerAnswer}, NotFoundError, NotTrusted)
async def restart_server(request: RestRequest) -> Answer:
    """End an MCP server and start it again. Its running calls fail."""
    mounted = await _servers(request).restart(request.path["server"])
    return Answer(convert(mounted.as_dict(), ServerAnswer))


@ROUTES.add(
    "POST",
    f"{_ONE}/login",
    "admin",
    {200: LoginAnswer},
    NotFoundError,
    NotTrusted,
    DeniedError,
    UsageError,
    ConflictError,
    ToolUnavailable,
    body=LoginHosts,
)
async def log_in_to_server(request: RestRequest) -> Answer:
    """Begin a login to a remote MCP server. Only the session of a person does, never a token.

    The browser comes back to the machine of this server, which stores the tokens and starts the MCP server.
    """
    name = request.path["server"]
    require_person(request, "trust", f"toolcrib servers login {name}")
    body: LoginHosts = request.body()
    step = await _servers(request).begin_login(name, body.hosts)
    return Answer(LoginAnswer(address=step.address, host=step.host))


@ROUTES.add("DELETE", f"{_ONE}/login", "admin", {200: LogoutAnswer}, NotFoundError, DeniedError)
async def log_out_of_server(request: RestRequest) -> Answer:
    """Delete the tokens of a login. Only the session of a person does. The MCP server is not notified."""
    name = request.path["server"]
    require_person(request, "trust", f"toolcrib servers logout {name}")
    return Answer(LogoutAnswer(logged_out=await _servers(request).end_login(name)))


def _servers(request: RestRequest) -> Servers:
    servers: Servers | None = request.services.project.servers
    if servers is None:
        raise NotFoundError("the project names no MCP server", hint="To add one: toolcrib servers add NAME")
    return servers
