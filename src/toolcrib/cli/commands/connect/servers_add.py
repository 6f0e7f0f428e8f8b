"""`toolcrib servers add` and `remove`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.commands.decide.trust_servers import (
    WAIT_S,
    network_of,
    require_client,
    trust_listed,
)
from toolcrib.cli.confirm import Channel, decide
from toolcrib.cli.hosts import add_server, without_server
from toolcrib.cli.options import project_options, yes_option
from toolcrib.cli.output import one_line, print_change, print_note, print_result
from toolcrib.errors import ConflictError, NotTrusted, ToolUnavailable, UsageError
from toolcrib.state.private import read_inside, replace_file

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec
    from toolcrib.project import Project


Strings = Sequence[str]
_TAKEN = "Choose another name, or change that server in its file, then: toolcrib trust"


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
) -> int:
    """Add an MCP server to `.mcp.json`, start it once, trust its tools.

    Shows the command and all that its process may use, and asks before the first start.
    """
    from toolcrib.executors.mcp.process.local import lacking, unconfined_program
    from toolcrib.project import Project

    require_client()
    entry = _entry(words, **given)
    spec = _spec(name, entry)
    project = Project.inspect(root)
    if not _is_accepted(project):
        raise NotTrusted(
            "the settings of this project wait for your trust, so nothing is added to them",
            hint="To see them and accept them: toolcrib trust",
        )
    only = replace(project.config, servers=replace(project.config.servers, specs=(spec,)))
    found = only.with_data(project.root).servers.specs[0]
    if spec.is_local:
        _grant_named(entry, project.root, found.data, given["read"], given["write"])
        found = replace(_spec(name, entry), data=found.data, unwritable=found.unwritable)
    spec = found
    if project.servers is not None and name in project.servers.mounted:
        raise ConflictError(f"the project has a server {name} already", hint=_TAKEN)
    path = project.root / ".mcp.json"
    before = read_inside(path, project.root)
    text = _added(path, before, name, entry)
    if spec.is_local and "/" not in spec.command and shutil.which(spec.command) is None:
        raise ToolUnavailable(
            f"{spec.command} is not installed, so nothing was added", hint="Install it first."
        )
    if not as_json:
        for line in _shown(spec, project.root):
            print_result(one_line(line))
    lacking(spec, str(project.root))  # Raises for a launcher that cannot be replaced.
    program = unconfined_program(spec, str(project.root))
    channel = decide(_question(spec, program), "trust", yes=yes, refuse=NotTrusted)
    if channel is None:
        raise NotTrusted("nothing was added")
    replace_file(path, before, text)
    _trust(project, name, program, channel)
    if trust_listed(str(project.root), [name], WAIT_S, channel, [name]):
        print_note(f"{name} was added, and did not start. Change it in {path}, then: toolcrib trust")
        return ToolUnavailable.exit_code
    print_change(as_json, {"added": name, "file": str(path)}, f"Added {name} to {path}.")
    return 0


def _entry(
    words: Strings, url: str | None, env: Strings, allow: Strings, read: Strings, write: Strings
) -> dict[str, Any]:
    """Return the entry of `.mcp.json`."""
    if bool(words) == bool(url):
        raise UsageError(
            "name the server's command after `--`, or its address with --url",
            hint="For example: toolcrib servers add time -- uvx mcp-server-time",
        )
    if url and (read or write):
        raise UsageError(
            "a remote server reads and writes no files here", hint="Leave out --read and --write."
        )
    entry: dict[str, Any] = (
        {"type": "http", "url": url} if url else {"command": words[0], "args": [*words[1:]]}
    )
    if env:
        entry["env"] = dict(one.partition("=")[::2] for one in env)
    if allow:
        entry["permissions"] = {"network": network_of(allow).as_json()}
    return entry


def _grant_named(entry: dict[str, Any], root: Path, data: Strings, read: Strings, write: Strings) -> None:
    """Let a local server read and write what its command line and the options name, and nothing else."""
    words = (word.partition("=")[2] or word for word in (entry["command"], *entry["args"]))
    paths = (Path(os.path.normpath(root / word)) for word in words if word)
    named = [one.relative_to(root).as_posix() for one in paths if one.is_relative_to(root) and one.exists()]
    files: dict[str, Any] = {"read": list(dict.fromkeys([*named, *read]))}
    if written := list(dict.fromkeys([*data, *write])):
        files["write"] = written
    entry.setdefault("permissions", {})["fs"] = files


def _spec(name: str, entry: dict[str, Any]) -> ServerSpec:
    from toolcrib.manifest.dialects.mcp_servers import read_server

    try:
        return read_server(name, entry)
    except ValueError as error:
        raise UsageError(f"the server {name!r} cannot be added: {error}") from None


def _is_accepted(project: Project) -> bool:
    """Return True if the settings are trusted as they are: only one server is added to that, or removed."""
    from toolcrib.guard import SETTINGS
    from toolcrib.project.config.settings import is_trusted

    ledger, config = project.trust.ledger, project.config
    return ledger.last(SETTINGS) is not None and (not config.weakening() or is_trusted(config.digest, ledger))


def _added(path: Path, before: str | None, name: str, entry: dict[str, Any]) -> str:
    try:
        taken = name in json.loads(before or "{}")["mcpServers"]
    except (ValueError, KeyError, TypeError):  # An unusable file is refused below.
        taken = False
    if taken:
        raise ConflictError(f"{path} has a server {name} already", hint=_TAKEN)
    return add_server(before or "", path, ("mcpServers",), name, entry)


def _shown(spec: ServerSpec, root: Path) -> Iterator[str]:
    """Yield lines about what is started and what its process may use."""
    from toolcrib.executors.mcp.process.local import grants_of, started, unconfined_program

    yield f"{spec.name}: {spec.where}"
    if not spec.is_local:
        return
    line = " ".join(started(spec, str(root))[0].argv)
    if line != spec.where:
        yield f"  starts {line}"
    if program := unconfined_program(spec, str(root)):
        yield f"  runs {program} unconfined, with all of your rights"
        return
    for grant in grants_of(spec, str(root)):
        yield f"  may {grant}"
    yield from (f"  may not write {line}" for line in spec.unwritable)


def _question(spec: ServerSpec, program: str) -> str:
    if program:
        return f"{one_line(program)} runs unconfined: this gives control of the machine. Start {spec.name}?"
    return f"{'Start' if spec.is_local else 'Call'} {spec.name} now, and trust the tools that it lists?"


def _trust(before: Project, name: str, program: str, channel: Channel) -> None:
    """Trust the settings with or without this server, if nothing else in them has changed."""
    from toolcrib.project import Project
    from toolcrib.state import user_name

    now = Project.inspect(before.root)
    own = f"mcp_servers.{name}"
    then, here = (
        (
            {part: value for part, value in one.config.started.items() if not part.startswith(f"{own}/")},
            one.config.document.raw if one.config.document is not None else b"",
        )
        for one in (before, now)
    )
    free = {key: value for key, value in before.config.unconfined.items() if key != own}
    if program:
        free[own] = program
    if then != here or free != dict(now.config.unconfined):
        raise NotTrusted("the settings have changed meanwhile", hint="To see them: toolcrib trust")
    now.trust.accept(user_name(), settings=True, channel=channel)


@click.command("remove")
@click.argument("name")
@project_options
@yes_option
def remove_command(name: str, root: str | None, as_json: bool, yes: bool) -> None:
    """Remove an MCP server from `.mcp.json`, with its package and login.

    A server of the setting `mcp_servers` is removed there, by hand.
    """
    from toolcrib.project import Project
    from toolcrib.state import user_name

    project = Project.inspect(root)
    path = project.root / ".mcp.json"
    before = read_inside(path, project.root)
    text = without_server(before or "", path, ("mcpServers",), name)
    channel = decide(f"Remove {one_line(name)} from {path}?", "trust", yes=yes, refuse=NotTrusted)
    if channel is None:
        raise NotTrusted("nothing was removed")
    replace_file(path, before, text)
    if project.servers is not None and name in project.servers.mounted:
        project.servers.logout(name)
        project.servers.get(name).clear()
        # Whoever adds a server of this name later is asked about its hosts anew.
        project.trust.revoke(user_name(), servers=[name], channel=channel)
    if _is_accepted(project):
        _trust(project, name, "", channel)
    settings = project.config.document
    # A file of comments only, as a new project has it, holds nothing.
    if settings is not None and name in ((settings.data or {}).get("mcp_servers") or ()):
        print_note(f"{project.place.config} still has permissions for {name}: remove them there.")
    print_change(as_json, {"removed": name, "file": str(path)}, f"Removed {name} from {path}.")
