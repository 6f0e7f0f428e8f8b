"""`toolcrib agents`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from toolcrib.cli.caller import caller_of
from toolcrib.cli.commands.decide.accepting import ask_for_files
from toolcrib.cli.commands.run.runs import ready_tools
from toolcrib.cli.commands.run.unserved import noting_unserved
from toolcrib.cli.options import open_project, project_options
from toolcrib.cli.output import (
    one_line,
    print_change,
    print_diagnostics,
    print_error,
    print_json,
    print_note,
    print_result,
    print_shown,
)
from toolcrib.cli.table import facts, print_listing
from toolcrib.errors import ToolcribError, UsageError


@click.group("agents")
def command() -> None:
    """Show, import and choose agents, and hand tasks to them.

    Each is a file `agents/NAME.yml` in the project's home folder.
    """


@command.command("list")
@project_options
def list_command(root: str | None, as_json: bool) -> int:
    """List the agents.

    Exit 4 if one of the files is wrong.
    """
    project = open_project(root)
    agents = project.agents.all()
    findings = project.agents.findings(project.bundles.names, project.calls.known.some)
    print_listing(
        as_json,
        "agents",
        [one.as_dict() for one in agents.values()],
        ("NAME", "MODEL", "TOOLS", "AGENTS", "DESCRIPTION"),
        empty=f"There are no agents in {project.place.agents}.",
        diagnostics=[finding.as_dict() for finding in findings],
    )
    if not as_json:
        print_diagnostics(findings)
    return 4 if any(finding.is_error for finding in findings) else 0


@command.command("show")
@click.argument("name")
@project_options
def show_command(name: str, root: str | None, as_json: bool) -> None:
    """Show one agent: its model, instructions, tools and budgets."""
    agent = open_project(root).agents.find(name)
    values = {
        "agent": agent.name,
        "model": agent.model,
        "tools": ", ".join(agent.tools),
        "agents": ", ".join(agent.agents),
        "settings": " ".join(f"{key}={value}" for key, value in agent.settings.items()),
        "budgets": " ".join(f"{key}={value}" for key, value in agent.document["budgets"].items() if value),
        "about": agent.description,
    }
    lines = facts(values)
    if agent.instructions:
        lines += ["", *(one_line(line) for line in agent.instructions.splitlines())]
    print_shown(as_json, agent.as_dict(), "\n".join(lines))


@command.command("choose")
@click.argument("task")
@project_options
def choose_command(task: str, root: str | None, as_json: bool) -> None:
    """List the agents whose descriptions fit a task, the best first.

    They are found as `toolcrib list WORDS` finds tools, so the same task always gets the same answer.
    """
    project = open_project(root)
    caller, identity = caller_of(project)
    found = project.tasks.choose(task, caller=caller, identity=identity)
    print_listing(
        as_json,
        "agents",
        [one._asdict() for one in found],
        ("NAME", "KIND", "DESCRIPTION"),
        empty="No agent's description fits this task.",
    )


@command.command("task")
@click.argument("prompt")
@click.option("--agent", help="The agent (default: the one whose description fits best).")
@click.option("--session", help="Continue the session of an earlier task.")
@project_options
def task_command(
    prompt: str, agent: str | None, session: str | None, root: str | None, as_json: bool
) -> None:
    """Hand a task to an agent, or to a confined command-line agent.

    Prints the answer, and on standard error the id of the session, for --session.
    """
    project = open_project(root)
    ask_for_files(project)
    caller, identity = caller_of(project)

    async def run() -> dict[str, Any]:
        def waiting() -> set[str] | None:
            return ready_tools(project, None) if project.has_state else None

        async with project, noting_unserved(project, waiting):
            return await project.tasks.run(prompt, agent, session, caller=caller, identity=identity)

    done = asyncio.run(run())
    if as_json:
        print_json(done)
        return
    print_result(done["answer"] or "")
    log = f", log {done['log']}" if done["log"] else ""
    print_note(f"agent {done['agent']}, session {done['session']}{log}")


@command.command("add")
@click.argument("program", type=click.Choice(("claude", "codex", "gemini")))
@project_options
def add_command(program: str, root: str | None, as_json: bool) -> None:
    """Add the tool that runs a command-line agent.

    Its files define how the program is called, and its permissions. To trust them: toolcrib trust PROGRAM
    """
    from toolcrib.project import find
    from toolcrib.project.authoring.starter import add_program

    created = [str(path) for path in add_program(find(root), program)]
    next_step = f"Change what it may do there, then: toolcrib trust {program}"
    lines = [*(f"created {path}" for path in created), next_step]
    print_change(as_json, {"created": created}, "\n".join(lines))


@command.command("import")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", help="PROVIDER:MODEL for agents that name none, or only an alias.")
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@project_options
def import_command(
    files: tuple[Path, ...], model: str | None, dry_run: bool, root: str | None, as_json: bool
) -> int:
    """Import agents of Claude Code and Gemini CLI.

    Without FILES, all of .claude/agents and .gemini/agents in the project. Notes
    name the settings that have no equivalent here.
    """
    from toolcrib.project.authoring.agent_import import import_agent, importable

    project = open_project(root)
    sources = list(files) or importable(project.root)
    if not sources:
        raise UsageError(
            f"there are no agents in .claude/agents and .gemini/agents of {project.root}",
            hint="Name the files.",
        )
    found, errors = [], []
    for source in sources:
        try:
            found.append(import_agent(project, source, model, write=not dry_run))
        except ToolcribError as error:
            errors.append(error)
    if as_json:
        print_json(
            {"agents": [one.as_dict() for one in found], "errors": [error.as_dict() for error in errors]}
        )
        return max((error.exit_code for error in errors), default=0)
    for one in found:
        print_result(f"{one.source} -> {one.path.relative_to(project.root)}")
        for note in one.notes:
            print_note(f"  {one_line(note)}")
    return max((print_error(error) for error in errors), default=0)
