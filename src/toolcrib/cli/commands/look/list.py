"""`toolcrib list`."""

from __future__ import annotations

from typing import Any

import click

from toolcrib.cli.output import (
    json_option,
    note,
    printable,
    root_option,
    tell_diagnostics,
    tell_lowered,
    write_json,
)

__all__ = ["command"]


@click.command("list")
@root_option
@json_option
@click.option(
    "--for",
    "--as",
    "shape",
    type=click.Choice(["anthropic", "gemini", "mcp", "openai", "openai-strict"]),
    help="The tools as this provider takes them, as JSON; what it cannot take is told.",
)
@click.option("--tag", "tags", multiple=True, help="Only tools with this tag (repeatable: any of them).")
@click.option("--member", help="Only the tools of this member or agent of a team.")
@click.option("--team", help="The team file (default: team.yaml in the project's root).")
def command(
    root: str | None,
    as_json: bool,
    shape: str | None,
    tags: tuple[str, ...],
    member: str | None,
    team: str | None,
) -> None:
    """List the project's tools. Manifests that do not load are told on standard error."""
    from toolcrib.project import Project

    project = Project.open(root)
    tell_lowered(project)
    tools = [tool for tool in project.tools() if not tags or set(tags) & set(tool.tags)]
    _tell_unseen(project)
    if member is not None or team is not None:
        skills = _skills(team or str(project.root / "team.yaml"), member, project)
        tools = [tool for tool in tools if tool.name in skills]
    errors = project.errors
    if shape is not None:
        write_json(_shaped(tools, shape))
    elif as_json:
        write_json({"tools": [_row(tool) for tool in tools], "diagnostics": [e.as_dict() for e in errors]})
    else:
        _table(tools, str(project.place.tools), tags)
    if errors and not (as_json and shape is None):
        tell_diagnostics(errors)
        note("These tools cannot be used. `toolcrib lint` shows everything that is wrong.")


def _tell_unseen(project: Any) -> None:
    """Which MCP servers have never told what they offer."""
    if project.servers is not None and project.servers.trusted:
        unseen = [name for name, mounted in project.servers.mounted.items() if not mounted.known]
        if unseen:
            note(f"Not seen yet: {', '.join(unseen)}. `toolcrib servers list` starts these MCP servers.")


def _skills(path: str, member: str | None, project: Any) -> set[str]:
    """The tools of one member, or of the whole team; every list in the file is checked first."""
    from toolcrib.errors import NotFoundError
    from toolcrib.manifest import check_team, failure, read, read_team

    try:
        team = read_team(path, read(path))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no team file {path}", hint="Name it by --team.") from None
    found = check_team(team, (tool.name for tool in project.tools()))
    if found:
        raise failure(found)
    members = team.members if member is None else (team.member(member),)
    return {skill for one in members for skill in one.skills}


def _row(tool: Any) -> dict[str, Any]:
    return {
        "name": tool.name,
        "bundle": tool.bundle,
        "version": tool.version,
        "kind": tool.kind,
        "description": tool.description,
        "tags": list(tool.tags),
        "approval": {"required": tool.approval.required, "reason": tool.approval.reason},
        "input_schema": tool.input_schema,
    }


def _shaped(tools: list[Any], shape: str) -> list[dict[str, Any]]:
    from toolcrib.schema.provider_shapes import shape_tools

    shaped = shape_tools(tools, shape)
    for name, reason in shaped.refused.items():
        note(printable(f"{name} is left out: {reason}"))
    return list(shaped.entries)


def _table(tools: list[Any], folder: str, tags: tuple[str, ...]) -> None:
    if not tools and tags:
        note("No tool has such a tag.")
    elif not tools:
        note(f"There are no tools yet: write {folder}/NAME/tool.yml, or run `toolcrib init --examples`.")
    else:
        from toolcrib.cli.table import brief, print_table

        rows = [
            (
                tool.name,
                tool.kind,
                "asks" if tool.approval.required else "",
                brief(tool.description),
            )
            for tool in tools
        ]
        print_table(("NAME", "KIND", "APPROVAL", "DESCRIPTION"), rows)
