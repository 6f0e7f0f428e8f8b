"""`toolcrib list`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.commands.bundles.chosen import data_option, document_of
from toolcrib.cli.commands.look.filters import filter_options, open_catalogue, wish_of
from toolcrib.cli.options import FileCommand, open_project, project_options
from toolcrib.cli.output import count, print_diagnostics, print_json, print_note, print_warnings, shown
from toolcrib.cli.table import DESCRIPTION, Column, print_listing
from toolcrib.errors import NotFoundError, UsageError
from toolcrib.spec.tools.tool import PLAIN

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.schema.provider_shapes import Shape
    from toolcrib.spec import Tool


_USUAL = 25
"""Tools on a page of those that match."""


@click.command("list", cls=FileCommand)
@click.argument("words", nargs=-1)
@project_options
@click.option(
    "--for",
    "shape",
    type=click.Choice(["anthropic", "gemini", "gemini-json", "mcp", "openai", "openai-strict"]),
    help="Print JSON in the shape of this provider. Tools that do not fit are reported.",
)
@filter_options
@click.option("--member", help="Only the tools of this member of a team.")
@click.option("--team", help="The team file (default: team.yaml in the project's folder).")
@click.option(
    "--limit", type=click.IntRange(1, 256), help="With WORDS: show at most this many (default: 25)."
)
@click.option(
    "--page", metavar="TOKEN", help="With WORDS: show the next page, the `next` of the page before."
)
@data_option
def command(
    words: tuple[str, ...],
    root: str | None,
    as_json: bool,
    shape: Shape | None,
    member: str | None,
    team: str | None,
    **more: Any,
) -> int:
    """List the tools of the project, or those that match WORDS.

    These are its own, those of servers and bundles, and built-in ones that are on. Manifests with errors are
    reported on standard error. WORDS are looked for in names, tags, descriptions and names of arguments, the
    best match first; outside of a project in your bundles. Exit 3 if no tool matches.
    """
    whole = {"--for": shape, "--member": member, "--team": team}
    found = {f"--{name}": more[name] for name in ("limit", "page", "data")}
    _require_fitting(found if not words else whole, "with" if not words else "without")
    if words:
        return _find(" ".join(words), root, as_json=as_json, **more)
    for name in ("limit", "page", "data"):
        del more[name]
    _list(open_project(root), shape, member, team, more, as_json=as_json)
    return 0


def _require_fitting(options: Mapping[str, Any], how: str) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise UsageError(f"{given[0]} has an effect only {how} WORDS")


def _find(
    words: str,
    root: str | None,
    *,
    as_json: bool,
    data: str | None,
    limit: int | None,
    page: str | None,
    **filters: Any,
) -> int:
    """Print the tools that match, a page of them."""
    project, catalogue = open_catalogue(root, data)
    wish = wish_of(catalogue, project, **filters)
    found = catalogue.search(words, wish, limit=limit or _USUAL, page=page)
    counts = catalogue.facets(words, wish)._asdict() if as_json else {}
    counts.pop("total", None)
    match: Column = "MATCH", lambda hit: f"{hit['match']}, {hit['field']}"
    every = "list" if project is not None else "bundle list"
    print_listing(
        as_json,
        "tools",
        document_of(found.tools),
        ("NAME", "KIND", match, DESCRIPTION),
        empty=f"No tool matches. {_instead(words, every)}",
        total=found.total,
        facets=counts,
        next=found.next,
    )
    if found.next is not None and not as_json:
        print_note(f"{found.total} tools match. The next page: --page {found.next}")
    return 0 if found.tools else 3


def _instead(words: str, every: str) -> str:
    """Return what to do where no tool matches words."""
    if Path(words).is_dir():
        return f"To list the tools of this folder: toolcrib list --root {shlex.quote(words)}"
    if Path(f"{words}.py").is_file():
        return f"To list the tools of a file: toolcrib list {shlex.quote(words)}.py"
    return f"To see all tools: toolcrib {every}"


def _list(
    project: Project,
    shape: Shape | None,
    member: str | None,
    team: str | None,
    filters: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    print_warnings(project)
    skills = None if member is None and team is None else _skills(team, member, project)
    project.catalog.registry.check_all()
    found = project.bundles.all(wish_of(project.bundles, project, **filters))
    _print_unseen_servers(project)
    if skills is not None:
        found = [tool for tool in found if tool.name in skills]
    errors = project.errors
    if shape is not None:
        print_json(_shaped([project.get(tool.name) for tool in found], shape))
    else:
        diagnostics = [error.as_dict() for error in shown(errors)]
        tools, empty = document_of(found), _empty(project, filtered=any(filters.values()))
        print_listing(as_json, "tools", tools, _columns(tools), empty=empty, diagnostics=diagnostics)
        if not as_json:
            _print_waiting([tool.source for tool in found if tool.trust is not None], project.place.trust)
    if errors and not (as_json and shape is None):
        print_diagnostics(errors)
        print_note("These tools cannot be used. For all errors and warnings: toolcrib lint")


def _print_waiting(sources: Sequence[str], command: str) -> None:
    """Print how to trust the tools that wait: records of bundles only by their names."""
    records = sources.count("user")
    for number, how in ((len(sources) - records, command), (records, f"{command} NAME")):
        if number:
            print_note(f"{count(number, 'tool')} {'waits' if number == 1 else 'wait'} for trust: {how}")


def _columns(tools: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns that say something."""
    several: list[Column] = [
        (key.upper(), key)
        for key in ("source", *PLAIN, "trust")
        if len({tool[key] for tool in tools}) > 1 or (key != "source" and any(tool[key] for tool in tools))
    ]
    approval: Column = ("APPROVAL", lambda tool: "" if tool["asks"] is None else "asks")
    state: Column = ("ENABLED", "isEnabled")
    shown_state = [] if all(tool["isEnabled"] for tool in tools) else [state]
    return ["NAME", "KIND", *several[:-1 if several and several[-1][0] == "TRUST" else None], *shown_state,
            approval, *(one for one in several if one[0] == "TRUST"), DESCRIPTION]  # fmt: skip


def _empty(project: Project, *, filtered: bool) -> str:
    """Return the note for an empty list."""
    file, errors = project.place.file, project.errors
    if filtered:
        return "No tool is like that."
    if errors:
        files = len({error.path for error in errors})
        return f"{count(files, 'tool')} {'does' if files == 1 else 'do'} not load:"
    if file is not None:
        return f"{file.name} has no tools."
    return "There are no tools yet. To create one: toolcrib new NAME, or toolcrib init --examples"


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
    from toolcrib.manifest import ANY_FILE, failure
    from toolcrib.manifest.team import check_team, load_team
    from toolcrib.project import source_files

    path = named or str(project.root / "team.yaml")
    files = ANY_FILE if named else source_files(project.root, project.place.home)
    try:
        team = load_team(path, files)
    except NotFoundError as error:
        raise NotFoundError(error.message, hint="Give its path with --team.") from None
    project.catalog.builtins.switch_on(skill for one in team.members for skill in one.skills)
    findings = check_team(team, project.bundles.names())
    if findings:
        raise failure(findings)
    members = team.members if member is None else (team.member(member),)
    return {skill for one in members for skill in one.skills}


def _shaped(tools: list[Tool], shape: Shape) -> list[Any]:
    from toolcrib.schema.provider_shapes import shape_tools

    shaped = shape_tools(tools, shape)
    for name, reason in shaped.refused.items():
        print_note(f"{name} is left out: {reason}")
    if shaped.meta:
        print_note(f"descriptions that {shape} does not accept whole are cut: {', '.join(shaped.meta)}")
    return list(shaped.entries)
