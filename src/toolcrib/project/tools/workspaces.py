"""The project as its tools see it: the files they may reach, and the way out to the network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.core.toolset import Toolset
from toolcrib.executors.workspace.grants import ClosedPlaces
from toolcrib.project.control.records import SecretsStep
from toolcrib.project.integrity.programs import closed_folders, programs_of, running_from, settled
from toolcrib.project.setup import Setup, private_folders
from toolcrib.spec import Tool

if TYPE_CHECKING:
    from toolcrib.egress import Egress
    from toolcrib.executors.connections import Connections
    from toolcrib.executors.trace.observation import Observation
    from toolcrib.executors.workspace.workspace import Workspace


class Workspaces:
    """Makes the workspace on first use, and again after `reset`. No tool can write the programs of others."""

    def __init__(
        self,
        setup: Setup,
        toolset: Toolset,
        reviewed: Callable[[Tool], frozenset[tuple[str, str]] | None],
        secrets: SecretsStep,
    ) -> None:
        self.learn = secrets.learn
        """Masks values that are not declared secrets, such as access tokens."""
        self._setup = setup
        self._reviewed = reviewed
        self._toolset = toolset
        self._workspace: Workspace | None = None
        self._egress: Egress | None = None
        self._connections: Connections | None = None
        self.server_programs: Callable[[], list[str]] = list
        """Programs of MCP servers, which no tool may write."""

    def workspace(self, seen: Observation | None = None) -> Workspace:
        """Return the workspace; `seen` records what tools use."""
        if self._workspace is None:
            self._workspace = self._make()
        return self._workspace if seen is None else replace(self._workspace, watch=seen)

    def _make(self) -> Workspace:
        from toolcrib.executors.workspace.workspace import HostLimits, LowestLevel, Workspace

        _ = self.lowered  # recorded before the first tool runs
        config, place, level = self._setup.config, self._setup.place, self._setup.sandbox_level
        tools = self._toolset.tools()
        # What one tool runs, another must not be able to write.
        programs = [*programs_of(tools, place.root), *self.server_programs()]
        closed = ClosedPlaces(
            programs=tuple(dict.fromkeys((*programs, *settled(config, place)))),
            folders=closed_folders(config, place.root),
            secret=self._setup.hidden,
            private=private_folders(self._setup.vault),
            own=running_from(str(place.root)),
            writable=self._writable(tools),
        )
        return Workspace(
            str(place.root),
            str(place.home),
            closed,
            HostLimits(config.allowed_hosts),
            LowestLevel(level.level, level.advice),
            self._reviewed,
        )

    def _writable(self, tools: Iterable[Tool]) -> tuple[str, ...]:
        """Return the folders outside the project that any tool or MCP server may write, as real paths."""
        root = str(self._setup.place.root)
        granted = [tool.permissions for tool in tools]
        granted += [spec.permissions for spec in self._setup.named_servers.specs]
        written = dict.fromkeys(path for one in granted for path in one.write)
        real = (os.path.realpath(os.path.join(root, path)) for path in written)
        return tuple(path for path in real if not f"{path}/".startswith(f"{root}/"))

    def reset(self) -> None:
        """Find out again which programs are run here."""
        self._workspace = None

    @cached_property
    def lowered(self) -> str:
        """A line about what is weaker than usual here, recorded the first time; empty if nothing is.

        If the settings allow a weaker level, this may take half a second.
        """
        level = self._setup.sandbox_level
        found = level.lowered()
        if found is None:
            return ""
        self._setup.audit.record("SANDBOX_LOWERED", minimum=level.level, level=found)
        return level.banner(found)

    def egress(self) -> Egress:
        """Return the client of all HTTP tools."""
        if self._egress is None:
            from toolcrib.egress import Egress

            self._egress = Egress()
        return self._egress

    def connections(self) -> Connections:
        """Return the connections of all SQL tools."""
        if self._connections is None:
            from toolcrib.executors.connections import Connections

            self._connections = Connections()
        return self._connections

    def token_folder(self) -> Path:
        """Return the user's folder for the access tokens of this project's tools."""
        folder = self._setup.vault.folder / "oauth"
        # Other users of this machine must not read access tokens.
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    async def aclose(self) -> None:
        """Close connections."""
        if self._egress is not None:
            await self._egress.aclose()
        if self._connections is not None:
            await self._connections.aclose()
