"""`toolcrib secrets`. It never prints a value."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.confirm import at_terminal, require_person
from toolcrib.cli.options import open_project, project_options
from toolcrib.cli.output import print_change, print_note
from toolcrib.cli.table import print_listing
from toolcrib.errors import UsageError

if TYPE_CHECKING:
    from toolcrib.project.reports import SecretNeed


@click.group("secrets")
def command() -> None:
    """Set secrets, and show which ones the tools need.

    No value is ever printed.
    """


@command.command("list")
@project_options
def list_command(root: str | None, as_json: bool) -> None:
    """List every secret that a tool declares, and its state.

    The state is resolved, missing or unreadable. HOSTS are those that HTTP tools may send the secret to.
    """
    _print(_needs(root), as_json)


@command.command("check")
@project_options
def check_command(root: str | None, as_json: bool) -> int:
    """List the secrets; exit 1 if a tool cannot run without one.

    Exit 1 too if a source cannot be read.
    """
    needs = _needs(root)
    _print(needs, as_json)
    return 1 if any(need.blocks for need in needs) else 0


@command.command("set")
@click.argument("name")
@project_options
@click.option("--remove", is_flag=True, help="Remove the value that was set.")
def set_command(name: str, root: str | None, as_json: bool, remove: bool) -> None:
    """Set a secret of this project. Asks for the value, and does not show it.

    It is kept in the keyring, if the project's settings name one, else in your data folder, where no tool
    can read it. If your own settings allow it without a terminal, the value is read from standard input.
    """
    from toolcrib.project.own_secrets import require_name, set_secret

    require_person("trust")
    require_name(name)  # Before the value is asked for.
    value = None if remove else _typed(name)
    place = set_secret(open_project(root), name, value, "terminal" if at_terminal() else "flag")
    done = f"{name} is {'removed from' if remove else 'set in'} {place}."
    print_change(as_json, {"secret": name, "set": not remove, "place": place}, done)


def _typed(name: str) -> str:
    """Return the value that the person enters, or the one on standard input if there is no terminal."""
    if at_terminal():
        return str(
            click.prompt(f"Value of {name}", hide_input=True, default="", show_default=False, err=True)
        )
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


@command.command("login")
@click.argument("tool")
@project_options
def login_command(tool: str, root: str | None, as_json: bool) -> None:
    """Log in for an HTTP tool whose `auth` has the grant device_code.

    Open the printed address and enter the code. The token is stored in your data folder and renewed.
    """
    from toolcrib.executors.http.executor import HttpExecutor
    from toolcrib.guard import resolve

    project = open_project(root)
    if not project.trust.given:
        raise project.trust.refusal(own=True)
    bound = project.bound(tool)
    executor = bound.executor

    async def log_in() -> bool:
        async with project:
            secrets = resolve(bound.tool.permissions, project.secrets)
            return isinstance(executor, HttpExecutor) and await executor.log_in(secrets, _show)

    if not asyncio.run(log_in()):
        raise UsageError(
            f"{tool} has no login", hint="Only `auth.oauth2` with the grant device_code has one."
        )
    print_change(as_json, {"tool": tool, "loggedIn": True}, f"Logged in for {tool}.")


def _show(address: str, code: str) -> None:
    print_note(f"Open {address} and enter the code {code}.")


def _needs(root: str | None) -> list[SecretNeed]:
    from toolcrib.project.reports import secret_needs

    project = open_project(root)
    return secret_needs(project.catalog.with_secrets(), project.secrets)


def _tools(need: Mapping[str, Any]) -> list[str]:
    return [tool["name"] + ("" if tool["required"] else " (optional)") for tool in need["tools"]]


def _print(needs: list[SecretNeed], as_json: bool) -> None:
    ok = not any(need.blocks for need in needs)
    print_listing(
        as_json,
        "secrets",
        [need.as_dict() for need in needs],
        (("SECRET", "name"), "STATE", "SOURCE", "HOSTS", ("NEEDED BY", _tools)),
        empty="No tool declares a secret.",
        ok=ok,
    )
    if as_json:
        return
    for need in needs:
        status = need.status
        if status.short:
            print_note(f"{need.name} has fewer than 8 characters: it can be guessed. Choose a longer one.")
        if status.state == "unreadable":
            print_note(f"{need.name}: {status.source}: {status.reason}. {status.hint or ''}".rstrip())
        elif need.blocks:
            needed_by = ", ".join(need.required_by)
            print_note(f"{need.name} is missing: {needed_by} cannot run without it.")
            print_note(f"To set it: toolcrib secrets set {need.name}")
