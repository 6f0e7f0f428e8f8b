"""Questions to the person at the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolcrib.cli.output import print_note
from toolcrib.cli.sheets import lines_of, names_of
from toolcrib.errors import ApprovalRequired, ToolcribError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.control.first_use import ReviewSheet
    from toolcrib.spec import Call, Tool

__all__ = ["approver_of", "at_terminal", "confirm"]


def confirm(question: str, *, no_terminal: type[ToolcribError] = ApprovalRequired) -> bool:
    """Ask a question that only `y` or `yes` answers with yes. Raises `no_terminal` if nobody can be asked."""
    if not at_terminal():
        raise no_terminal(
            "there is no terminal to ask at, so nothing was changed",
            hint="Run the command at a terminal, or add --yes.",
        )
    return _ask(question)


def approver_of(
    project: Project, call: Call, *, approve: bool, ask: bool, sheets: Sequence[ReviewSheet] = ()
) -> str | None:
    """Return the user who approves this one call; None if no approval is needed or nobody can be asked.

    One question covers the call and the review of `sheets`, the tools that it leads to and that wait for
    one. No question is asked about a call that is refused anyway: the call itself reports that. Raises
    `ApprovalRequired` if the person declines, or if the project takes no approvals at the command line.
    """
    from toolcrib.state import user_name

    try:
        # This also fills in the defaults: the person sees exactly the arguments that run.
        reason = _reason(project, call)
    except ToolcribError:
        return None
    if reason is None and not sheets:
        return None
    channels = project.config.approval_channels
    if reason is not None and "cli" not in channels:
        raise ApprovalRequired(
            f"{call.tool} needs a person's approval: {reason}",
            hint="This project takes no approval at the command line;"
            f" its approvals.channels: {', '.join(channels) or 'none'}.",
        )
    if not approve:
        if not ask or not at_terminal():
            return None
        for sheet in sheets:
            print_note("\n".join(lines_of(sheet)))
        if reason is not None:
            _print_call(project.get(call.tool), call, reason)
        if not _ask(f"Mark {names_of(sheets)} as reviewed, and run it?" if sheets else "Run it once?"):
            raise ApprovalRequired(f"{call.tool} was not approved, so it was not run")
    for sheet in sheets:
        project.review(sheet.tool, user_name(), sheet.digest)
    return user_name()


def _reason(project: Project, call: Call) -> str | None:
    """Return why the call itself needs approval, whatever is reviewed."""
    from toolcrib.project.control.first_use import FIRST_USE

    questions = project.questions(call)
    own = [question.reason for question in questions if question.rule != FIRST_USE]
    if own:
        return own[-1]
    return project.asks(call) if not questions else None


def _print_call(tool: Tool, call: Call, reason: str) -> None:
    from toolcrib.spec.words import may_touch

    print_note(f"{tool.name} needs your approval: {reason}")
    print_note(f"  arguments: {json.dumps(call.arguments, ensure_ascii=False)}")
    for line in may_touch(tool):
        print_note(f"  may touch: {line}")


def at_terminal() -> bool:
    """Return True if a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(question: str) -> bool:
    import termios

    # Keys pressed before the question was on the screen do not answer it.
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    print_note(f"{question} [y/N] ", nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
