"""MCP servers as a part of `toolcrib trust`: they are started, list their tools, and these are trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolcrib.cli.confirm import Channel, choose, require_person
from toolcrib.cli.output import count, print_note, print_result
from toolcrib.cli.progress import waiting
from toolcrib.errors import NotTrusted, ToolcribError, ToolUnavailable
from toolcrib.state.installation import install_hint

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.tools.mounted import Mounted
    from toolcrib.project.tools.server_sheets import ServerSheet
    from toolcrib.project.tools.servers import Servers

WAIT_S = 120.0
"""Seconds that each server has to list its tools, unless `--wait` says otherwise."""


def require_client() -> None:
    """Raise ToolUnavailable with the line that installs the official client, if it is missing."""
    try:
        found = find_spec("mcp")
    except ValueError:  # it is blocked
        found = None
    if found is None:
        raise ToolUnavailable("third-party servers need the official MCP client", hint=install_hint("mcp"))


async def started(
    project: Project, servers: Servers, wait_s: float, names: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Start the servers, all at once, and return their states before they are stopped again."""
    async with project:
        left = dict.fromkeys(servers.mounted if names is None else names)
        text = ", ".join(left)
        with waiting("starting MCP servers", elsewhere=f"starting MCP servers: {text} …") as say:

            async def ready(name: str) -> None:
                await servers.ready(wait_s, [name])
                del left[name]
                say(f"({', '.join(left)})")

            say(f"({text})")
            await asyncio.gather(*map(ready, tuple(left)))
        return [project.redact(one.as_dict()) for one in servers.mounted.values()]


def listed(
    root: str | None, names: Collection[str], wait_s: float, channel: Channel
) -> dict[str, ToolcribError]:
    """Start these servers and wait until each has listed its tools. Return the errors of those that did not.

    Packages that their launchers lack are downloaded first (`resolve`).
    """
    from toolcrib.project import Project

    project = Project.open(root)
    servers = project.servers
    if servers is None or not names:
        return {}
    if not servers.trusted:
        raise NotTrusted("no server is started", hint="To see the settings and accept them: toolcrib trust")
    failed = resolve(project, names, channel)
    names = [name for name in names if name not in failed]
    for name in names:
        server = servers.get(name).server
        server.limit_s = max(server.limit_s, wait_s)
    states = asyncio.run(started(project, servers, wait_s, names))
    late = ToolUnavailable(f"it has not listed its tools within {wait_s:g} s", hint="--wait gives it longer.")
    return failed | {
        one["name"]: servers.get(one["name"]).server.error or late
        for one in states
        if one["name"] in names and one["state"] != "ready"
    }


def print_failed(
    failed: Mapping[str, ToolcribError], what: str = "did not start, so none of its tools is trusted"
) -> None:
    """Name each server that did not list its tools, with its error."""
    for name, error in failed.items():
        print_note(f"server {name} {what}: {error.message}")
        if error.hint:
            print_note(f"  hint: {error.hint}")


def trust_listed(
    root: str | None,
    unseen: Collection[str],
    wait_s: float,
    channel: Channel,
    names: Collection[str] | None = None,
) -> dict[str, ToolcribError]:
    """Start the servers, all or those of `names`, after the settings were trusted, and trust their tools.

    The answer covers whatever those of `unseen` list. What it does not cover is shown and asked: changed
    tools of the others, and words that may steer a model. Return the errors of servers that did not start.
    """
    from toolcrib.project import Project
    from toolcrib.project.tools.server_sheets import server_sheet

    servers = Project.inspect(root).servers
    chosen = ([] if servers is None else servers.mounted) if names is None else names
    failed = listed(root, list(chosen), wait_s, channel)
    project = Project.inspect(root)
    found: list[tuple[Mounted, ServerSheet]] = []
    if project.servers is not None:
        ready = [project.servers.get(name) for name in chosen if name not in failed]
        found = [(one, server_sheet(one)) for one in ready]
    covered, open_ = [], []
    for one, sheet in found:
        left = set(sheet.suspicious) if sheet.name in unseen else set(sheet.names)
        tools = [name for name in sheet.names if name not in left]
        if tools or sheet.name in unseen:
            covered.append((one, sheet, tools))
        if left:
            open_.append((one, sheet, left))
    _accept(project, covered, channel)
    if open_:
        _ask(project, open_, channel)
    print_failed(failed)
    return failed


_Chosen = Sequence[tuple["Mounted", "ServerSheet", Collection[str]]]


def _accept(project: Project, chosen: _Chosen, channel: Channel) -> None:
    from toolcrib.project.trust.sheets import cut, folded
    from toolcrib.state import user_name

    if not chosen:
        return
    project.trust.accept(user_name(), channel=channel, more=[one.row(tools) for one, _, tools in chosen])
    for _, sheet, tools in chosen:
        print_note(cut(f"server {sheet.name}: trusted {count(len(tools), 'tool')}: {folded(sorted(tools))}"))
        if sheet.takes_addresses:
            print_note(sheet.hosts_hint())


def _ask(project: Project, chosen: _Chosen, channel: Channel) -> None:
    """Show the tools that the first answer does not cover, and ask about them."""
    for _, sheet, left in chosen:
        for line in sheet.whole(left):
            print_result(line)
    number = sum(len(left) for _, _, left in chosen)
    question = "Trust this tool too?" if number == 1 else f"Trust these {number} tools too?"
    if choose(question, "y", "trust", yes=channel == "flag") == "y":
        _accept(project, chosen, channel)
        return
    print_note(f"{'It waits' if number == 1 else 'They wait'} for trust: toolcrib trust")


def resolve(project: Project, names: Iterable[str], channel: str) -> dict[str, ToolcribError]:
    """Download the packages that the launchers of these servers lack, and remember them with their trust.

    None of their code runs. Return the errors of those that cannot be downloaded.
    """
    from toolcrib.executors.mcp.process.local import lacking
    from toolcrib.state import user_name

    servers, rows, made, failed = project.servers, [], [], dict[str, ToolcribError]()
    with waiting("downloading") as say:
        for one in [] if servers is None else map(servers.get, names):
            try:
                if (missing := lacking(one.spec, str(project.root))) is None:
                    continue
                require_person("trust")
                say(f"for {one.spec.name}")
                rows.append(one.resolved_row(missing))
                made.append(one)
            except ToolUnavailable as error:
                failed[one.spec.name] = error
    project.trust.accept(user_name(), channel=channel, more=rows)
    for one in made:
        one.clear_older()
    return failed
