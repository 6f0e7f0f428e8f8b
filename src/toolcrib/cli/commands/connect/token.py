"""`toolcrib token`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from toolcrib.cli.output import json_option, note, root_option, say, write_json
from toolcrib.errors import UsageError
from toolcrib.spec import SCOPES

if TYPE_CHECKING:
    from toolcrib.guard import Tokens

__all__ = ["command"]

_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,8})([mhdw])")


@click.group("token")
def command() -> None:
    """Make, list and revoke the tokens by which agents and people call from elsewhere."""


@command.command("create")
@click.argument("name")
@root_option
@json_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(SCOPES),
    help="What it may do (repeatable): read lists, invoke calls, approve decides, admin all.",
)
@click.option("--tool", "tools", multiple=True, help="Only tools of this name, `*` and `?` (repeatable).")
@click.option("--expires", help="After how long it holds no more: 30m, 12h, 30d, 8w (default: never).")
@click.option(
    "--owner", help="The person it acts for, whose tokens may not approve its calls (default: you)."
)
def create(
    name: str,
    root: str | None,
    as_json: bool,
    scopes: tuple[str, ...],
    tools: tuple[str, ...],
    expires: str | None,
    owner: str | None,
) -> None:
    """Make a token NAME. It is shown this once; only its digest is kept."""
    import time

    from toolcrib.state import user_name

    kept = _tokens(root)
    until = None if expires is None else time.time() + _duration(expires)
    text = kept.create(name, scopes, tools or None, owner=owner or user_name(), expires=until)
    if as_json:
        write_json({"token": text, **kept.get(name).as_dict()})
        return
    say(text)
    note("Keep it now: it is not shown again.")


@command.command("list")
@root_option
@json_option
def list_(root: str | None, as_json: bool) -> None:
    """List the tokens; never the secret itself."""
    tokens = [token.as_dict() for token in _tokens(root).all()]
    if as_json:
        write_json({"tokens": tokens})
    elif not tokens:
        note("There are no tokens: toolcrib token create NAME --scope invoke")
    else:
        from toolcrib.cli.table import print_table

        rows = [
            (
                token["name"],
                ", ".join(token["scopes"]),
                token["owner"],
                _day(token["expires"]),
                "all" if token["tools"] is None else ", ".join(token["tools"]),
            )
            for token in tokens
        ]
        print_table(("NAME", "SCOPES", "OWNER", "EXPIRES", "TOOLS"), rows)


@command.command("revoke")
@click.argument("name")
@root_option
@json_option
def revoke(name: str, root: str | None, as_json: bool) -> None:
    """Make the token NAME worthless from now on."""
    caller = _tokens(root).revoke(name)
    if as_json:
        write_json({"revoked": caller.name})
    else:
        note(f"{caller.name} is revoked")


def _tokens(root: str | None) -> Tokens:
    from toolcrib.guard import Tokens
    from toolcrib.project import find
    from toolcrib.state import Vault

    return Tokens(Vault(find(root).root))


def _duration(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no time", hint="Write a number and m, h, d or w: 30d")
    return int(match[1]) * _SECONDS[match[2]]


def _day(moment: float | None) -> str:
    if moment is None:
        return "never"
    from datetime import UTC, datetime

    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
