"""One project put together: settings, manifests, executors, secrets, audit, one call path."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from toolcrib.context import Context
from toolcrib.errors import ManifestError, ToolUnavailable
from toolcrib.guard import ANCHOR, AuditLog, Digests, Policy, Trust
from toolcrib.manifest import Diagnostic, check_tool, load_tools
from toolcrib.project.checkpoint import Checkpoint
from toolcrib.project.config import Config, load_config
from toolcrib.project.config_secrets import helper_programs, hidden_paths, open_sources
from toolcrib.project.desk import Desk
from toolcrib.project.gate import ProjectGate
from toolcrib.project.minimum import minimum_of
from toolcrib.project.root import Place, find
from toolcrib.project.store import Store
from toolcrib.spec import (
    Approval,
    Call,
    Caller,
    CommandExec,
    Executor,
    FunctionExec,
    HttpExec,
    Limits,
    PythonExec,
    Result,
    Retry,
    SecretSource,
    Tool,
)
from toolcrib.state import Vault
from toolcrib.toolset import BoundTool, Toolset

if TYPE_CHECKING:
    from toolcrib.egress import Egress
    from toolcrib.executors import Workspace

__all__ = ["Project"]

_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class Project:
    """A project's tools behind one call path. Use it as an async context manager, or `aclose` it.

    Manifests that do not load are in `diagnostics`, and never hide the others. A manifest is checked in full
    when its tool is first listed or called.
    """

    def __init__(
        self,
        place: Place,
        config: Config,
        *,
        secrets: SecretSource | None = None,
        trusted: bool = False,
        vault: Vault | None = None,
    ) -> None:
        self.place = place
        self.minimum = minimum_of(config, trusted)
        """The weakest level of the sandbox that counts here."""
        self.waiting = [] if trusted else config.weakening()
        """The settings that count only once a person has trusted the project."""
        self.config = config = config if trusted else config.narrowed()
        self.vault = vault = vault or Vault(place.root)
        """What the user keeps about this project, outside of it."""
        self._lowered: str | None = None
        self._digests: Digests | None = None
        self.audit = AuditLog(place.audit, lambda: vault.folder / ANCHOR, max_bytes=config.audit_max_bytes)
        self.secrets = secrets or open_sources(config.secret_sources, place.root)
        self._store = Store(place, vault, ttl_s=config.approvals.ttl_hours * 3600)
        self._gate = ProjectGate(
            self.audit, self.secrets, policy=_policy(config), checkpoint=self._checkpoint(config)
        )
        self.toolset = Toolset(
            retry=config.retry,
            timeout_ms=config.timeout_ms,
            gate=self._gate,
            missing=self._explain,
            lenient=config.lenient,
        )
        """Holds every tool; functions registered here get the project's guard and audit too."""
        self.functions = Toolset()
        """What manifests of kind `function` refer to, by reference or its last part; not tools themselves."""
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
        config, vault = load_config(place.config), Vault(place.root)
        trusted = not config.weakening() or Trust(vault).is_trusted(config.digest)
        return cls(place, config, secrets=secrets, trusted=trusted, vault=vault)

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
        return [tool for tool in self.toolset.tools() if self._gate.visible(tool, caller, identity)]

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
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        wait: Literal["raise", "block", "pending"] = "raise",
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool and get its `Result`; further options as of `Toolset.call`.

        `wait` says what to do when a person must agree first: fail, wait until one has, or come back with a
        `pending` result. Calls with the same `idempotency_key` run once; the others get its result.
        """
        if name in self._unchecked:
            self._check(name)
        if wait == "raise" and idempotency_key is None:
            return self.toolset.call(name, arguments, **options)
        return self.toolset.invoke(
            Call(
                name,
                {} if arguments is None else arguments,
                wait=wait,
                idempotency_key=idempotency_key,
                **options,
            )
        )

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

    @cached_property
    def desk(self) -> Desk:
        """Where a person decides on calls that wait for approval."""
        return Desk(
            self._store.approvals,
            self.get,
            self.digest_of,
            self.audit.record,
            self._gate.redact,
            self_approval=self.config.policy.self_approval,
        )

    def digest_of(self, tool: Tool) -> str:
        """What a tool is now: its manifest, the files beside it, what it runs."""
        if self._digests is None:
            self._digests = Digests(self.place.root)
        return self._digests.of(tool).digest

    def _checkpoint(self, config: Config) -> Checkpoint:
        limits = Limits(calls_per_minute=config.calls_per_minute, concurrent_calls=config.concurrency)
        return Checkpoint(self._store, self.digest_of, limits)

    def asks(self, call: Call) -> str | None:
        """Why a person must agree to this call before it runs; None when nobody must.

        `call.arguments` are checked, and become what would run. Raises as the call itself would.
        """
        bound = self.toolset.bound(self.get(call.tool).name)
        context = Context.of(call)
        self._gate.authorise(bound, context)
        call.arguments = context.arguments = bound.check(context.arguments)
        question = self._gate.question(bound, context)
        return None if question is None else question.reason

    # -- binding ---------------------------------------------------------------------------------

    def _bind(self, tool: Tool) -> BoundTool:
        return BoundTool(
            tool,
            lambda: self._executor(tool),
            timeout_ms=self.config.timeout_ms,
            retry=self.retry(tool),
        )

    def retry(self, tool: Tool) -> Retry:
        """One attempt for tools from manifests, unless repeating them does no harm."""
        repeatable = tool.annotations.idempotent or (
            isinstance(tool.config, HttpExec) and tool.config.method.upper() in _REPEATABLE
        )
        return self.config.retry if repeatable else Retry()

    def _executor(self, tool: Tool) -> Executor:
        self._check(tool.name)  # In case the call came by the toolset itself.
        if (error := self._explain(tool.name)) is not None:
            raise error
        make = _EXECUTORS.get(tool.kind)
        if make is None:
            raise ToolUnavailable(f"{tool.name}: no executor for kind {tool.kind!r}")
        return make(self, tool)

    def workspace(self) -> Workspace:
        """The project as its tools see it."""
        if self._workspace is None:
            from toolcrib.executors import Workspace

            self.lowered()
            sources, root = self.config.secret_sources, self.place.root
            self._workspace = Workspace(
                str(root),
                str(self.place.home),
                tuple(dict.fromkeys((*self._programs(), *helper_programs(sources, root)))),
                allowed_hosts=self.config.allowed_hosts,
                minimum=self.minimum.level,
                advice=self.minimum.advice,
                secret=hidden_paths(sources, root),
            )
        return self._workspace

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
            self._store.close()
            self.audit.close()


def _policy(config: Config) -> Policy | None:
    """The policy; None where it decides nothing."""
    rules = config.policy
    return None if not rules.rules and rules.default == "allow" else Policy(rules)


def _http(project: Project, tool: Tool) -> Executor:
    from toolcrib.executors import HttpExecutor

    hosts, retry = project.config.allowed_hosts, project.retry(tool)
    return HttpExecutor(tool, project.egress(), allowed_hosts=hosts, retry=retry)


def _command(project: Project, tool: Tool) -> Executor:
    from toolcrib.executors import CommandExecutor

    return CommandExecutor(tool, project.workspace())


def _python(project: Project, tool: Tool) -> Executor:
    from toolcrib.executors import PythonExecutor

    return PythonExecutor(tool, project.workspace())


def _file(project: Project, tool: Tool) -> Executor:
    from toolcrib.executors import FileExecutor

    return FileExecutor(tool, project.workspace())


def _sql(project: Project, tool: Tool) -> Executor:
    from toolcrib.executors import SqlExecutor

    return SqlExecutor(tool, project.workspace())


def _function(project: Project, tool: Tool) -> Executor:
    """The executor of the registered Python function that a manifest refers to."""
    assert isinstance(tool.config, FunctionExec)
    reference = tool.config.reference
    for name in (reference, reference.rpartition(".")[2]):
        if name in project.functions.names:
            return project.functions.bound(name).executor
        if name != tool.name and name in project.toolset.names:
            return project.toolset.bound(name).executor
    raise ToolUnavailable(
        f"{tool.name} calls the function {reference!r}, which is not registered in this process",
        hint="Register it where the project is opened: `project.functions.register(name, function)`.",
        details={"reference": reference},
    )


_EXECUTORS: dict[str, Callable[[Project, Tool], Executor]] = {
    "command": _command,
    "file": _file,
    "function": _function,
    "http": _http,
    "python": _python,
    "sql": _sql,
}
"""Who runs which kind; each is imported when its first tool runs."""
