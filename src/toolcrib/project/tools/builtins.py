"""The built-in tools of one project: off until its settings, an agent or a team lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import RLock

from toolcrib.builtin.names import NAMES, READER
from toolcrib.builtin.settings import PROJECT_ROOT, BuiltinSettings
from toolcrib.builtin.site import Site
from toolcrib.builtin.table import BuiltinFunction, builtin
from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolDisabled
from toolcrib.executors import Host
from toolcrib.project.config.settings import Config
from toolcrib.project.control.checks import builtin_off
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.spec import Executor, Tool


class Builtins:
    """Puts the built-in tools that are listed into the project's toolset. A manifest of the same name wins.

    `host` returns the surroundings of a tool.
    """

    def __init__(
        self, config: Config, toolset: Toolset, host: Callable[[Tool], Host], steps: ProjectSteps
    ) -> None:
        self._config, self._toolset, self._host, self._steps = config, toolset, host, steps
        self._settings = BuiltinSettings(config.roots or PROJECT_ROOT, dict(config.builtins))
        self._only_for = steps.access.only_for
        self._bound: dict[str, BoundTool] = {}
        self._lock = RLock()  # A worker switches on in a thread, while calls end in its event loop.

    def switch_on(self, names: Iterable[str], caller: str | None = None) -> None:
        """Make built-in tools callable, by all or one caller; other names, and taken ones, are left out."""
        with self._lock:
            added = []
            for name in (name for name in names if name in NAMES):
                if caller is None:
                    self._only_for.pop(name, None)
                # A tool that is on for all stays so when an agent lists it too.
                elif name not in self._bound or name in self._only_for:
                    self._only_for.setdefault(name, set()).add(caller)
                if name not in self._bound and self._toolset.same_name(name) is None:
                    self._bound[name] = bound = self._bind(self.definition(name))
                    added.append(bound)
            if added:
                # Before they can be called: no first output may show a secret.
                self._steps.secrets.know([bound.tool for bound in added])
                self._toolset.add_all(added)

    def switch_on_reader(self) -> None:
        """Make the reader of long outputs callable by all, once any process has kept one."""
        if (READER not in self._bound or READER in self._only_for) and self._steps.outputs.exist:
            self.switch_on((READER,))

    def definition(self, name: str) -> Tool:
        """Return a built-in tool by the settings of the project, on or off. Raises ToolNotFound."""
        return builtin(name).tool(self._settings)

    def owns(self, name: str) -> bool:
        """Return True if the tool of this name in the list is a built-in one."""
        return (
            name in self._bound and name in self._toolset and self._toolset.bound(name) is self._bound[name]
        )

    def is_on(self, name: str) -> bool:
        """Return True if a built-in tool can be called by all callers."""
        return self.owns(name) and name not in self._only_for

    def renew(self) -> None:
        """Have new executors made for the next calls."""
        for bound in self._bound.values():
            bound.renew()

    def why_missing(self, name: str) -> ToolDisabled | None:
        """Return the error of a built-in tool that is off."""
        return builtin_off(name) if name in NAMES else None

    def _bind(self, tool: Tool) -> BoundTool:
        def executor() -> Executor:
            steps, host = self._steps, self._host(tool)
            return BuiltinFunction(Site(tool, host, self._settings, lambda: steps.store.state, steps.outputs))

        return BoundTool(tool, executor, timeout_ms=self._config.timeout_ms)
