"""`mcp_servers` in a project's settings, and the `.mcp.json` at its root that other MCP clients read too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from toolcrib.errors import ManifestError
from toolcrib.manifest import read
from toolcrib.manifest.dialects.mcp_servers import ServerSpec, read_server, read_servers

__all__ = ["FILE", "Servers", "servers_block"]

FILE = ".mcp.json"


class Reader(Protocol):
    """What complains about the settings with the place."""

    def misfit(
        self, path: tuple[str | int, ...], message: str, hint: str | None = None, rule: str = ...
    ) -> Exception:
        """The complaint."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Every MCP server that a project names."""

    specs: tuple[ServerSpec, ...] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Entries of `.mcp.json` that cannot be used, and why; the empty name stands for the file."""
    narrowing: Mapping[str, Any] = field(default_factory=dict)
    """Permissions in `config.yml` for servers of `.mcp.json`, by name."""
    shared: Any = None
    """What `.mcp.json` names, as it is written; None where it names nothing."""
    mark: bytes = b""
    """What trust is bound to beside the settings."""

    def beside(self, root: Path) -> Servers:
        """These, with what `.mcp.json` in `root` names; a name in both is the settings'."""
        try:
            raw = read(str(root / FILE))
        except (FileNotFoundError, NotADirectoryError):
            return self._without_file()
        except ManifestError as error:
            return replace(self, wrong={"": error.message})
        import orjson

        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            return replace(self, wrong={"": f"is not JSON: {error}"})
        block = data.get("mcpServers") if isinstance(data, dict) else None
        if isinstance(block, dict):
            for name, permissions in self.narrowing.items():
                if isinstance(block.get(name), dict):
                    block[name] = {**block[name], "permissions": permissions}
        found, wrong = read_servers(data)
        own = {spec.name for spec in self.specs}
        return replace(
            self,
            specs=(*self.specs, *(spec for spec in found if spec.name not in own)),
            wrong=wrong,
            shared=block or None,
            mark=b"\0" + raw if block else b"",
        )

    def _without_file(self) -> Servers:
        missing = dict.fromkeys(self.narrowing, f"has no command or url, and no {FILE} names it")
        return replace(self, wrong=missing)


def servers_block(reader: Reader, value: Any) -> dict[str, Any]:
    """The block `mcp_servers` of the settings: by name what `.mcp.json` would say, or permissions alone."""
    at = ("mcp_servers",)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise reader.misfit(at, "must be a mapping: name, then `command` or `url`", None, "wrong-type")
    specs: list[ServerSpec] = []
    narrowing: dict[str, Any] = {}
    for name, entry in value.items():
        if isinstance(entry, dict) and set(entry) == {"permissions"}:
            narrowing[str(name)] = entry["permissions"]
            continue
        try:
            specs.append(read_server(name, entry))
        except ValueError as error:
            raise reader.misfit((*at, str(name)), f"cannot be used: {error}") from None
    return {"servers": Servers(tuple(specs), narrowing=narrowing)}
