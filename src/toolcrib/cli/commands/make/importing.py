"""`toolcrib import`."""

from __future__ import annotations

import click

from toolcrib.cli.commands.make.convert import command as convert
from toolcrib.cli.commands.make.import_openapi import command as openapi
from toolcrib.errors import UsageError


class _Formats(click.Group):
    """A group that takes a document where a format is missing for a mistake."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            hint = f"Write: toolcrib import openapi {args[0]}"
            raise UsageError(f"{args[0]!r} is not a kind of document", hint=hint)
        return super().resolve_command(ctx, args)


@click.group("import", cls=_Formats)
def command() -> None:
    """Create tools from OpenAPI documents and from other formats."""


command.add_command(openapi)
command.add_command(convert)
