"""Makes the tools of a project ready to be called, with what they see of the project and of the network."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolUnavailable
from toolcrib.executors import Host
from toolcrib.executors.workspace.grants import ClosedPlaces
from toolcrib.manifest import DIALECTS, KnownFacts, kind_of
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.project.integrity.programs import ToolPrograms, closed_folders, running_from, settled
from toolcrib.project.preview import Preview
from toolcrib.project.setup import Setup, private_folders
from toolcrib.spec import Executor, Invoke, Retry, Tool

if TYPE_CHECKING:
    from toolcrib.egress import Egress
    from toolcrib.executors.connections import Connections
    from toolcrib.executors.trace.observation import Observation
    from toolcrib.executors.workspace.workspace import Workspace
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec


class Binder:
    """Gives each tool its limits and its executor, which is made on first use.

    `functions` are what manifests of kind `function` refer to; `invoke` makes the calls of steps.
    """

    def __init__(
        self,
        setup: Setup,
        toolset: Toolset,
        functions: Toolset,
        steps: ProjectSteps,
        preview: Preview,
        invoke: Invoke,
    ) -> None:
        self._setup, self._toolset, self.functions = setup, toolset, functions
        self._steps, self._preview, self._invoke = steps, preview, invoke
        self._workspace: Workspace | None = None
        self._egress: Egress | None = None
        self._connections: Connections | None = None
        self.servers: Callable[[], list[ServerSpec]] = list
        """Returns the MCP servers, whose programs no tool may write."""
        self.facts: Callable[[], KnownFacts]
        """Returns what is known of tools without building them."""

    def bind(self, tool: Tool, require: Callable[[str], None], seen: Observation | None) -> BoundTool:
        """Make a tool ready. `require` raises for one that cannot be used; `seen` records what it uses."""

        # At the first call, not at the start: most tools of a project are never called.
        def executor() -> Executor:
            require(tool.name)
            make = kind_of(tool).executor
            if make is None:
                raise ToolUnavailable(f"{tool.name}: no executor for kind {tool.kind!r}")
            return make(tool, self.host(tool, seen))

        timeout_ms = self._setup.config.timeout_ms
        return BoundTool(tool, executor, timeout_ms=timeout_ms, retry=self._retry(tool))

    def host(self, tool: Tool, seen: Observation | None = None) -> Host:
        """Return the surroundings of a tool; `seen` records what it uses."""
        return Host(
            catalog=self._toolset,
            invoke=self._invoke,
            workspace=partial(self.workspace, seen),
            egress=self.egress,
            function=self._function,
            admit=self._preview.admit,
            allowed_hosts=self._setup.config.allowed_hosts,
            retry=self._retry(tool),
            connections=self._open_connections,
            token_folder=self._token_folder,
            learn=self._steps.secrets.learn,
            observe_host=None if seen is None else seen.record_host,
        )

    def _retry(self, tool: Tool) -> Retry:
        """Return one attempt for tools from manifests, unless repeating them does no harm.

        The delay between attempts is that of the settings, else that of the tool's format.
        """
        repeatable = tool.annotations.idempotent or kind_of(tool).annotations(tool.config).idempotent
        retry = self._setup.config.retry if repeatable else Retry()
        dialect = None if tool.source is None else DIALECTS.get(tool.source.dialect)
        if retry.jitter > 0 or dialect is None:
            return retry
        return replace(retry, base_ms=dialect.base_ms)

    def _function(self, tool: Tool, reference: str) -> Executor:
        """Return the executor of a registered function, by its reference or the last part of it."""
        for name in (reference, reference.rpartition(".")[2]):
            if name in self.functions.names:
                return self.functions.bound(name).executor
            # No tool may pass by the rules and approvals of another one: a tool of a bundle gets none, one of
            # the project only a function of the program that runs without asking.
            if not tool.is_stored and name != tool.name and name in self._toolset.names:
                other = self._toolset.bound(name)
                if other.tool.source is None and not other.tool.approval.required:
                    return other.executor
        raise missing_function(tool.name, reference)

    def workspace(self, seen: Observation | None = None) -> Workspace:
        """Return the files and hosts that tools may reach; `seen` records what they use."""
        if self._workspace is None:
            self._workspace = self._make_workspace()
        return self._workspace if seen is None else replace(self._workspace, watch=seen)

    def _make_workspace(self) -> Workspace:
        from toolcrib.executors.workspace.workspace import HostLimits, LowestLevel, Workspace

        _ = self.lowered  # recorded before the first tool runs
        config, place, level = self._setup.config, self._setup.place, self._setup.sandbox_level
        root, toolset, facts = str(place.root), self._toolset, self.facts()
        others = [toolset.get(name) for name in toolset.names if name not in facts]
        servers = self.servers()
        started = _files_of(servers, place.root)
        fixed = dict.fromkeys((*started, *settled(config, place)))
        granted = [one.permissions.write for one in others]
        granted += [one.permissions.write for one in servers]
        written = dict.fromkeys(path for one in (*granted, facts.every("write")) for path in one)
        real = (os.path.realpath(os.path.join(root, path)) for path in written)
        closed = ClosedPlaces(
            programs=ToolPrograms(place.root, others, facts, toolset.get, tuple(fixed)).under,
            folders=closed_folders(config, place.root),
            secret=self._setup.hidden,
            private=private_folders(self._setup.vault),
            own=running_from(root),
            writable=tuple(path for path in real if not f"{path}/".startswith(f"{root}/")),
        )
        hosts, lowest = HostLimits(config.allowed_hosts), LowestLevel(level.level, level.advice)
        trusted = self._steps.trust.trusted_grants
        return Workspace(root, str(place.home), closed, hosts, lowest, trusted)

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

    def _open_connections(self) -> Connections:
        """Return the connections of all SQL tools."""
        if self._connections is None:
            from toolcrib.executors.connections import Connections

            self._connections = Connections()
        return self._connections

    def _token_folder(self) -> Path:
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


def missing_function(tool: str, reference: str) -> ToolUnavailable:
    """Return the error of a tool that calls a function which is not registered."""
    name = reference.rpartition(".")[2]
    return ToolUnavailable(
        f"{tool} calls the function {reference!r}, which is not registered in this process",
        hint=f"Register it after opening the project: `project.functions.register({name!r}, function)`.",
        details={"reference": reference},
    )


def _files_of(servers: Sequence[ServerSpec], root: Path) -> list[str]:
    if not servers:
        return []
    from toolcrib.executors.mcp.process.local import files_of

    return [path for one in servers for path in files_of(one, root)]
