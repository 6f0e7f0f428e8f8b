"""Who agrees to a call that needs a person's approval: whoever sits at the terminal, or gave `--approve`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from toolcrib.cli.output import note, printable
from toolcrib.errors import ApprovalRequired, ToolcribError
from toolcrib.spec.words import may_touch
from toolcrib.state import user_name

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.spec import Call, Tool

__all__ = ["approver", "forget_typed"]


def approver(project: Project, call: Call, *, approve: bool, ask: bool) -> str | None:
    """The user who agrees to this one call; None where nobody need, or nobody can be asked.

    Nobody is asked about a call that is refused anyway: that is left to the call itself. Raises
    `ApprovalRequired` when the person says no, or the project lets nobody agree here.
    """
    try:
        # What is shown is what runs: with the defaults filled in.
        reason = project.asks(call)
    except ToolcribError:
        return None
    if reason is None:
        return None
    channels = project.config.approval_channels
    if "cli" not in channels:
        told = f"its approvals.channels: {', '.join(channels) or 'none'}"
        raise ApprovalRequired(
            f"{call.tool} needs a person's approval: {reason}",
            hint=f"This project takes no approval at the command line; {told}.",
        )
    if approve:
        return user_name()
    if not ask or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    if not _agreed(project.get(call.tool), call, reason):
        raise ApprovalRequired(f"{call.tool} was not approved, so it was not run")
    return user_name()


def _agreed(tool: Tool, call: Call, reason: str) -> bool:
    note(printable(f"{tool.name} needs your approval: {reason}"))
    note(printable(f"  arguments: {json.dumps(call.arguments, ensure_ascii=False)}"))
    for line in may_touch(tool):
        note(printable(f"  may touch: {line}"))
    forget_typed()
    note("Run it once? [y/N] ", nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def forget_typed() -> None:
    """What was typed before the question is no answer to it."""
    import termios

    try:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    except (OSError, termios.error):
        pass
