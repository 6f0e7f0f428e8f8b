"""`toolcrib servers add` and `remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.commands.decide.trust_servers import (
    WAIT_S,
    require_client,
    trust_listed,
)
from toolcrib.cli.confirm import decide
from toolcrib.cli.options import project_options, yes_option
from toolcrib.cli.output import one_line, print_change, print_note, print_result
from toolcrib.errors import NotTrusted, ToolUnavailable

if TYPE_CHECKING:
    from toolcrib.project.new_server import NewServer


@click.command("add")
@click.argument("name")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--url", help="The address of a remote server, instead of a command.")
@click.option("--env", multiple=True, metavar="NAME=TEXT", help="A variable; ${NAME} in it is a secret.")
@click.option(
    "--allow", multiple=True, metavar="HOST", help="A host that it may reach; `*`: every public one."
)
@click.option(
    "--read",
    multiple=True,
    metavar="PATH",
    help="A path that it may read, besides those in its command line.",
)
@click.option("--write", multiple=True, metavar="PATH", help="A path that it may write.")
@project_options
@yes_option
def add_command(
    name: str, words: tuple[str, ...], root: str | None, as_json: bool, yes: bool, **given: Any
) -> None:
    """Add an MCP server to `.mcp.json`, start it once, trust its tools.

    Shows the command and all that its process may use, and asks before the first start.
    """
    from toolcrib.project import Project
    from toolcrib.project.new_server import NewServer, entry_of

    require_client()
    read, write = given["read"], given["write"]
    env = dict(one.partition("=")[::2] for one in given["env"])
    entry = entry_of(words, given["url"], env, given["allow"], files=bool(read or write))
    project = Project.inspect(root)
    new = NewServer.of(project, name, entry, read, write)
    if not as_json:
        for line in new.lines():
            print_result(one_line(line))
    channel = decide(_question(new), "trust", yes=yes)
    if channel is None:
        raise NotTrusted("nothing was added")
    new.add(project, channel)
    path = new.path
    if trust_listed(str(project.root), [name], WAIT_S, channel, [name]):
        raise ToolUnavailable(
            f"{name} was added, and did not start", hint=f"Change it in {path}, then: toolcrib trust"
        )
    print_change(as_json, {"added": name, "file": str(path)}, f"Added {name} to {path}.")


def _question(new: NewServer) -> str:
    name = new.spec.name
    if new.program:
        return f"{one_line(new.program)} runs unconfined: this gives control of the machine. Start {name}?"
    return f"{'Start' if new.spec.is_local else 'Call'} {name} now, and trust the tools that it lists?"


@click.command("remove")
@click.argument("name")
@project_options
@yes_option
def remove_command(name: str, root: str | None, as_json: bool, yes: bool) -> None:
    """Remove an MCP server from `.mcp.json`, with its package and login.

    A server of the setting `mcp_servers` is removed there, by hand.
    """
    from toolcrib.project import Project
    from toolcrib.project.new_server import OldServer

    project = Project.inspect(root)
    old = OldServer.of(project, name)
    channel = decide(f"Remove {one_line(name)} from {old.path}?", "trust", yes=yes)
    if channel is None:
        raise NotTrusted("nothing was removed")
    old.remove(project, channel)
    if (left := old.left(project)) is not None:
        print_note(left)
    print_change(as_json, {"removed": name, "file": str(old.path)}, f"Removed {name} from {old.path}.")
