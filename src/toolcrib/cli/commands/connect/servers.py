"""`toolcrib servers`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.commands.connect.servers_add import add_command, remove_command
from toolcrib.cli.commands.decide.trust_servers import require_client, started
from toolcrib.cli.confirm import decide, refuse_token
from toolcrib.cli.options import open_project, project_options
from toolcrib.cli.output import print_change, print_json, print_note, print_warnings
from toolcrib.cli.table import print_table
from toolcrib.errors import NotFoundError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.tools.servers import Servers

_MOST_LINES = 10
"""Lines shown of a failed server's standard error."""

wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 600),
    default=30.0,
    help="Seconds to wait for each server (default: 30).",
)


@click.group("servers")
def command() -> None:
    """Manage the MCP servers that the project uses.

    They are named in the setting `mcp_servers`, or in `.mcp.json`.
    """


command.add_command(add_command)
command.add_command(remove_command)


@command.command("list")
@project_options
@wait_option
def list_command(root: str | None, as_json: bool, wait_s: float) -> None:
    """Start every server, and show its state and number of tools.

    A failed server is shown with its error and with the end of its standard error.
    """
    project, servers = _open(root)
    if servers is not None and servers.mounted:
        require_client()
    found = [] if servers is None else asyncio.run(started(project, servers, wait_s))
    wrong, notes = ({}, {}) if servers is None else (servers.wrong, servers.notes)
    if as_json:
        print_json({"servers": found, "wrong": wrong, "notes": dict(notes)})
        return
    if found:
        print_table(("NAME", "STATE", "TOOLS", "WHERE"), [_row(one) for one in found])
    elif not wrong:
        print_note("The project names no MCP server. To add one: toolcrib servers add NAME -- COMMAND")
    for one in found:
        for line in _problems(one):
            print_note(line)
    for name, text in (*wrong.items(), *notes.items()):
        print_note(f"{name}: {text}")


@command.command("login")
@click.argument("name")
@project_options
@wait_option
def login_command(name: str, root: str | None, as_json: bool, wait_s: float) -> None:
    """Log in to a remote server in your browser.

    Open the printed address. The tokens are stored in your data folder and renewed when needed.
    """
    project, servers = _require(root)

    async def login() -> bool:
        async with project:
            return await servers.login(
                name,
                lambda url: print_note(f"Open this address:\n{url}"),
                allow=lambda host: decide(f"{name} logs you in at {host}. Allow that?", "trust") is not None,
                limit_s=wait_s,
            )

    logged_in = asyncio.run(login())
    note = f"Logged in to {name}." if logged_in else f"{name} needs no login."
    print_change(as_json, {"server": name, "loggedIn": logged_in}, note)


@command.command("logout")
@click.argument("name")
@project_options
def logout_command(name: str, root: str | None, as_json: bool) -> None:
    """Delete the stored tokens of a login.

    The server is not notified.
    """
    _, servers = _require(root)
    logged_out = servers.logout(name)
    note = f"Logged out of {name}." if logged_out else f"You are not logged in to {name}."
    print_change(as_json, {"server": name, "loggedOut": logged_out}, note)


def _require(root: str | None) -> tuple[Project, Servers]:
    refuse_token("trust")
    project, servers = _open(root)
    if servers is None:
        raise NotFoundError("the project names no MCP server")
    return project, servers


def _open(root: str | None) -> tuple[Project, Servers | None]:
    project = open_project(root)
    print_warnings(project)
    return project, project.servers


def _row(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    waiting = len(one["waiting"])
    tools = f"{len(one['tools'])}" + (f" ({waiting} waiting)" if waiting else "")
    return one["name"], one["state"], tools, one["where"]


def _problems(one: Mapping[str, Any]) -> Iterator[str]:
    if one["state"] == "not trusted":
        yield f"{one['name']}: not started; run `toolcrib trust`"
    if one["error"] is not None:
        yield f"{one['name']}: {one['error']['message']}"
        for line in one["stderr"].strip().splitlines()[-_MOST_LINES:]:
            yield f"  {line}"
        hint = one["error"]["hint"]
        if hint and "toolcrib servers list" not in hint:  # which is this command
            yield f"  hint: {hint}"
    for text in one["unusable"]:
        yield f"{one['name']}: not usable: {text}"
