"""Who agrees to a call that needs a person's approval: whoever sits at the terminal, or gave `--approve`."""

from __future__ import annotations

import json
import os
import pwd
import sys
from typing import TYPE_CHECKING

from toolcrib.cli.output import note, printable
from toolcrib.errors import ApprovalRequired, InvalidInput

if TYPE_CHECKING:
    from toolcrib.spec import Call, Tool

__all__ = ["approver", "forget_typed", "user"]


def approver(tool: Tool, call: Call, *, approve: bool, ask: bool) -> str | None:
    """The user who agrees to this one call, or None where nobody can be asked.

    Nobody is asked about arguments that do not fit. Raises ApprovalRequired when the person says no.
    """
    from toolcrib.schema import ArgumentCheck

    try:
        # What is shown is what runs: with the defaults filled in.
        call.arguments = ArgumentCheck(tool.input_schema).check(call.arguments)
    except InvalidInput:
        return None
    if approve:
        return user()
    if not ask or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    if not _agreed(tool, call):
        raise ApprovalRequired(f"{tool.name} was not approved, so it was not run")
    return user()


def user() -> str:
    """The user of this process; not what the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _agreed(tool: Tool, call: Call) -> bool:
    from toolcrib.cli.words import may_touch

    note(printable(f"{tool.name} needs your approval: {tool.approval.reason}"))
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
