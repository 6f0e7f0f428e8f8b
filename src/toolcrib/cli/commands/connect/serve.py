"""`toolcrib serve`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from toolcrib.cli.caller import given_token
from toolcrib.cli.confirm import require_person
from toolcrib.cli.options import FileCommand, root_option
from toolcrib.cli.output import (
    one_line,
    print_diagnostics,
    print_note,
    print_result,
    print_settings_note,
    print_warnings,
)
from toolcrib.errors import ToolcribError, UnavailableError, UsageError
from toolcrib.state.installation import install_hint

if TYPE_CHECKING:
    from toolcrib.manifest import Diagnostic
    from toolcrib.project import CatalogChange, Project
    from toolcrib.project.trust.sheets import TrustSheet
    from toolcrib.serve.rest import HttpSettings

_MOST_NAMES = 20


@click.command("serve", cls=FileCommand)
@root_option
@click.option("--stdio", is_flag=True, help="Serve MCP on standard input and output.")
@click.option("--http", is_flag=True, help="Serve REST, and MCP at /mcp, over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8745, help="The port; 0 is a free one [default: 8745]."
)
@click.option("--allow-host", "allowed", multiple=True, help="A further name of this server. Repeatable.")
@click.option("--dev", is_flag=True, help="Trust edits of trusted tools, if they widen nothing.")
@click.option("--issuer", help="Take access tokens of this authorization server for MCP.")
@click.option("--resource", help="The address of /mcp for clients: the audience of those tokens.")
@click.option("--data", type=click.Path(path_type=Path), help="Your data folder (default: TOOLCRIB_DATA).")
def command(
    root: str | None,
    stdio: bool,
    http: bool,
    host: str,
    port: int,
    allowed: tuple[str, ...],
    dev: bool,
    issuer: str | None,
    resource: str | None,
    data: Path | None,
) -> None:
    """Serve the project's tools over MCP or REST.

    With FILE.py these are the functions of a Python file, by default with --stdio.

    With --stdio it ends when its client disconnects. With a token in TOOLCRIB_TOKEN the client sees and
    calls what the token allows; without one, every tool.

    With --http it listens on this machine only, unless --host says otherwise. Its clients need a token or the
    login link that is printed.

    With --dev, while it runs, each change of a trusted tool without network and secrets is trusted too, if it
    grants nothing more. Each is printed. All other changes wait for `toolcrib trust`.
    """
    _refuse_unused("--http", ("host", "port", "allowed", "issuer", "resource"), used=http)
    from toolcrib.project import Project
    from toolcrib.project.root import names_file
    from toolcrib.serve.process import run_until_end

    if is_file := names_file(root or os.environ.get("TOOLCRIB_ROOT") or ""):
        _refuse_unused("the folder of a project", ("dev",), used=False)
    if (stdio or (is_file and not http)) == http:
        raise UsageError("choose one of --stdio and --http", hint="For an MCP client: toolcrib serve --stdio")
    if (issuer is None) != (resource is None):
        raise click.UsageError("--issuer and --resource are given together")
    if dev:
        require_person("trust")
    if not http:
        run_until_end(_serve_stdio(Project.open(root, data=data), dev=dev))
    require_http()
    from toolcrib.serve.auth import OAuthResource
    from toolcrib.serve.rest import HttpSettings

    oauth = OAuthResource(issuer, resource) if issuer is not None and resource is not None else None
    settings = HttpSettings(host=host, port=port, allowed_hosts=allowed, oauth=oauth)
    run_until_end(serve_until_signal(Project.open(root, data=data), settings, _announce, dev=dev))


def require_http() -> None:
    """Raise UnavailableError unless the packages that serve HTTP are installed."""
    try:
        import toolcrib.serve.rest  # noqa: F401 - only tried
    except ImportError as missing:
        raise UnavailableError(
            f"serving over HTTP needs the package {missing.name}", hint=install_hint("http")
        ) from None


def _refuse_unused(only_with: str, names: tuple[str, ...], *, used: bool) -> None:
    """Raise UsageError for the options that were given and would have no effect."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if option.name in names and given and not used:
            raise click.UsageError(f"{option.opts[0]} has an effect only with {only_with}")


async def serve_until_signal(
    opened: Project,
    settings: HttpSettings,
    announce: Callable[[Sequence[str], str], None],
    *,
    dev: bool = False,
) -> int:
    """Serve a project over HTTP until SIGINT or SIGTERM. Return 0."""
    from toolcrib.serve.rest import serve_http

    async with opened as project:
        watching = _start(project, dev=dev)
        try:
            await serve_http(project, settings, announce)
        finally:
            watching.cancel()
    return 0


def _announce(addresses: Sequence[str], link: str) -> None:
    for address in addresses:
        print_result(f"Serving MCP on {address}/mcp, REST on {address}")
    try:
        require_person("approve")
    except ToolcribError as refused:
        print_note("No login link is printed: its session decides for you, and nobody is at a terminal here.")
        print_note(refused.hint or refused.message)
    else:
        print_result(f"Open the page (once, within 15 minutes): {link}")


async def _serve_stdio(opened: Project, *, dev: bool) -> int:
    from toolcrib.serve.process import serve_project

    async with opened as project:
        watching = _start(project, dev=dev)
        try:
            return await serve_project(project, given_token())
        finally:
            watching.cancel()


def _start(project: Project, *, dev: bool) -> asyncio.Task[None]:
    """Print problems, start the project's MCP servers, and follow its changes."""
    print_settings_note(project)
    print_warnings(project)
    _print_errors(project.errors)
    if project.servers is not None:
        project.servers.start()
    if dev:
        project.trust.follow_edits(_print_trusted)
    return asyncio.create_task(project.watch(partial(_take_change, project)))


def _take_change(project: Project, change: CatalogChange) -> None:
    """Print a change, and with `--dev` trust it where that is possible."""
    _print_change(change)
    for name in (*change.added, *change.changed, *change.fixed):
        with suppress(ToolcribError):  # The next call reports it.
            project.trust.follow(project.get(name))


def _print_trusted(sheet: TrustSheet) -> None:
    # The manifest is one of the files of the tool's folder too.
    parts = ", ".join(part for part in sheet.changed if part != "files/tool.yml")
    print_note(one_line(f"trusted {sheet.tool.name} (dev): changed {parts}"))


def _print_errors(found: Iterable[Diagnostic]) -> None:
    """Print errors of manifests; lines of files only on a terminal, because an agent may read a log."""
    print_diagnostics(found if sys.stderr.isatty() else [one.without_line() for one in found])


def _print_change(change: CatalogChange) -> None:
    for verb, names in (
        ("added", change.added),
        ("changed", change.changed),
        ("removed", change.removed),
        ("fixed", change.fixed),
    ):
        if names:
            shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
            print_note(f"tools {verb}: {shown}")
    _print_errors(change.broken)
    for warning in change.warnings:
        print_note(f"warning: {warning}")
