"""`toolcrib workflows`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from toolcrib.cli.arguments import parse_arguments
from toolcrib.cli.caller import caller_of
from toolcrib.cli.commands.decide.accepting import ask_for_files
from toolcrib.cli.commands.run.runs import followed
from toolcrib.cli.commands.run.unserved import note_if_unserved
from toolcrib.cli.options import open_project, project_options
from toolcrib.cli.output import print_error, print_interrupted, print_json, print_note, print_result
from toolcrib.cli.table import print_listing
from toolcrib.errors import ToolcribError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.runs.sessions import Run


@click.group("workflows")
def command() -> None:
    """Run tools, agents and workflows in steps.

    A workflow is a file of the project; its runs continue if a process dies.
    """


@command.command("list")
@project_options
def list_command(root: str | None, as_json: bool) -> int:
    """List the workflows of the project."""
    project = open_project(root)
    found = project.workflows.all().values()
    findings = project.workflows.findings(project.agents.all())
    for finding in findings:
        print_note(finding.render())
    print_listing(
        as_json,
        "workflows",
        [one.as_dict() for one in found],
        ("NAME", ("STEPS", lambda one: len(one["steps"])), "DESCRIPTION"),
        empty="There are no workflows. To create one, write a file in the folder workflows.",
    )
    return 4 if findings else 0


@command.command("show")
@click.argument("name")
@project_options
def show_command(name: str, root: str | None, as_json: bool) -> None:
    """Show the inputs and steps of a workflow."""
    workflow = open_project(root).workflows.find(name)
    if as_json:
        print_json(workflow.as_dict())
        return
    print_result(f"{workflow.name}: {workflow.description}" if workflow.description else workflow.name)
    for plan in workflow.plans:
        kind, _, callee = plan.step.tool.partition(":")
        after = f", after {', '.join(sorted(plan.needs))}" if plan.needs else ""
        print_result(f"  {plan.step.id}: {kind} {callee}{after}")


@command.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("inputs", nargs=-1)
@project_options
@click.option("--detach", is_flag=True, help="Only store the run and print its id; a worker runs it.")
def run_command(name: str, inputs: tuple[str, ...], root: str | None, as_json: bool, detach: bool) -> int:
    """Run a workflow and print its value.

    INPUTS are written as the arguments of `toolcrib run`. Ctrl-C leaves the run stored: a worker, or
    `toolcrib runs wait`, continues with it.
    """
    project = open_project(root)
    ask_for_files(project)
    caller, identity = caller_of(project)
    workflow = project.workflows.get(name)
    given = parse_arguments(inputs, workflow.inputs)
    run_id = project.workflows.start(name, given, caller=caller, identity=identity)
    if detach:
        run = project.runs.find(run_id)
        note_if_unserved(project, set(), waits=f"toolcrib runs wait {run_id}")
    else:
        try:
            run = asyncio.run(followed(project, run_id))
        except (KeyboardInterrupt, asyncio.CancelledError):
            return print_interrupted(
                f"interrupted: run {run_id} is stored and can be continued", as_json=as_json
            )
    return _print(project, run, as_json=as_json, detached=detach)


def _print(project: Project, run: Run, *, as_json: bool, detached: bool) -> int:
    outcome = project.workflows.outcome(run)
    if as_json:
        print_json(outcome)
    elif detached:
        print_result(run.id)
    elif run.state == "done":
        value = outcome["value"]
        print_result(value) if isinstance(value, str) else print_json(value)
    else:
        print_note(f"run {run.id}: {run.state}")
    if "error" in outcome:
        error = ToolcribError.from_dict(outcome["error"])
        return error.exit_code if as_json else print_error(error)
    return 0 if detached or run.state == "done" else 1
