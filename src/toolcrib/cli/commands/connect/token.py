"""`toolcrib token`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import parse_duration
from toolcrib.cli.confirm import require_person
from toolcrib.cli.options import project_options
from toolcrib.cli.output import print_change, print_json, print_note, print_result
from toolcrib.cli.table import print_listing
from toolcrib.errors import UsageError
from toolcrib.spec import SCOPES

if TYPE_CHECKING:
    from toolcrib.guard import Tokens


@click.group("token")
def command() -> None:
    """Create, list and revoke access tokens.

    A client with a token may do what the token allows, and nothing else.
    """


@command.command("create")
@click.argument("name")
@project_options
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(SCOPES),
    help="Repeatable: read lists tools, invoke calls them, approve decides on approvals, admin may do all.",
)
@click.option("--tool", "tools", multiple=True, help="Allow only tools that match, with * and ?. Repeatable.")
@click.option("--expires", help="Lifetime: 30m, 12h, 30d or 8w (default: unlimited).")
@click.option("--owner", help="The person it acts for, who may not approve its calls (default: you).")
def create_command(
    name: str,
    root: str | None,
    as_json: bool,
    scopes: tuple[str, ...],
    tools: tuple[str, ...],
    expires: str | None,
    owner: str | None,
) -> None:
    """Create the token NAME and print it once.

    Only its digest is stored.
    """
    from toolcrib.state import user_name

    require_person("token")
    tokens = _tokens(root)
    until = None
    if expires is not None:
        lifetime = parse_duration(expires)
        if lifetime is None:
            raise UsageError(
                f"--expires {expires!r} is not a time", hint="Write a number and m, h, d or w: 30d"
            )
        until = time.time() + lifetime.total_seconds()
    text = tokens.create(name, scopes, tools or None, owner=owner or user_name(), expires=until)
    if as_json:
        print_json({"token": text, **tokens.get(name).as_dict()})
        return
    print_result(text)
    print_note("Save it now: it is not shown again.")


@command.command("list")
@project_options
def list_command(root: str | None, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    print_listing(
        as_json,
        "tokens",
        [token.as_dict() for token in _tokens(root).all()],
        ("NAME", "SCOPES", "OWNER", ("EXPIRES", _expiry), ("TOOLS", lambda token: token["tools"] or "all")),
        empty="There are no tokens. Create one: toolcrib token create NAME --scope invoke",
    )


@command.command("revoke")
@click.argument("name")
@project_options
def revoke_command(name: str, root: str | None, as_json: bool) -> None:
    """Revoke the token NAME; it is refused from now on."""
    caller = _tokens(root).revoke(name)
    print_change(as_json, {"revoked": caller.given_name}, f"{caller.given_name} is revoked.")


def _tokens(root: str | None) -> Tokens:
    from toolcrib.guard import Tokens
    from toolcrib.project import find
    from toolcrib.state import Vault

    return Tokens(Vault(find(root).path))


def _expiry(token: Mapping[str, Any]) -> str:
    return token["expires"] or "never"
