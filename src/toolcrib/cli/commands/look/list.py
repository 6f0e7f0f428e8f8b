"""`toolcrib list`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.caller import caller_of
from toolcrib.cli.options import FileCommand, open_project, project_options
from toolcrib.cli.output import count, print_diagnostics, print_json, print_note, print_warnings, shown
from toolcrib.cli.table import DESCRIPTION, print_listing
from toolcrib.errors import NotFoundError, ToolcribError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.spec import Tool


@click.command("list", cls=FileCommand)
@project_options
@click.option(
    "--for",
    "shape",
    type=click.Choice(["anthropic", "gemini", "gemini-json", "mcp", "openai", "openai-strict"]),
    help="Print JSON in the shape of this provider. Tools that do not fit are reported.",
)
@click.option("--tag", "tags", multiple=True, help="Only tools with this tag, or one of several. Repeatable.")
@click.option("--member", help="Only the tools of this member of a team.")
@click.option("--team", help="The team file (default: team.yaml in the project's folder).")
def command(
    root: str | None,
    as_json: bool,
    shape: str | None,
    tags: tuple[str, ...],
    member: str | None,
    team: str | None,
) -> None:
    """List the tools of the project.

    Manifests with errors are reported on standard error.
    """
    project = open_project(root)
    print_warnings(project)
    in_team = member is not None or team is not None
    skills = _skills(team, member, project) if in_team else None
    tools = [tool for tool in project.tools(*caller_of(project)) if not tags or set(tags) & set(tool.tags)]
    _print_unseen_servers(project)
    if skills is not None:
        tools = [tool for tool in tools if tool.name in skills]
    errors = project.errors
    if shape is not None:
        print_json(_shaped(tools, shape))
    else:
        waiting = _waiting(project, tools)
        file = project.place.file
        empty = "There are no tools yet. To create one: toolcrib new NAME, or toolcrib init --examples"
        empty = empty if file is None else f"{file.name} has no tools."
        if tags:
            empty = "No tool has such a tag."
        elif errors:
            files = len({error.path for error in errors})
            empty = f"{count(files, 'tool')} {'does' if files == 1 else 'do'} not load:"
        diagnostics = [error.as_dict() for error in shown(errors)]
        _print_tools(tools, waiting, as_json=as_json, empty=empty, diagnostics=diagnostics)
        if waiting and not as_json:
            which = count(len(waiting), "tool")
            print_note(f"{which} {'waits' if len(waiting) == 1 else 'wait'} for trust: toolcrib trust")
    if errors and not (as_json and shape is None):
        print_diagnostics(errors)
        print_note("These tools cannot be used. For all errors and warnings: toolcrib lint")


def _print_tools(
    tools: Sequence[Tool], waiting: Mapping[str, str], *, as_json: bool, empty: str, **more: Any
) -> None:
    approval = "APPROVAL", lambda tool: "asks" if tool["approval"]["required"] else ""
    trust = [("TRUST", "trust")] if waiting else []
    columns = ("NAME", "KIND", approval, *trust, DESCRIPTION)
    entries = [{**entry_of(tool), "trust": waiting.get(tool.name)} for tool in tools]
    print_listing(as_json, "tools", entries, columns, empty=empty, **more)


def _waiting(project: Project, tools: Sequence[Tool]) -> dict[str, str]:
    """Return `new` or `changed` by the name of each tool that does not run before a person trusts it."""
    from toolcrib.manifest.kinds import is_function

    if not project.trust.given:
        return {tool.name: "new" for tool in tools if not is_function(tool)}
    found: dict[str, str] = {}
    for tool in tools:
        if is_function(tool):
            continue
        with suppress(ToolcribError):
            sheet = project.trust.sheet(tool)
            if sheet.waits:
                found[tool.name] = sheet.status
    return found


def _print_unseen_servers(project: Project) -> None:
    """Name the MCP servers whose tools are not known yet."""
    if project.servers is not None and project.servers.trusted:
        unseen = [name for name, mounted in project.servers.mounted.items() if not mounted.known]
        if unseen:
            note = "the tools of these MCP servers are not known yet; `toolcrib servers list` starts them"
            print_note(f"note: {note}: {', '.join(unseen)}")


def _skills(named: str | None, member: str | None, project: Project) -> set[str]:
    """Return the tools of one member, or of the whole team. Raises if the file names an unknown tool.

    Built-in tools that the team lists are on here, as they are for an agent that lists them. `named` is the
    team's file; None for the project's own.
    """
    from toolcrib.manifest import ANY_FILE, check_team, failure, load_team
    from toolcrib.project import source_files

    path = named or str(project.root / "team.yaml")
    files = ANY_FILE if named else source_files(project.root, project.place.home)
    try:
        team = load_team(path, files)
    except NotFoundError as error:
        raise NotFoundError(error.message, hint="Give its path with --team.") from None
    project.catalog.builtins.switch_on(skill for one in team.members for skill in one.skills)
    findings = check_team(team, (name for name, _ in project.described()))
    if findings:
        raise failure(findings)
    members = team.members if member is None else (team.member(member),)
    return {skill for one in members for skill in one.skills}


def entry_of(tool: Tool) -> dict[str, Any]:
    """Return a tool as an entry of `--json`."""
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


def _shaped(tools: list[Tool], shape: str) -> list[Any]:
    from toolcrib.schema.provider_shapes import shape_tools

    shaped = shape_tools(tools, shape)
    for name, reason in shaped.refused.items():
        print_note(f"{name} is left out: {reason}")
    if shaped.meta:
        print_note(f"descriptions that {shape} does not accept whole are cut: {', '.join(shaped.meta)}")
    return list(shaped.entries)
