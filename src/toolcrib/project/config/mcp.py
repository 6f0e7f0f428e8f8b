"""`mcp_servers` in a project's settings, and the `.mcp.json` at its root that other MCP clients read too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from toolcrib.errors import ManifestError
from toolcrib.manifest import SourceFiles, read
from toolcrib.project.config.reader import KeyPath, Reader
from toolcrib.project.config.started import CommandLine
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

FILE = ".mcp.json"


@record
class NamedServers:
    """Every MCP server that a project names."""

    specs: tuple[ServerSpec, ...] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Unusable entries of `.mcp.json` and why; the empty name means the whole file."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Server name to what its entry in `.mcp.json` says without effect here, or that it is disabled."""
    narrowing: Mapping[str, Any] = field(default_factory=dict)
    """Server name of `.mcp.json` to its permissions in `config.yml`."""
    shared: Any = None
    """The servers in `.mcp.json` that are not switched off, as they are written; None without any."""
    trusted_bytes: bytes = b""
    """Bytes of `.mcp.json` that trust is bound to, besides the settings."""

    def lines(self, root: Path) -> dict[str, CommandLine]:
        """Return the command line of each local server, by the name of its setting."""
        return {f"mcp_servers.{one.name}": server_line(one, root) for one in self.specs if one.is_local}

    def beside(self, root: Path, files: SourceFiles) -> NamedServers:
        """Return these and the ones in `root/.mcp.json`. A name in both means the one of the settings."""
        try:
            raw = read(str(root / FILE), files)
        except (FileNotFoundError, NotADirectoryError):
            missing = dict.fromkeys(self.narrowing, f"has no command or url, and no {FILE} names it")
            return replace(self, wrong=missing)
        except ManifestError as error:
            return replace(self, wrong={"": error.message})
        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            return replace(self, wrong={"": f"is not JSON: {error}"})
        from toolcrib.manifest.dialects.mcp_servers import read_servers, servers_key

        block = data.get(servers_key(data)) if isinstance(data, dict) else None
        shared = block if isinstance(block, dict) else {}
        for name, permissions in self.narrowing.items():
            if isinstance(shared.get(name), dict):
                shared[name] = {**shared[name], "permissions": permissions}
        found, wrong, notes = read_servers(data, str(root))
        # The settings come first: they can narrow a server that `.mcp.json` shares with other clients.
        own = {spec.name for spec in self.specs}
        on = {spec.name for spec in found} | wrong.keys()
        return replace(
            self,
            specs=(*self.specs, *(spec for spec in found if spec.name not in own)),
            wrong=wrong,
            notes={name: text for name, text in notes.items() if name not in own},
            shared={name: one for name, one in shared.items() if name in on} or None,
            # The zero byte divides it from the settings, so no other two files have the same bytes together.
            trusted_bytes=b"\0" + raw if block else b"",
        )


def read_named_servers(reader: Reader, value: Any, at: KeyPath) -> NamedServers:
    """Read `mcp_servers`: by name an entry as in `.mcp.json`, or permissions alone."""
    if not isinstance(value, dict):
        raise reader.misfit(at, "must be a mapping: name, then `command` or `url`", None, "wrong-type")
    from toolcrib.manifest.dialects.mcp_servers import KEYS, read_server

    specs: list[ServerSpec] = []
    narrowing: dict[str, Any] = {}
    for name, entry in value.items():
        if isinstance(entry, dict) and set(entry) == {"permissions"}:
            narrowing[str(name)] = entry["permissions"]
            continue
        known = isinstance(entry, dict) and set(entry) <= set(KEYS)
        if known and not {"command", "url", "type"} & set(entry):
            others = ", ".join(f"`{key}`" for key in entry if key != "permissions")
            text = f"has no `command` and no `url`: beside a server of {FILE} only `permissions` counts here"
            hint = f"write {others} in {FILE}, or the whole server here" if others else None
            raise reader.misfit((*at, str(name)), text, hint)
        try:
            specs.append(read_server(name, entry))
        except ValueError as error:
            raise reader.misfit((*at, str(name)), f"cannot be used: {error}") from None
    return NamedServers(tuple(specs), narrowing=narrowing)


def server_line(spec: ServerSpec, root: Path) -> CommandLine:
    """Return the command line of a local server, as it is really started but for a package of a launcher.

    What was downloaded is no code of the project, wherever it is.
    """
    from toolcrib.executors.mcp.process.local import started, unconfined_program

    spec = replace(spec, resolved=None)
    launch = started(spec, str(root))[0]
    free = unconfined_program(spec, str(root))
    variables = tuple(launch.env.values()) if free else ()
    return CommandLine(launch.argv, launch.cwd, free, spec.data, spec.permissions.write, variables)
