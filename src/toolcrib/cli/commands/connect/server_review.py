"""The review of an MCP server's tools by a person at a terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolcrib.cli.confirm import decide
from toolcrib.cli.output import count, print_note, print_result, printable
from toolcrib.cli.progress import waiting
from toolcrib.errors import ToolUnavailable

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.tools.servers import Mounted, Servers


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


async def reviewed(
    project: Project, servers: Servers, name: str, wait_s: float, *, yes: bool, as_json: bool
) -> dict[str, Any]:
    """Start a server, show its new and changed tools, and ask about them. Return the same as JSON."""
    mounted = servers.get(name)
    await started(project, servers, wait_s, [name])
    if mounted.server.error is not None:
        raise mounted.server.error
    pending = _pending(mounted)
    if not as_json:
        for line in _lines(pending):
            print_result(line)
        if not pending:
            print_note(f"Every tool of {name} has been reviewed.")
    channel = None
    if pending and (yes or not as_json):
        channel = decide("Run these tools without asking?", "servers", yes=yes)
    if channel is not None:
        mounted.review()
        project.audit.record("MCP_SERVER_REVIEWED", name=name, channel=channel, tools=sorted(pending))
    if channel is not None and not as_json:
        print_note(f"Reviewed {count(len(pending), 'tool')} of {name}: no question before the next calls.")
    return {"name": name, "unreviewed": pending, "accepted": channel is not None}


async def started(
    project: Project, servers: Servers, wait_s: float, names: list[str] | None = None
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
