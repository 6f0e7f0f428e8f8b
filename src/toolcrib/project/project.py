"""One project put together: settings, manifests, executors, secrets, audit, one call path."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ManifestError, ToolUnavailable
from toolcrib.guard import AuditLog
from toolcrib.manifest import Diagnostic, check_tool, load_tools
from toolcrib.project.config import Config, load_config
from toolcrib.project.gate import ProjectGate
from toolcrib.project.minimum import minimum_of
from toolcrib.project.root import Place, find
from toolcrib.spec import (
    Approval,
    Call,
    Caller,
    CommandExec,
    Executor,
    HttpExec,
    PythonExec,
    Result,
    Retry,
    SecretSource,
    Tool,
)
from toolcrib.toolset import BoundTool, Toolset

if TYPE_CHECKING:
    from toolcrib.egress import Egress
    from toolcrib.executors import Workspace
    from toolcrib.executors.observation import Observation

__all__ = ["Project"]

_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class Project:
    """A project's tools behind one call path. Use it as an async context manager, or `aclose` it.

    Manifests that do not load are in `diagnostics`, and never hide the others. A manifest is checked in full
    when its tool is first listed or called.
    """

    def __init__(
        self, place: Place, config: Config, *, secrets: SecretSource | None = None, trusted: bool = False
    ) -> None:
        self.place = place
        self.config = config
        self.minimum = minimum_of(config, trusted)
        """The weakest level of the sandbox that counts here."""
        self._lowered: str | None = None
        self.audit = AuditLog(place.audit)
        self._gate = ProjectGate(self.audit, secrets)
        self.toolset = Toolset(
            retry=config.retry, timeout_ms=config.timeout_ms, gate=self._gate, missing=self._explain
        )
        """Holds every tool; functions registered here get the project's guard and audit too."""
        loaded = load_tools(place.tools)
        self.diagnostics: list[Diagnostic] = list(loaded.diagnostics)
        """What is wrong with manifests, errors and warnings, as far as it is known yet."""
        self._egress: Egress | None = None
        self._workspace: Workspace | None = None
        self._unchecked: dict[str, BoundTool] = {}
        self._gate.know(loaded.tools)
        for tool in loaded.tools:
            bound = self._bind(tool)
            self.toolset.add(bound)
            self._unchecked[tool.name] = bound

    @classmethod
    def open(
        cls, root: str | os.PathLike[str] | None = None, *, secrets: SecretSource | None = None
    ) -> Project:
        """The project at `root` or found upward from here; `ProjectNotFound`, `ConfigError`."""
        place = find(root)
        # The one place where a project learns whether a person trusts it; nobody can say so yet.
        trusted = False
        return cls(place, load_config(place.config), secrets=secrets, trusted=trusted)

    @property
    def root(self) -> Path:
        """The project's root folder."""
        return self.place.root

    # -- the catalog that doors serve ------------------------------------------------------------

    @property
    def revision(self) -> int:
        """Changes whenever the list of tools changes."""
        return self.toolset.revision

    def tools(self, caller: str = "local", identity: Caller | None = None) -> Sequence[Tool]:
        """Every usable tool that this caller may see: by names of manifests, then as registered."""
        for name in list(self._unchecked):
            self._check(name)
        return self.toolset.tools(caller, identity)

    def get(self, name: str) -> Tool:
        """One tool; `ToolNotFound` names the nearest, `ManifestError` says why it does not load."""
        self._check(name)
        if name not in self.toolset.names and (error := self._explain(name)) is not None:
            raise error
        return self.toolset.get(name)

    def invoke(self, call: Call) -> Coroutine[Any, Any, Result]:
        """The one call path."""
        if call.tool in self._unchecked:
            self._check(call.tool)
        return self.toolset.invoke(call)

    def call(
        self, name: str, arguments: Mapping[str, Any] | bytes | str | None = None, **options: Any
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool and get its `Result`; options as of `Toolset.call`."""
        if name in self._unchecked:
            self._check(name)
        return self.toolset.call(name, arguments, **options)

    def _check(self, name: str) -> None:
        """Check a manifest in full once; one with errors is taken out of the list."""
        bound = self._unchecked.pop(name, None)
        if bound is None:
            return
        found = check_tool(bound.tool)
        self.diagnostics.extend(found)
        if any(diagnostic.is_error for diagnostic in found):
            self.toolset.remove(name)
            return
        wide = [diagnostic.message.partition(";")[0] for diagnostic in found if diagnostic.rule == "grant"]
        if wide and not bound.tool.approval.required:
            bound.approval_reason = ", and ".join(wide)
            bound.tool = replace(bound.tool, approval=Approval(True, bound.approval_reason))

    def _explain(self, name: str) -> ManifestError | None:
        """The error of a tool that is missing because its manifest is wrong."""
        folder = self.place.tools / name
        errors = [d for d in self.diagnostics if d.is_error and Path(d.path).parent == folder]
        if not errors:
            return None
        return ManifestError(
            f"the tool {name!r} is not usable: {errors[0].render()}",
            hint="Run `toolcrib lint` to see all that is wrong.",
            details={"diagnostics": [error.as_dict() for error in errors]},
        )

    # -- binding ---------------------------------------------------------------------------------

    def watch(self, tool: Tool, seen: Observation) -> None:
        """From now on run the tool of this name as `tool` says, and tell `seen` all it uses."""
        self.toolset.remove(tool.name)
        bound = self._unchecked[tool.name] = self._bind(tool, seen)
        self.toolset.add(bound)

    def _bind(self, tool: Tool, seen: Observation | None = None) -> BoundTool:
        return BoundTool(
            tool,
            lambda: self._executor(tool, seen),
            timeout_ms=self.config.timeout_ms,
            retry=self.retry(tool),
        )

    def retry(self, tool: Tool) -> Retry:
        """One attempt for tools from manifests, unless repeating them does no harm."""
        repeatable = tool.annotations.idempotent or (
            isinstance(tool.config, HttpExec) and tool.config.method.upper() in _REPEATABLE
        )
        return self.config.retry if repeatable else Retry()

    def _executor(self, tool: Tool, seen: Observation | None) -> Executor:
        self._check(tool.name)  # In case the call came by the toolset itself.
        if (error := self._explain(tool.name)) is not None:
            raise error
        make = _EXECUTORS.get(tool.kind)
        if make is None:
            raise ToolUnavailable(f"{tool.name}: no executor for kind {tool.kind!r}")
        return make(self, tool, seen)

    def workspace(self, seen: Observation | None = None) -> Workspace:
        """The project as its tools see it; `seen` is told what they use."""
        if self._workspace is None:
            from toolcrib.executors import Workspace

            self.lowered()
            self._workspace = Workspace(
                str(self.place.root),
                str(self.place.home),
                tuple(dict.fromkeys(self._programs())),
                allowed_hosts=self.config.allowed_hosts,
                minimum=self.minimum.level,
                advice=self.minimum.advice,
            )
        return self._workspace if seen is None else replace(self._workspace, watch=seen)

    def lowered(self) -> str:
        """What is weaker than usual here, in a line; empty where nothing is. It is recorded the first time.

        Where the settings allow a weaker level, this may take half a second.
        """
        if self._lowered is None:
            found = self.minimum.lowered()
            self._lowered = "" if found is None else self.minimum.banner(found)
            if found is not None:
                self.audit.record("SANDBOX_LOWERED", minimum=self.minimum.level, level=found)
        return self._lowered

    def _programs(self) -> Iterator[str]:
        """Entrypoints and virtual environments of the project's tools, as real paths."""
        for tool in self.toolset.tools():
            config = tool.config
            if isinstance(config, CommandExec) and "/" in config.entrypoint:
                yield os.path.realpath(self.place.root / config.entrypoint)
            elif isinstance(config, PythonExec) and config.venv is not None:
                yield os.path.realpath(self.place.root / config.venv)

    def egress(self) -> Egress:
        """The way out for HTTP tools."""
        if self._egress is None:
            from toolcrib.egress import Egress

            self._egress = Egress()
        return self._egress

    # -- lifespan --------------------------------------------------------------------------------

    async def __aenter__(self) -> Project:
        await self.toolset.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close connections, tools with resources, and the audit log."""
        try:
            await self.toolset.aclose()
            if self._egress is not None:
                await self._egress.aclose()
        finally:
            self.audit.close()


def _http(project: Project, tool: Tool, seen: Observation | None) -> Executor:
    from toolcrib.executors import HttpExecutor

    hosts, retry = project.config.allowed_hosts, project.retry(tool)
    tell = None if seen is None else seen.record_host
    return HttpExecutor(tool, project.egress(), allowed_hosts=hosts, retry=retry, tell=tell)


def _command(project: Project, tool: Tool, seen: Observation | None) -> Executor:
    from toolcrib.executors import CommandExecutor

    return CommandExecutor(tool, project.workspace(seen))


def _python(project: Project, tool: Tool, seen: Observation | None) -> Executor:
    from toolcrib.executors import PythonExecutor

    return PythonExecutor(tool, project.workspace(seen))


def _file(project: Project, tool: Tool, seen: Observation | None) -> Executor:
    from toolcrib.executors import FileExecutor

    return FileExecutor(tool, project.workspace(seen))


_EXECUTORS: dict[str, Callable[[Project, Tool, Observation | None], Executor]] = {
    "command": _command,
    "file": _file,
    "http": _http,
    "python": _python,
}
"""Who runs which kind; each is imported when its first tool runs."""
