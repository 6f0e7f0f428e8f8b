"""A server that a person adds to `.mcp.json`, changes in it or removes from it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from toolcrib import __version__
from toolcrib.egress import HostRule
from toolcrib.errors import (
    ConflictError,
    NotFoundError,
    NotTrusted,
    ToolcribError,
    ToolUnavailable,
    UsageError,
)
from toolcrib.executors.mcp.process.local import grants_of, job_of, lacking, started, unconfined_program
from toolcrib.executors.mcp.process.stdio import StdioLink
from toolcrib.executors.mcp.server import McpServer
from toolcrib.guard import resolve
from toolcrib.manifest.dialects.mcp_servers import (
    ServerSpec,
    read_server,
    servers_key,
    with_server,
    without_server,
)
from toolcrib.project.config.mcp import FILE
from toolcrib.project.config.settings import Config, is_accepted, load_config
from toolcrib.project.project import Project
from toolcrib.project.tools.mounted import Mounted
from toolcrib.project.tools.server_sheets import server_sheet
from toolcrib.project.trace import watched
from toolcrib.project.trust.trust import settings_rows
from toolcrib.sandbox.stream import open_stream
from toolcrib.spec import Network
from toolcrib.spec.record import record
from toolcrib.state import user_name
from toolcrib.state.private import read_inside, replace_file

WAIT_S = 120.0
"""Seconds that a server has to list its tools the first time."""
_NO_HOST = "none"
"""The word for no host at all."""
_HOSTS = "A host is written example.org, *.example.org or example.org:8080; `*` is every public one."
_TAKEN = "Choose another name, or change that server in its file, then: toolcrib trust"


@record
class NewServer:
    """A change of `.mcp.json` by one server, as a person sees it before it is made."""

    spec: ServerSpec
    path: Path
    root: Path
    before: str | None
    """The text of the file; None without one."""
    text: str
    """The text with the server."""
    program: str
    """The program that runs with all rights of the user; empty for a confined server."""
    then: Config
    """The settings without the server."""

    @classmethod
    def of(
        cls,
        project: Project,
        name: str,
        entry: dict[str, Any],
        read: Sequence[str] = (),
        write: Sequence[str] = (),
    ) -> NewServer:
        """Return the change that adds the server of an entry, which may read and write these paths.

        Raises NotTrusted for settings that wait for trust, UsageError, ConflictError for a name that is
        taken, and ToolUnavailable for a program that is not installed.
        """
        spec, root = _spec(name, entry), project.root
        config = _accepted(project)
        only = replace(config, servers=replace(config.servers, specs=(spec,)))
        found = only.with_data(root).servers.specs[0]
        if spec.is_local:
            _grant_named(entry, root, found.data, read, write)
            found = replace(_spec(name, entry), data=found.data, unwritable=found.unwritable)
        if name in {one.name for one in config.servers.specs}:
            raise ConflictError(f"the project has a server {name} already", hint=_TAKEN)
        path = root / FILE
        before = read_inside(path, root)
        text = _added(path, before, name, entry)
        if found.is_local and "/" not in found.command and shutil.which(found.command) is None:
            raise ToolUnavailable(
                f"{found.command} is not installed, so nothing was added", hint="Install it first."
            )
        lacking(found, str(root))  # Raises for a launcher that cannot be replaced.
        return cls(found, path, root, before, text, unconfined_program(found, str(root)), config)

    @classmethod
    def again(
        cls, project: Project, name: str, permissions: Mapping[str, Sequence[str]] | None = None
    ) -> NewServer:
        """Return a server of `.mcp.json` as it is, or the change that gives it these permissions only.

        `permissions` has the lists `hosts`, `read` and `write`. Raises NotTrusted for settings that wait for
        trust, NotFoundError, and UsageError for permissions that are written elsewhere or are none.
        """
        config, path, root = _accepted(project), project.root / FILE, project.root
        if project.servers is None:
            raise NotFoundError(f"there is no MCP server {name!r} here")
        spec, before = project.servers.get(name).spec, read_inside(path, root)
        text = before or ""
        if permissions is not None:
            network = network_of(permissions["hosts"])
            files = {key: list(permissions[key]) for key in ("read", "write")}
            if name in config.servers.narrowing or name not in (config.servers.shared or {}):
                raise UsageError(
                    f"the permissions of {name} are written in {project.place.config}",
                    hint=f"Write there, under mcp_servers.{name}: "
                    f"permissions: {json.dumps({'network': network.as_json(), 'fs': files})}",
                )
            entry = dict(config.servers.shared[name])
            stated = entry.get("permissions") or {}
            entry["permissions"] = {**stated, "network": network.as_json(), "fs": files}
            text = with_server(text, path, _keys(text), name, entry)
            only = replace(
                spec.permissions, network=network, read=tuple(files["read"]), write=tuple(files["write"])
            )
            spec = replace(spec, permissions=only, data=(), unwritable=())
        return cls(spec, path, root, before, text, unconfined_program(spec, str(root)), config)

    def lines(self) -> list[str]:
        """Return lines about what is started and what its process may use."""
        spec, root = self.spec, str(self.root)
        lines = [f"{spec.name}: {spec.where}"]
        if not spec.is_local:
            return lines
        line = " ".join(started(spec, root)[0].argv)
        if line != spec.where:
            lines.append(f"  starts {line}")
        if self.program:
            return [*lines, f"  runs {self.program} unconfined, with all of your rights"]
        lines += [f"  may {grant}" for grant in grants_of(spec, root)]
        return [*lines, *(f"  may not write {line}" for line in spec.unwritable)]

    @property
    def digest(self) -> str:
        """SHA-256 of what a person sees of it."""
        return hashlib.sha256("\n".join((*self.lines(), self.text)).encode()).hexdigest()

    def add(self, project: Project, channel: str) -> Config:
        """Write the file, trust the settings with it, as a person decided by this channel, and return them.

        Raises ConflictError if somebody has changed the file meanwhile, NotTrusted for other settings.
        """
        replace_file(self.path, self.before, self.text)
        return trust_change(project, self.then, self.spec.name, self.program, channel)


@record
class OldServer:
    """A change of `.mcp.json` that removes one server."""

    name: str
    path: Path
    before: str | None
    text: str
    """The text without the server."""
    then: Config
    """The settings with the server."""

    @classmethod
    def of(cls, project: Project, name: str) -> OldServer:
        """Return the change that removes a server. Raises NotFoundError if it is not in the file."""
        path, root = project.root / FILE, project.root
        before = read_inside(path, root)
        text = without_server(before or "", path, _keys(before), name)
        return cls(
            name, path, before, text, load_config(project.place.config, root).since(project.trust.ledger)
        )

    def remove(self, project: Project, channel: str) -> Config | None:
        """Write the file, and forget the login of the server, its package and all that was trusted of it.

        Returns the settings without it, or None if they waited for trust before. Raises ConflictError if
        somebody has changed the file meanwhile, and NotTrusted for other settings.
        """
        name = self.name
        replace_file(self.path, self.before, self.text)
        if project.servers is not None and name in project.servers.mounted:
            project.servers.logout(name)
            project.servers.get(name).clear()
            # Whoever adds a server of this name later is asked about its hosts anew.
            project.trust.revoke(user_name(), servers=[name], channel=channel)
        accepted = is_accepted(self.then, project.trust.ledger)
        return trust_change(project, self.then, name, "", channel) if accepted else None

    def left(self, project: Project) -> str | None:
        """Return what a person still has to remove by hand; None for nothing."""
        settings = self.then.document
        # A file of comments only, as a new project has it, holds nothing.
        if settings is None or self.name not in ((settings.data or {}).get("mcp_servers") or ()):
            return None
        return f"{project.place.config} still has permissions for {self.name}: remove them there."


@record
class Observed:
    """One session of a server that was started, listed its tools and was ended."""

    tools: Sequence[str]
    error: ToolcribError | None
    """The reason why it did not list them."""
    watched: Mapping[str, Any]
    """The things that it used, and the smallest permissions for it, as JSON."""


async def start(project: Project, name: str, config: Config, channel: str) -> Mounted:
    """Start a server that was just added or changed, and trust its tools, as its person agreed to.

    A package that its launcher lacks is downloaded first. Tools whose words may steer a model still wait.
    """
    if project.servers is not None and name in project.servers.mounted:
        await project.catalog.remove_server(name, config)
    mounted = project.catalog.add_server(name, config)
    accept = partial(project.trust.accept, user_name(), channel=channel)
    # What cannot be downloaded is the error of the start below.
    with suppress(ToolUnavailable):
        if (missing := lacking(mounted.spec, str(project.root))) is not None:
            accept(more=[await asyncio.to_thread(mounted.resolved_row, missing)])
            mounted.clear_older()
    server = mounted.server
    server.limit_s = max(server.limit_s, WAIT_S)
    if project.servers is not None:
        await project.servers.ready(WAIT_S, [name])
    sheet = server_sheet(mounted)
    if names := set(sheet.names) - set(sheet.suspicious):
        accept(more=[mounted.row(names)])
    return mounted


async def watch(project: Project, new: NewServer) -> Observed:
    """Start a server once, as a person agreed to, list its tools and end it. Nothing of it stays.

    Raises UsageError for a server that no sandbox confines, and the error of one that was not started.
    """
    from toolcrib.executors.trace.block import Block
    from toolcrib.executors.trace.observation import Observation

    spec, root = new.spec, str(project.root)
    if not spec.is_local or new.program:
        raise UsageError(f"{spec.name} does not run in the sandbox, so it cannot be observed")
    seen, names, folder = Observation(), list[str](), ""
    try:
        if (missing := lacking(spec, root)) is not None:
            resolved = await asyncio.to_thread(missing.resolve, project.vault.programs)
            spec, folder = replace(spec, resolved=resolved), resolved.folder
        secrets = await asyncio.to_thread(resolve, spec.permissions, project.secrets)
        process = job_of(spec, project.catalog.binder.workspace(seen), secrets)
        server = McpServer(
            spec,
            lambda: StdioLink(lambda: open_stream(process.job), project.redact, process.explain),
            on_tools=lambda found, _: names.extend(str(one["name"]) for one in found),
            on_event=project.audit.record,
            version=__version__,
        )
        server.limit_s = max(server.limit_s, WAIT_S)
        try:
            await server.ready(WAIT_S)
        finally:
            await server.aclose()
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    if server.error is not None and not seen.calls:
        raise server.error
    block = Block.of(process.tool, seen).in_folders(root)
    return Observed(names, server.error, watched(block, seen))


def entry_of(
    command: Sequence[str], url: str | None, env: Mapping[str, str], hosts: Sequence[str], *, files: bool
) -> dict[str, Any]:
    """Return the entry of a server in `.mcp.json`, or raise UsageError; `files`: paths are named too."""
    if bool(command) == bool(url):
        raise UsageError(
            "a server has a command or an address",
            hint="For example: toolcrib servers add time -- uvx mcp-server-time",
        )
    if url and files:
        raise UsageError("a remote server reads and writes no files here", hint="Leave out the paths.")
    entry: dict[str, Any] = (
        {"type": "http", "url": url} if url else {"command": command[0], "args": [*command[1:]]}
    )
    if env:
        entry["env"] = dict(env)
    if hosts:
        entry["permissions"] = {"network": network_of(hosts).as_json()}
    return entry


def network_of(hosts: Sequence[str]) -> Network:
    """Return the permission that these hosts make: `*` is every public host, `none` alone is no host at all.

    Raises UsageError for an entry that is not a host.
    """
    if list(hosts) == [_NO_HOST]:
        return Network()
    if "*" in hosts:
        return Network("any")
    for host in hosts:
        try:
            HostRule.parse(host)
        except ValueError as error:
            raise UsageError(str(error), hint=_HOSTS) from None
    return Network.parse({"allow": list(hosts)})


def _accepted(project: Project) -> Config:
    config = load_config(project.place.config, project.root).since(project.trust.ledger)
    if not is_accepted(config, project.trust.ledger):
        raise NotTrusted(
            "the settings of this project wait for your trust, so nothing is added to them",
            hint="To see them and accept them: toolcrib trust",
        )
    return config


def trust_change(project: Project, before: Config, name: str, program: str, channel: str) -> Config:
    """Trust the settings with or without this server, if nothing else in them has changed; return them."""
    now = load_config(project.place.config, project.root)
    own = f"mcp_servers.{name}"
    then, here = (
        (
            {part: value for part, value in one.started.items() if not part.startswith(f"{own}/")},
            one.document.raw if one.document is not None else b"",
        )
        for one in (before, now)
    )
    free = {key: value for key, value in before.unconfined.items() if key != own}
    if program:
        free[own] = program
    if then != here or free != dict(now.unconfined):
        raise NotTrusted("the settings have changed meanwhile", hint="To see them: toolcrib trust")
    project.trust.accept(user_name(), more=settings_rows(now, project.place.home), channel=channel)
    return now


def _spec(name: str, entry: dict[str, Any]) -> ServerSpec:
    try:
        return read_server(name, entry)
    except ValueError as error:
        raise UsageError(f"the server {name!r} cannot be added: {error}") from None


def _grant_named(
    entry: dict[str, Any], root: Path, data: Sequence[str], read: Sequence[str], write: Sequence[str]
) -> None:
    """Let a local server read and write what its command line and the options name, and nothing else."""
    words = (word.partition("=")[2] or word for word in (entry["command"], *entry["args"]))
    paths = (Path(os.path.normpath(root / word)) for word in words if word)
    named = [one.relative_to(root).as_posix() for one in paths if one.is_relative_to(root) and one.exists()]
    files: dict[str, Any] = {"read": list(dict.fromkeys([*named, *read]))}
    if written := list(dict.fromkeys([*data, *write])):
        files["write"] = written
    entry.setdefault("permissions", {})["fs"] = files


def _added(path: Path, before: str | None, name: str, entry: dict[str, Any]) -> str:
    keys = _keys(before)
    try:
        taken = name in json.loads(before or "{}")[keys[0]]
    except (ValueError, KeyError, TypeError):  # An unusable file is refused below.
        taken = False
    if taken:
        raise ConflictError(f"{path} has a server {name} already", hint=_TAKEN)
    return with_server(before or "", path, keys, name, entry)


def _keys(text: str | None) -> tuple[str]:
    """Return the keys that lead to the servers in the text of `.mcp.json`: VS Code writes another one."""
    with suppress(ValueError):
        return (servers_key(json.loads(text or "{}")),)
    return (servers_key(None),)
