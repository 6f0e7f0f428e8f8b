"""The review of an MCP server's tools by a person at a terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
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
    project: Project, servers: Servers, name: str | None, wait_s: float, *, yes: bool, as_json: bool
) -> list[dict[str, Any]]:
    """Start one server or all, show their new and changed tools, and ask once. Return the same as JSON.

    Of all servers, those that start are reviewed. Raises the error of a single one.
    """
    chosen = [*servers.mounted.values()] if name is None else [servers.get(name)]
    await started(project, servers, wait_s, [one.spec.name for one in chosen])
    errors = {one.spec.name: one.server.error for one in chosen if one.server.error is not None}
    if name in errors:
        raise errors[name]
    pending = {one.spec.name: _pending(one) for one in chosen if one.spec.name not in errors}
    if not as_json:
        for tools in pending.values():
            for line in _lines(tools):
                print_result(line)
        for failed, error in errors.items():
            print_note(f"{failed} did not start: {error}")
    asked = [one for one in chosen if pending.get(one.spec.name)]
    channel = None
    if asked and (yes or not as_json):
        channel = decide("Run these tools without asking?", "servers", yes=yes)
    for one in asked if channel is not None else ():
        one.review()
        reviewed_tools = sorted(pending[one.spec.name])
        project.audit.record("MCP_SERVER_REVIEWED", name=one.spec.name, channel=channel, tools=reviewed_tools)
    if not as_json:
        for server, tools in pending.items():
            if not tools:
                print_note(f"Every tool of {server} has been reviewed.")
            elif channel is not None:
                print_note(
                    f"Reviewed {count(len(tools), 'tool')} of {server}: no question before the next calls."
                )
    documents: list[dict[str, Any]] = [
        {"name": server, "unreviewed": tools, "accepted": channel is not None}
        for server, tools in pending.items()
    ]
    return documents + [
        {"name": failed, "error": project.redact(error.as_dict())} for failed, error in errors.items()
    ]


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
