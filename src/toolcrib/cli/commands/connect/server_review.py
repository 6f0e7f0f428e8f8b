"""The review of an MCP server's tools by a person at a terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolcrib.cli.confirm import Channel, decide, enter
from toolcrib.cli.output import count, print_note, print_result, printable
from toolcrib.cli.progress import waiting
from toolcrib.errors import ToolcribError, ToolUnavailable, UsageError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.tools.servers import Mounted, Servers
    from toolcrib.spec import Network


NO_HOST = "none"
"""The word for no host at all."""
_HOSTS = "A host is written example.org, *.example.org or example.org:8080; `*` is every public one."


def require_client() -> None:
    """Raise ToolUnavailable with the line that installs the official client, if it is missing."""
    try:
        found = find_spec("mcp")
    except ValueError:  # it is blocked
        found = None
    if found is None:
        raise ToolUnavailable(
            "third-party servers need the official MCP client", hint="Install it: pip install 'toolcrib[mcp]'"
        )


def network_of(hosts: Sequence[str]) -> Network:
    """Return the permission that these hosts make: `*` is every public host, `none` alone is no host at all.

    Raises UsageError for an entry that is not a host.
    """
    from toolcrib.egress import HostRule
    from toolcrib.spec import Network

    if list(hosts) == [NO_HOST]:
        return Network()
    if "*" in hosts:
        return Network("any")
    for host in hosts:
        try:
            HostRule.parse(host)
        except ValueError as error:
            raise UsageError(str(error), hint=_HOSTS) from None
    return Network.parse({"allow": list(hosts)})


async def reviewed(
    project: Project,
    servers: Servers,
    name: str | None,
    wait_s: float,
    *,
    yes: bool,
    as_json: bool,
    allow: Network | None = None,
) -> list[dict[str, Any]]:
    """Start one server or all, show their new and changed tools, and ask once. Return the same as JSON.

    Of all servers, those that start are reviewed. `allow` are the hosts that a single one may reach from now
    on. At a terminal a person also enters those of each server whose tools take addresses. Raises the error
    of a single server.
    """
    chosen = [*servers.mounted.values()] if name is None else [servers.get(name)]
    await started(project, servers, wait_s, [one.spec.name for one in chosen])
    errors = {one.spec.name: one.server.error for one in chosen if one.server.error is not None}
    if name in errors:
        raise errors[name]
    ready = [one for one in chosen if one.spec.name not in errors]
    pending = {one.spec.name: _pending(one) for one in ready}
    if not as_json:
        _print(pending, errors)
    asked = [one for one in ready if allow is not None or pending[one.spec.name]]
    channel = None
    if asked and (yes or not as_json):
        channel = decide(_question(asked[0], pending, allow), "trust", yes=yes)
    for one in asked if channel is not None else ():
        hosts = allow
        if channel == "terminal" and hosts is None and one.waits_for_hosts:
            hosts = _entered(one.spec.name)
        _accept(project, one, hosts, channel)
    if not as_json:
        for one in ready:
            _print_result(one, len(pending[one.spec.name]), accepted=channel is not None)
    documents: list[dict[str, Any]] = [
        {
            "name": one.spec.name,
            "waiting": pending[one.spec.name],
            "accepted": channel is not None,
            "network": one.spec.permissions.network.as_json(),
        }
        for one in ready
    ]
    return documents + [
        {"name": failed, "error": project.redact(error.as_dict())} for failed, error in errors.items()
    ]


def _reach(network: Network) -> str:
    """Return a permission in words."""
    words = {"none": "no host", "any": "every public host"}
    return f"reach {words.get(network.mode) or ', '.join(network.allow)}"


def _print(pending: Mapping[str, Mapping[str, Any]], errors: Mapping[str, ToolcribError]) -> None:
    for tools in pending.values():
        for line in _lines(tools):
            print_result(line)
    for name, error in errors.items():
        print_note(f"{name} did not start: {error}" + (f"\n  hint: {error.hint}" if error.hint else ""))


def _question(one: Mounted, pending: Mapping[str, Any], allow: Network | None) -> str:
    hosts = "" if allow is None else f"let {one.spec.name} {_reach(allow)}"
    if not any(pending.values()):
        return f"{hosts[0].upper()}{hosts[1:]}?"
    return f"Run these tools without asking{', and ' if hosts else ''}{hosts}?"


def _entered(name: str) -> Network:
    """Return the hosts that a person enters for a server."""
    print_note(f"{name} takes addresses. It could send what it reads to the hosts that it reaches.")
    while True:
        words = enter(f"Hosts for {name}, such as example.org (`*`: every public host; Enter: none):")
        try:
            return network_of(words.replace(",", " ").split() or [NO_HOST])
        except UsageError as error:
            print_note(f"{error}. {error.hint}")


def _accept(project: Project, one: Mounted, hosts: Network | None, channel: Channel | None) -> None:
    from toolcrib.state import user_name

    project.trust.accept(user_name(), channel=channel or "program", more=[one.row(hosts)])
    one.reread()


def _print_result(one: Mounted, tools: int, *, accepted: bool) -> None:
    name = one.spec.name
    if not tools:
        print_note(f"Every tool of {name} has been reviewed.")
    elif accepted:
        print_note(f"Reviewed {count(tools, 'tool')} of {name}: no question before the next calls.")
    if one.waits_for_hosts:
        print_note(
            f"{name} takes addresses, and may reach no host: toolcrib servers review {name} --allow HOST"
        )
    elif one.trust.network() is not None:
        print_note(f"{name} may {_reach(one.spec.permissions.network)}.")


async def started(
    project: Project, servers: Servers, wait_s: float, names: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Start the servers, and return their states before they are stopped again."""
    async with project:
        left = dict.fromkeys(names or servers.mounted)
        with waiting("starting MCP servers") as say:

            async def ready(name: str) -> None:
                await servers.ready(wait_s, [name])
                del left[name]
                say(f"({', '.join(left)})")

            say(f"({', '.join(left)})")
            await asyncio.gather(*map(ready, tuple(left)))
        return [project.redact(one.as_dict()) for one in servers.mounted.values()]


def _pending(mounted: Mounted) -> dict[str, Any]:
    """Map our name of each tool that needs a review to the reason and to the server's definition."""
    return {
        name: {"reason": mounted.pending[name], "definition": mounted.live[own]}
        for own, name in mounted.tools.items()
        if name in mounted.pending
    }


def _lines(pending: Mapping[str, Any]) -> Iterator[str]:
    for name, one in pending.items():
        definition = one["definition"]
        yield printable(f"{name}: {one['reason']}")
        yield printable(f"  {definition.get('description') or definition.get('title') or '(no description)'}")
        # ASCII only, so that invisible characters show.
        yield f"  input: {json.dumps(definition['inputSchema'])}"
        yield ""
