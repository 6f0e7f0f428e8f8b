"""The fixed facts of an open project, which its parts share."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from toolcrib.executors.workspace.grants import ClosedPlaces
from toolcrib.guard import ANCHOR, AuditLog, Ledger, Snapshots, UserSecrets
from toolcrib.manifest import SourceFiles
from toolcrib.project.config.mcp import NamedServers
from toolcrib.project.config.secrets import hidden_paths, open_sources
from toolcrib.project.config.settings import Config, source_files
from toolcrib.project.config.weakening import Weakening
from toolcrib.project.integrity.starts import Starts
from toolcrib.project.root import Place
from toolcrib.spec import LEVELS, Level, SecretSource
from toolcrib.spec.record import record
from toolcrib.state import Vault, cache_home, user_settings_place

if TYPE_CHECKING:
    from toolcrib.executors.workspace.workspace import Workspace


@record
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
    ledger: Ledger
    """The acceptances of this user for it, or for the project whose settings apply to a file."""
    secrets: SecretSource
    audit: AuditLog

    starts: Starts
    """The rule about what the settings start."""
    snapshots: Snapshots
    """Copies of the code that was approved."""
    whole: bool
    """True: what the project holds is accepted, by the program that opens it or because it is a file, whose
    code runs for whoever opens it."""

    @property
    def files(self) -> SourceFiles:
        """The files of the project that are read and shown."""
        return source_files(self.place.root, self.place.home, self.hidden)

    @classmethod
    def of(
        cls,
        place: Place,
        config: Config,
        secrets: SecretSource | None,
        trusted: bool,
        vault: Vault | None,
        ledger: Ledger | None = None,
        *,
        whole: bool = False,
    ) -> Setup:
        """Apply the trust of a person to the settings; `secrets` replaces the sources that they name.

        `whole`: the program that opens the project answers for all that is in it.
        """
        applied, named = config if trusted else config.narrowed(), config.servers
        if place.file is not None:  # All its tools are functions of the file.
            named = NamedServers()
            applied = replace(applied, servers=named, builtins=(), sources=())
        vault = vault or Vault(place.path)
        own = vault if place.above is None else Vault(place.above.path, vault.data)
        ledger = ledger or Ledger(own)
        level = sandbox_level_of(config, trusted)
        hidden = hidden_paths(config.secret_sources, place.root)
        if place.above is not None:
            hidden += (str(place.above.home),)

        # Made when a helper command is first started: it imports the sandbox.
        def workspace() -> Workspace:
            from toolcrib.executors.workspace.workspace import HostLimits, LowestLevel, Workspace

            closed = ClosedPlaces(secret=hidden, private=private_folders(vault))
            hosts, lowest = HostLimits(applied.allowed_hosts), LowestLevel(level.level, level.advice)
            return Workspace(str(place.root), str(place.home), closed, hosts, lowest)

        snapshots = Snapshots(lambda: vault.folder, place.root)
        starts = Starts(config, place, ledger, snapshots, workspace, whole=whole)
        secrets = secrets or open_sources(applied.secret_sources, place.root, starts.helper, UserSecrets(own))
        audit = AuditLog(place.audit, lambda: vault.folder / ANCHOR, max_bytes=applied.audit_max_bytes)
        waiting = [] if trusted else config.weakening()
        return cls(
            place, applied, trusted, waiting, named, level, hidden, vault, ledger, secrets, audit,
            starts, snapshots, whole or place.file is not None
        )  # fmt: skip


def private_folders(vault: Vault) -> tuple[str, ...]:
    """Return the user's own folders, with links followed and as they are named: no tool may see them."""
    places = (vault.data, cache_home(), user_settings_place())
    # As named too: a tool could otherwise reach them by the name that is a link.
    folders = [os.path.abspath(one) for one in places if one is not None]
    return tuple(dict.fromkeys((*map(os.path.realpath, folders), *folders)))


_ALLOW = "If that is not possible, sandbox.minimum in the project's settings allows a weaker level."


@record
class SandboxLevel:
    """The weakest level that a project allows, and the advice for a caller who is refused because of it."""

    level: Level = "full"
    advice: str = ""

    def lowered(self) -> Level | None:
        """Return the weaker level that tools run at on this machine; None if they run at the usual one.

        If a weaker level is allowed, this may probe the machine, which takes half a second.
        """
        if self.level == "full":
            return None
        from toolcrib.sandbox import in_force

        found = in_force()
        # Below the minimum, tools are refused.
        return found if found != "full" and LEVELS.index(found) <= LEVELS.index(self.level) else None

    def banner(self, found: Level) -> str:
        """Return a line that warns a person of it."""
        means = {
            "landlock": "command and Python tools are confined by Landlock and seccomp alone",
            "none": "command and Python tools are NOT CONFINED: they can do all that you can",
        }.get(found, "")
        if found != self.level:
            means += "; those that it cannot confine are NOT CONFINED"
        return f"sandbox.minimum is {self.level}, and this machine offers level {found}: {means}"


def sandbox_level_of(config: Config, trusted: bool = False) -> SandboxLevel:
    """Return the level that applies: one weaker than `full` needs a trusted project."""
    asked = config.sandbox_minimum
    if asked == "full":
        return SandboxLevel(advice=_ALLOW)
    if trusted:
        return SandboxLevel(asked)
    return SandboxLevel(
        advice=f"The project's sandbox.minimum: {asked} has no effect until you run `toolcrib trust`."
    )
