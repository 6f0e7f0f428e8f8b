"""`toolcrib connect`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.files import write_with_backup
from toolcrib.cli.fit import fit_report, print_fit
from toolcrib.cli.hosts import HOSTS, AgentHost, add_server
from toolcrib.cli.options import HostCommand, project_options
from toolcrib.cli.output import print_json, print_note, print_result
from toolcrib.state.private import diff_of, read_inside

if TYPE_CHECKING:
    from toolcrib.project.root import Place

_PROJECT = "/project"
"""The folder of the project in a container."""


@click.command("connect", cls=HostCommand)
@click.argument("host", type=click.Choice(sorted(HOSTS)), metavar="HOST")
@click.option("--name", help="Name of the server in the host's file (default: toolcrib or toolcrib-NAME).")
@click.option(
    "--http",
    metavar="[URL]",
    is_flag=False,
    flag_value="http://127.0.0.1:8745/mcp",
    help="Connect to `toolcrib serve --http`, by default on this machine.",
)
@click.option(
    "--container",
    "image",
    metavar="IMAGE",
    help="Start this image of Toolcrib with Podman or Docker, and the project mounted in it.",
)
@click.option("--write", is_flag=True, help="Change the file, and keep a copy of it as it was.")
@project_options
def command(
    host: str,
    name: str | None,
    http: str | None,
    image: str | None,
    write: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Let an agent host use the project's tools over MCP.

    HOST is claude-code, claude-desktop, codex, cursor, gemini or vscode. Prints what would change in the
    host's own configuration file; with --write, changes it.

    With FILE.py these are the functions of a Python file, for a host that is opened in this folder.

    With --http the host sends the token in its environment variable TOOLCRIB_TOKEN.
    """
    from toolcrib.project import find

    known = HOSTS[host]
    place = find(root)
    folder = place.root if place.file is None else Path.cwd()
    path = known.file(folder)
    before = read_inside(path, folder)
    source = place.path.stem if place.file is not None else folder.name
    own_name = re.sub(r"[^A-Za-z0-9_-]+", "-", source).strip("-").lower()
    if name is None:
        name = f"toolcrib-{own_name}" if own_name and (known.shared or place.file is not None) else "toolcrib"
    server = (
        _entry(known, ["serve", "--stdio", "--root", place.target], http)
        if image is None
        else known.program(*_container(image, place, http, f"toolcrib-{own_name}"))
    )
    text = add_server(before or "", path, known.keys(folder), name, server)
    fit = fit_report(root, host, name)
    diff = diff_of(path, before, text)
    backup = write_with_backup(path, before, text) if write and diff else None
    if as_json:
        found = {"host": host, "path": str(path), "name": name, "server": server, "changed": bool(diff)}
        saved = {"written": bool(write and diff), "backup": None if backup is None else str(backup)}
        print_json({**found, **saved, "diff": diff, "list": fit})
        return
    if not diff:
        print_note(f"{path} has this server already; nothing to change.")
    elif not write:
        print_result(diff, nl=False)
        print_note(f"Nothing was written. To change {path}, add --write to this command.")
    else:
        print_note(f"changed {path}" + (f"; as it was: {backup}" if backup else ""))
        if http is not None:
            print_note("Set TOOLCRIB_TOKEN for it, to a token of: toolcrib token create NAME --scope invoke")
        print_note(known.next)
    print_fit(fit)


def _entry(host: AgentHost, arguments: list[str], http: str | None) -> dict[str, Any]:
    if http is None:
        program = _program()
        module = ["-m", "toolcrib"] if program == sys.executable else []
        return host.program(program, [*module, *arguments])
    if not re.fullmatch(r"https?://[^\s/@]+/\S*", http):
        raise click.UsageError(f"--http {http!r} is not the address of a server, such as https://HOST/mcp")
    return host.remote(http)


def _container(image: str, place: Place, http: str | None, volume: str) -> tuple[str, list[str]]:
    """Return the program and arguments that serve a project in a container.

    The volume keeps what the user decides about the project there.
    """
    if http is not None:
        raise click.UsageError("--http and --container cannot be used together")
    # Beside a Python file are the modules that it imports.
    folder = place.root if place.file is None else place.path.parent
    root = _PROJECT + place.target.removeprefix(str(folder))
    found = shutil.which("podman") or shutil.which("docker") or "docker"
    # Podman without root: files of the user belong to the image's user, and back.
    rootless = Path(found).name == "podman" and os.geteuid() != 0
    user = ["--userns=keep-id:uid=10001,gid=10001"] if rootless else []
    mounts = ["--volume", f"{folder}:{_PROJECT}", "--volume", f"{volume}:/data"]
    return found, ["run", "--rm", "--interactive", *user, *mounts, image, "serve", "--stdio", "--root", root]


def _program() -> str:
    """Return the whole path of `toolcrib`: a host may start programs with another PATH."""
    script = Path(sys.executable).parent / "toolcrib"
    return str(script) if script.exists() else sys.executable
