"""A project's list of tools as one host gets it, in words."""

from __future__ import annotations

from typing import Any

from toolcrib.cli.options import open_project
from toolcrib.cli.output import count, one_line, print_note


def fit_report(root: str | None, host: str, server: str = "toolcrib") -> dict[str, Any]:
    """Return what the list of this host changes, and cannot show; `server` is our name in its file."""
    import orjson

    from toolcrib.errors import ToolcribError
    from toolcrib.project.mcp_catalog import mcp_catalog
    from toolcrib.schema.hosts import HOSTS, changes_of
    from toolcrib.schema.providers import mcp_tool, wire_names
    from toolcrib.spec import Tool

    rules = HOSTS[host]
    listed = mcp_catalog(open_project(root)).listed(f"mcp:{rules.clients[0]}")
    made = wire_names(tool for tool in listed.values() if isinstance(tool, Tool) and tool.mcp.listed)
    entries = [mcp_tool(tool, name) for name, tool in made.items()]
    entries += [orjson.loads(tool) for tool in listed.values() if not isinstance(tool, Tool)]
    changed: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for entry in entries:
        try:
            if found := changes_of(entry, rules, server):
                changed[entry["name"]] = found
        except (ToolcribError, RecursionError) as error:
            refused[entry["name"]] = str(error) or type(error).__name__
    return {
        "client": rules.title,
        "tools": len(entries),
        "most": rules.most,
        "changed": changed,
        "refused": refused,
    }


def print_fit(fit: dict[str, Any]) -> None:
    """Print such a report: what changes, then what cannot be shown."""
    print_note(f"{fit['client']} gets {count(fit['tools'], 'tool')} here.")
    for name, changes in fit["changed"].items():
        print_note(one_line(f"{name}: {'; '.join(changes)}"))
    for name, why in fit["refused"].items():
        print_note(one_line(f"{name} cannot be shown in its form: {why}"))
    if fit["most"] is not None and fit["tools"] > fit["most"]:
        print_note(
            f"It takes {fit['most']} tools in one request: set mcp.max_listed and mcp.pinned in config.yml."
        )
