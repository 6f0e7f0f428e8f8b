"""The fixed facts of an open project, which its parts share."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.guard import ANCHOR, AuditLog
from toolcrib.project.config.mcp import NamedServers
from toolcrib.project.config.secrets import hidden_paths, open_sources
from toolcrib.project.config.settings import Config
from toolcrib.project.config.weakening import Weakening
from toolcrib.project.root import Place
from toolcrib.project.sandbox_level import SandboxLevel, sandbox_level_of
from toolcrib.spec import SecretSource
from toolcrib.state import Vault

__all__ = ["Setup"]


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings, places and records of one project."""

    place: Place
    config: Config
    """The settings that apply. Without trust, those that weaken a guard have their safe values."""
    trusted: bool
    waiting: list[Weakening]
    """The settings that wait for trust."""
    named_servers: NamedServers
    """The MCP servers that the project names, also without trust."""
    sandbox_level: SandboxLevel
    hidden: tuple[str, ...]
    """Files and folders with secrets, which no tool may see."""
    vault: Vault
    """The data that the user keeps about this project, outside of it."""
    secrets: SecretSource
    audit: AuditLog

    @classmethod
    def of(
        cls, place: Place, config: Config, secrets: SecretSource | None, trusted: bool, vault: Vault | None
    ) -> Setup:
        """Apply the trust of a person to the settings; `secrets` replaces the sources that they name."""
        applied = config if trusted else config.narrowed()
        vault = vault or Vault(place.root)
        return cls(
            place=place,
            config=applied,
            trusted=trusted,
            waiting=[] if trusted else config.weakening(),
            named_servers=config.servers,
            sandbox_level=sandbox_level_of(config, trusted),
            hidden=hidden_paths(config.secret_sources, place.root),
            vault=vault,
            secrets=secrets or open_sources(applied.secret_sources, place.root),
            audit=AuditLog(place.audit, lambda: vault.folder / ANCHOR, max_bytes=applied.audit_max_bytes),
        )
