"""Questions of commands that need the person's trust before they go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from toolcrib.cli.caller import given_token
from toolcrib.cli.confirm import at_terminal, decide
from toolcrib.cli.options import open_project
from toolcrib.cli.output import print_note

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.spec import Tool


def accepted_project(root: str | None, *, ask: bool, load: bool = True) -> Project:
    """Open a project as `open_project` does. If it is not accepted and somebody is at the terminal, ask
    first."""
    project = open_project(root, load=load)
    if not ask or project.trust.given or given_token() is not None or not at_terminal():
        return project
    from toolcrib.cli.commands.decide.trust_state import TrustState
    from toolcrib.project import Project

    state = TrustState(Project.inspect(root))
    state.print()
    state.decide()
    return open_project(root)


def ask_for_trust(project: Project, which: Callable[[Tool], bool], then: str) -> None:
    """Ask at the terminal, once, for the trust that some tools, agents or workflows wait for."""
    from toolcrib.project.trust.sheets import lines_of
    from toolcrib.state import user_name

    if given_token() is not None or not at_terminal() or not project.trust.given:
        return
    sheets = [project.trust.sheet(tool) for tool in project.trust.waiting() if which(tool)]
    if not sheets:
        return
    for line in lines_of(sheets):
        print_note(f"  {line}")
    if (channel := decide(f"Trust this, and {then}?", "trust")) is not None:
        project.trust.accept(user_name(), sheets, channel=channel)


def ask_for_files(project: Project) -> None:
    """Ask at the terminal, once, for the trust that agents and workflows wait for."""
    ask_for_trust(project, lambda tool: tool.kind in ("agent", "workflow"), "continue")
