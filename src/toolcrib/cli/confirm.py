"""Questions to the person at the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from toolcrib.cli.caller import given_token
from toolcrib.cli.output import print_note
from toolcrib.errors import ApprovalRequired, DeniedError, ToolcribError
from toolcrib.spec import Call, Tool
from toolcrib.state import (
    DECISIONS,
    Decision,
    load_user_settings,
    token_refused,
    user_name,
    user_settings_file,
)

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.trust.sheets import TrustSheet

_MAX_NAMES = 60
_MOST = 3
"""Tools that are named with their digests in a question."""

Channel = Literal["terminal", "flag"]
"""The decision of a person on the command line: an answer at the terminal, `--yes` or `--approve`."""


def refuse_token(what: Decision) -> None:
    """Raise DeniedError if this command was given a token."""
    if given_token() is not None:
        raise token_refused(what, click.get_current_context().command_path)


def require_person(what: Decision, *, where: Path | None = None) -> None:
    """Refuse a decision unless a person makes it: at a terminal, or without one where this user's own
    settings allow that for the project, and never with a token. `where` is the project's path, by default
    that of this command. Raises DeniedError.
    """
    refuse_token(what)
    if at_terminal():
        return
    from toolcrib.project import find

    root = where or find(click.get_current_context().params.get("root")).path
    if not load_user_settings().allows(what, root):
        entry = f"[{{what: [{what}], where: [{json.dumps(str(root))}]}}]"
        raise DeniedError(
            f"only a person at a terminal decides about {DECISIONS[what]}, so nothing was changed",
            hint="Run this command at a terminal. To allow it here without one, add to"
            f" {user_settings_file() or 'your own settings'}: decide_without_terminal: {entry}",
        )


def ask(question: str, keys: str = "y") -> str | None:
    """Ask for one of these keys; `yes` is `y`. Return it; None for any other.

    Raises DeniedError if there is no terminal.
    """
    if not at_terminal():
        raise DeniedError("there is no terminal to ask at, so nothing was changed", hint="Add --yes.")
    _flush()
    print_note(f"{question} [{'/'.join(keys)}/N] ", nl=False)
    key = sys.stdin.readline().strip().lower()
    key = "y" if key == "yes" else key
    return key if len(key) == 1 and key in keys else None


def decide(
    question: str,
    what: Decision,
    *,
    yes: bool = False,
    where: Path | None = None,
) -> Channel | None:
    """Ask for a decision, which `yes` gives in advance. Return how the person agreed; None if they did not.

    Raises as `require_person` and `ask` do.
    """
    key = choose(question, "y", what, yes=yes, where=where)
    return None if key is None else "flag" if yes else "terminal"


def choose(
    question: str,
    keys: str,
    what: Decision,
    *,
    yes: bool = False,
    where: Path | None = None,
) -> str | None:
    """Ask as `ask` does; `yes` presses the first key in advance. Raises as `decide` does."""
    require_person(what, where=where)
    return keys[0] if yes else ask(question, keys)


def enter(question: str) -> str:
    """Return the line that a person at the terminal enters; a decision was made there before."""
    _flush()
    print_note(f"{question} ", nl=False)
    return sys.stdin.readline().strip()


def page(text: str, *, wait: bool) -> None:
    """Show a text of whatever length on standard error; with `wait`, a screen at a time at a terminal.

    Raises ApprovalRequired if the person does not look at all of it.
    """
    import shutil

    columns, rows = shutil.get_terminal_size()
    # A page fits on the screen: nobody has read what scrolls away at once.
    size = max(20, columns - 1) * max(5, rows - 2)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    for number, part in enumerate(parts, 1):
        print_note(part)
        if wait and at_terminal():
            print_note(
                f"-- page {number} of {len(parts)}: press Enter to continue; anything else decides nothing ",
                nl=False,
            )
            if sys.stdin.readline() != "\n":
                raise ApprovalRequired("nothing was decided: not all of it was shown")


def seek_approval(
    project: Project,
    call: Call,
    *,
    approve: bool,
    may_ask: bool,
    sheets: Sequence[TrustSheet] = (),
    once: bool = False,
) -> None:
    """Put into the call the user who approves it; nobody if no approval is needed or nobody can be asked.

    One question covers the call and the trust in `sheets`, the tools that it leads to and that wait for it;
    with `once` they are trusted for this call alone.
    No question is asked about a call that is refused anyway: the call itself reports that. Raises
    `ApprovalRequired` if the person declines, or if the project takes no approvals at the command line.
    """
    try:
        # This also fills in the defaults: the person sees exactly the arguments that run.
        reason = _reason(project, call)
        if not sheets and not approve and project.is_approved(call):
            return
    except ToolcribError:
        return
    if reason is None and not sheets:
        return
    channels = project.config.approval_channels
    if reason is not None and "cli" not in channels:
        raise ApprovalRequired(
            f"{call.tool} needs a person's approval: {reason}",
            hint="This project takes no approval at the command line;"
            f" its approvals.channels: {', '.join(channels) or 'none'}.",
        )
    # Taken before anybody looks at it: the call is refused if it is another tool by then.
    call.approved_digest = project.fingerprint(project.get(call.tool)).digest
    if approve:
        require_person("approve")
        if sheets:
            require_person("trust")
    else:
        if not may_ask or given_token() is not None or not at_terminal():
            return
        if not _asked(project, call, reason, sheets, once=once):
            raise ApprovalRequired(f"{call.tool} was not approved, so it was not run")
    call.approved_by, call.approval_channel = user_name(), "flag" if approve else "terminal"
    if sheets and not once:
        project.trust.accept(user_name(), sheets, channel=call.approval_channel)


def _asked(
    project: Project, call: Call, reason: str | None, sheets: Sequence[TrustSheet], *, once: bool
) -> bool:
    """Ask about a call, and about the trust in `sheets`; `d` shows files and differences first."""
    from toolcrib.project.trust.sheets import STATUS, lines_of

    for sheet in sheets[:_MOST]:
        print_note(f"{sheet.tool.name}: {STATUS[sheet.status]}, digest {sheet.digest.digest[:12]}")
    for line in lines_of(sheets):
        print_note(f"  {line}")
    if reason is not None:
        _print_call(project.get(call.tool), call, reason)
    print_missing_secrets(project, project.get(call.tool))
    if not sheets:
        return ask("Run it once?") is not None
    question = "Run it once?" if once else f"Trust {names_of(sheets)}, and run it?"
    while (key := ask(question, "yd")) == "d":
        click.echo_via_pager("\n".join(line for sheet in sheets for line in (*sheet.lines(), "")))
    return key == "y"


def names_of(sheets: Sequence[TrustSheet]) -> str:
    """Return the names of a few tools, or the number of many."""
    names = ", ".join(sheet.tool.name for sheet in sheets)
    return names if len(names) <= _MAX_NAMES else f"these {len(sheets)} tools"


def _reason(project: Project, call: Call) -> str | None:
    """Return why the call itself needs approval, whatever is trusted."""
    from toolcrib.project.trust.trust import TRUST

    questions = project.questions(call)
    own = [question.reason for question in questions if question.rule != TRUST]
    if own:
        return own[-1]
    return project.asks(call) if not questions else None


def _print_call(tool: Tool, call: Call, reason: str) -> None:
    print_note(f"{tool.name} needs your approval: {reason}")
    print_note(f"  arguments: {json.dumps(call.arguments, ensure_ascii=False)}")
    from toolcrib.manifest.touches import may_touch

    for line in may_touch(tool):
        print_note(f"  may touch: {line}")


def print_missing_secrets(project: Project, tool: Tool) -> None:
    """Name the secrets without which a call fails: it would use up its approval for nothing."""
    from toolcrib.project.reports import secret_needs

    for need in secret_needs([tool], project.secrets):
        if need.blocks:
            how = f"To set it: toolcrib secrets set {need.name}"
            print_note(f"  {need.status.state}: secret {need.name}. {how}")


def is_person() -> bool:
    """Return True if a person is at the terminal, and not a caller with a token."""
    return given_token() is None and at_terminal()


def at_terminal() -> bool:
    """Return True if a person can be asked: this command is in the foreground of its own terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        # In the background the kernel would stop this process at its first read (SIGTTIN).
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # Another process's terminal.
        return False


def _flush() -> None:
    """Drop the keys pressed so far: they do not answer a question that was not on the screen."""
    import termios

    termios.tcflush(sys.stdin, termios.TCIFLUSH)
