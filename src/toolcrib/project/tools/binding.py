"""Makes the tools of a project ready to be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolUnavailable
from toolcrib.executors import Host
from toolcrib.manifest import kind_of
from toolcrib.project.control.composites import Composites
from toolcrib.project.setup import Setup
from toolcrib.project.tools.workspaces import Workspaces
from toolcrib.spec import Executor, HttpExec, Invoke, Retry, Tool

if TYPE_CHECKING:
    from toolcrib.executors.trace.observation import Observation

_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class Binder:
    """Gives each tool its limits and its executor, which is made on first use.

    `functions` are what manifests of kind `function` refer to; `invoke` makes the calls of steps.
    """

    def __init__(
        self,
        setup: Setup,
        toolset: Toolset,
        functions: Toolset,
        workspaces: Workspaces,
        composites: Composites,
        invoke: Invoke,
    ) -> None:
        self._config = setup.config
        self._toolset = toolset
        self.functions = functions
        self._workspaces = workspaces
        self._composites = composites
        self._invoke = invoke

    def bind(
        self, tool: Tool, require: Callable[[str], None], seen: Observation | None, is_clean: bool
    ) -> BoundTool:
        """Make a tool ready. `require` raises for one that cannot be used; `seen` records what it uses."""

        # At the first call, not at the start: most tools of a project are never called.
        def executor() -> Executor:
            require(tool.name)
            make = kind_of(tool).executor
            if make is None:
                raise ToolUnavailable(f"{tool.name}: no executor for kind {tool.kind!r}")
            return make(tool, self.host(tool, seen))

        return BoundTool(
            tool,
            executor,
            timeout_ms=self._config.timeout_ms,
            retry=self._retry(tool),
            is_clean=is_clean,
        )

    def host(self, tool: Tool, seen: Observation | None = None) -> Host:
        """Return the surroundings of a tool; `seen` records what it uses."""
        return Host(
            catalog=self._toolset,
            invoke=self._invoke,
            workspace=partial(self._workspaces.workspace, seen),
            egress=self._workspaces.egress,
            function=self._function,
            admit=self._composites.admit,
            allowed_hosts=self._config.allowed_hosts,
            retry=self._retry(tool),
            connections=self._workspaces.connections,
            token_folder=self._workspaces.token_folder,
            learn=self._workspaces.learn,
            observe_host=None if seen is None else seen.record_host,
        )

    def _retry(self, tool: Tool) -> Retry:
        """Return one attempt for tools from manifests, unless repeating them does no harm."""
        repeatable = tool.annotations.idempotent or (
            isinstance(tool.config, HttpExec) and tool.config.method.upper() in _REPEATABLE
        )
        return self._config.retry if repeatable else Retry()

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
        raise ToolUnavailable(
            f"{tool.name} calls the function {reference!r}, which is not registered in this process",
            hint="Register it where the project is opened: `project.functions.register(name, function)`.",
            details={"reference": reference},
        )
