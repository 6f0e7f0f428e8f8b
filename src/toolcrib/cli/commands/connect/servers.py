"""`toolcrib servers`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.output import json_option, note, printable, root_option, say, tell_lowered, write_json

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.servers import Mounted, Servers

__all__ = ["command"]

_LINES = 10
"""Of a failed server's standard error."""

wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 600),
    default=30.0,
    help="Seconds to wait for each server (default: 30).",
)


@click.group("servers")
def command() -> None:
    """MCP servers that the project names in `mcp_servers`, or in `.mcp.json`."""


@command.command("list")
@root_option
@json_option
@wait_option
def list_command(root: str | None, as_json: bool, wait_s: float) -> None:
    """Start every server, and show how each is, what it offers, and what a failed one wrote."""
    project, servers = _open(root)
    if servers is None:
        if as_json:
            write_json({"servers": [], "wrong": {}})
        else:
            note("The project names no MCP server.")
        return
    rows = asyncio.run(_settled(project, servers, wait_s))
    if as_json:
        write_json({"servers": rows, "wrong": servers.wrong})
        return
    from toolcrib.cli.table import print_table

    if rows:
        print_table(("NAME", "STATE", "TOOLS", "WHERE"), [_row(one) for one in rows])
    for one in rows:
        for line in _troubles(one):
            note(printable(line))
    for name, text in servers.wrong.items():
        note(printable(f"{name}: {text}"))


@command.command("review")
@click.argument("name")
@root_option
@json_option
@wait_option
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
def review_command(name: str, root: str | None, as_json: bool, wait_s: float, yes: bool) -> None:
    """Show what a server offers that nobody has reviewed, and let it run unasked from now on.

    With --json and without --yes it only shows.
    """
    project, servers = _needed(root)
    mounted = servers.get(name)
    asyncio.run(_settled(project, servers, wait_s, [name]))
    if mounted.server.error is not None:
        raise mounted.server.error
    pending = _pending(mounted)
    agreed = yes
    if not as_json:
        for line in _told(pending):
            say(line)
        if not pending:
            note(f"Everything that {name} offers has been reviewed.")
        elif not yes:
            agreed = _ask()
    if pending and agreed:
        mounted.review()
        project.audit.record("MCP_SERVER_REVIEWED", name=name, tools=sorted(pending))
    if as_json:
        write_json({"name": name, "unreviewed": pending, "accepted": bool(pending and agreed)})
    elif pending and agreed:
        note(f"{len(pending)} tools of {name} run without being asked for from now on.")


@command.command("login")
@click.argument("name")
@root_option
@wait_option
def login_command(name: str, root: str | None, wait_s: float) -> None:
    """Log in to a server elsewhere: open the address that is printed, and come back.

    The tokens lie in your own folder, and are renewed by themselves.
    """
    project, servers = _needed(root)

    async def run() -> bool:
        async with project:
            return await servers.login(name, lambda url: note(f"Open this address:\n{url}"), limit_s=wait_s)

    if asyncio.run(run()):
        note(f"Logged in to {name}.")
    else:
        note(f"{name} asks for no login.")


@command.command("logout")
@click.argument("name")
@root_option
def logout_command(name: str, root: str | None) -> None:
    """Forget the tokens of a login. The server itself is not told."""
    _, servers = _needed(root)
    note(f"Logged out of {name}." if servers.logout(name) else f"Nobody is logged in to {name}.")


def _needed(root: str | None) -> tuple[Project, Servers]:
    from toolcrib.errors import NotFoundError

    project, servers = _open(root)
    if servers is None:
        raise NotFoundError("the project names no MCP server")
    return project, servers


def _open(root: str | None) -> tuple[Project, Servers | None]:
    from toolcrib.project import Project

    project = Project.open(root)
    tell_lowered(project)
    return project, project.servers


async def _settled(
    project: Project, servers: Servers, wait_s: float, names: list[str] | None = None
) -> list[dict[str, Any]]:
    """Have them started, and tell how they are before they are ended again."""
    async with project:
        await servers.ready(wait_s, names)
        return [project.redact(one.as_dict()) for one in servers.mounted.values()]


def _pending(mounted: Mounted) -> dict[str, Any]:
    """By name of ours: why the tool needs a review, and its definition as the server gives it."""
    return {
        name: {"reason": mounted.pending[name], "definition": mounted.live[own]}
        for own, name in mounted.tools.items()
        if name in mounted.pending
    }


def _told(pending: Mapping[str, Any]) -> Iterator[str]:
    for name, one in pending.items():
        definition = one["definition"]
        yield printable(f"{name}: {one['reason']}")
        yield printable(f"  {definition.get('description') or definition.get('title') or '(no description)'}")
        # Escaped, so that what is not seen is seen here.
        yield f"  input: {json.dumps(definition['inputSchema'])}"
        yield ""


def _ask() -> bool:
    if not sys.stdin.isatty():
        from toolcrib.errors import ApprovalRequired

        raise ApprovalRequired("nobody is here to ask", hint="Say --yes to agree without a question.")
    return click.confirm("Let these tools run without being asked for?", err=True)


def _row(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    waiting = len(one["unreviewed"])
    tools = f"{len(one['tools'])}" + (f" ({waiting} unreviewed)" if waiting else "")
    return one["name"], one["state"], tools, one["where"]


def _troubles(one: Mapping[str, Any]) -> Iterator[str]:
    if one["state"] == "not trusted":
        yield f"{one['name']}: it is not started; run `toolcrib trust`"
    if one["error"] is not None:
        yield f"{one['name']}: {one['error']['message']}"
        for line in one["stderr"].strip().splitlines()[-_LINES:]:
            yield f"  {line}"
    for left in one["unusable"]:
        yield f"{one['name']}: not usable: {left}"
