"""The caller of a command: this machine's own user, or the owner of the token in TOOLCRIB_TOKEN."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from toolcrib.errors import InvalidToken, UsageError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.spec import Caller, Scope
    from toolcrib.state import Vault

_VARIABLE = "TOOLCRIB_TOKEN"
_OPEN: dict[str, Scope] = {
    **dict.fromkeys((
        "agents choose", "agents list", "agents show", "calls list", "calls show", "calls wait", "list",
        "messages show",
        "runs list", "runs sessions list", "runs show", "runs wait", "runs watch", "serve", "show",
        "workflows list", "workflows show",
    ), "read"),
    **dict.fromkeys((
        "agents task", "calls cancel", "calls retry", "calls submit", "run", "runs cancel", "runs fork",
        "runs retry", "runs run", "runs sessions create", "test", "workflows run",
    ), "invoke"),
}  # fmt: skip
"""Scopes that commands need of a token; every other command of a project needs `admin`."""
_WITHOUT_PROJECT = ("channel", "doctor", "operator")
"""Commands that neither read nor change anything of a project or of its user."""
_OF_FILES = (
    "", "agents choose", "agents list", "agents show", "agents task", "approvals", "audit", "calls",
    "connect", "list", "run", "runs", "serve", "show", "status", "test", "token", "ui",
    "worker", "workflows",
)  # fmt: skip
"""Commands, or groups of them, whose project may be a Python file."""
_token: str | None = None


def take_token() -> None:
    """Move the token out of the environment, where tools and their helpers could read it."""
    global _token
    _token = os.environ.pop(_VARIABLE, None)


def given_token() -> str | None:
    """Return the token of this command; None if this machine's own user runs it."""
    return _token


def identity_of(vault: Vault) -> Caller | None:
    """Return the caller that the token identifies; None without one. `InvalidToken`."""
    from toolcrib.guard import Tokens

    return None if _token is None else replace(Tokens(vault).verify(_token), client="cli")


def caller_of(project: Project) -> tuple[str, Caller | None]:
    """Return `caller` and `identity` for all that this command does. `InvalidToken`."""
    identity = identity_of(project.vault)
    return "cli" if identity is None else f"token:{identity.name}", identity


def seen_by(project: Project) -> str | None:
    """Return the caller whose calls, runs and sessions this command may see; None for those of all."""
    from toolcrib.spec.calls.caller import seen_by

    return seen_by(*caller_of(project))


def require_open(name: str, command: click.Command) -> None:
    """Refuse a command of this machine's own user to everybody with a token: `InvalidToken`."""
    if _token is not None and name not in _WITHOUT_PROJECT and not _admits(command):
        raise InvalidToken(f"`toolcrib {name}` is for this machine's own user, not for a token")


def _admits(command: click.Command) -> bool:
    """Return True if the command, or each one below it, checks the token by `admit`."""
    if isinstance(command, click.Group):
        # All of them: a group with one command that forgets the check is closed to tokens as a whole.
        return all(map(_admits, command.commands.values()))
    return any(option.callback is admit for option in command.params)


def admit(ctx: click.Context, _param: click.Parameter | None, root: str | None) -> str | None:
    """Refuse a command that the token or the project does not allow, before it begins. For `--root`."""
    if ctx.resilient_parsing:
        return root
    # The words after the program's name, as `_OPEN` has them.
    name, named = ctx.command_path.partition(" ")[2], root or os.environ.get("TOOLCRIB_ROOT")
    if named and not {name, name.partition(" ")[0]} & {*_OF_FILES}:
        from toolcrib.project.root import names_file

        if names_file(named):
            raise UsageError(
                f"`toolcrib {name}` needs the folder of a project, and {named} is a Python file",
                hint="A file needs no trust; its settings are those of a project around it (toolcrib init).",
            )
    if _token is not None:
        from toolcrib.project import find
        from toolcrib.state import Vault

        scope, identity = _OPEN.get(name, "admin"), identity_of(Vault(find(root).path))
        if identity is not None and not identity.may(scope):
            raise InvalidToken(
                f"the token {identity.name!r} does not allow `toolcrib {name}`", details={"scope": scope}
            )
    return root
