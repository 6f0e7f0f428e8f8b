"""`toolcrib agents`."""

from __future__ import annotations

import click

from toolcrib.cli.options import project_options
from toolcrib.cli.output import one_line, print_diagnostics, print_json, print_result
from toolcrib.cli.table import print_listing


@click.group("agents")
def command() -> None:
    """Show the agents of the project.

    Each is a file `agents/NAME.yml` in the project's home folder.
    """


@command.command("list")
@project_options
def list_command(root: str | None, as_json: bool) -> int:
    """List the agents.

    Exit 4 if one of the files is wrong.
    """
    from toolcrib.project import Project

    project = Project.open(root)
    agents = project.agents.all()
    findings = project.agents.findings(lambda: [tool.name for tool in project.tools()])
    print_listing(
        as_json,
        {
            "agents": [agent.document for agent in agents.values()],
            "diagnostics": [finding.as_dict() for finding in findings],
        },
        ("NAME", "MODEL", "TOOLS", "AGENTS", "DESCRIPTION"),
        [
            (
                agent.name,
                agent.model,
                ", ".join(agent.tools),
                ", ".join(agent.agents),
                one_line(agent.description),
            )
            for agent in agents.values()
        ],
        empty=f"There are no agents in {project.place.agents}.",
    )
    if not as_json:
        print_diagnostics(findings)
    return 4 if any(finding.is_error for finding in findings) else 0


@command.command("show")
@click.argument("name")
@project_options
def show_command(name: str, root: str | None, as_json: bool) -> None:
    """Show one agent: its model, instructions, tools and budgets."""
    from toolcrib.project import Project

    agent = Project.open(root).agents.get(name)
    if as_json:
        print_json(agent.document)
        return
    facts = {
        "agent": agent.name,
        "model": agent.model,
        "tools": ", ".join(agent.tools),
        "agents": ", ".join(agent.agents),
        "settings": " ".join(f"{key}={value}" for key, value in agent.settings.items()),
        "budgets": " ".join(f"{key}={value}" for key, value in agent.document["budgets"].items() if value),
        "about": agent.description,
    }
    lines = [f"{key:9} {one_line(value)}" for key, value in facts.items() if value]
    if agent.instructions:
        lines += ["", *(one_line(line) for line in agent.instructions.splitlines())]
    print_result("\n".join(lines))
