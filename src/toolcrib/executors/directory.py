"""The tools of a folder for a toolset without a project: read, checked, and each with its executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ToolcribError, ToolUnavailable, UsageError
from toolcrib.executors.host import Host
from toolcrib.executors.workspace.grants import hidden_places
from toolcrib.guard import EnvironmentSecrets, MaskRules, Redactor, resolve
from toolcrib.manifest import (
    DEFAULT_DIALECT,
    SourceFiles,
    check_tool,
    failure,
    folder_dialects,
    kind_of,
    load_directory,
)
from toolcrib.spec import (
    BuiltinExec,
    Call,
    CallContext,
    Catalog,
    Executor,
    Network,
    Outcome,
    Permissions,
    Tool,
)

if TYPE_CHECKING:
    from toolcrib.egress import Egress
    from toolcrib.executors.workspace.workspace import Workspace

LoadedTool = tuple[Tool, Callable[[], Executor]]


def open_directory(
    folder: str | os.PathLike[str],
    catalog: Catalog,
    *,
    dialect: str = DEFAULT_DIALECT,
    root: str | os.PathLike[str] | None = None,
    read: Sequence[str] = (".",),
    write: Sequence[str] = (),
    network: Any = False,
) -> list[LoadedTool]:
    """Return every tool of a folder with the function that creates its executor.

    `dialect` is the folder's format, one of `folder_dialects`. Relative paths start at `root` (default: the
    working folder). `read`, `write` and `network` are the permissions of all its tools, as in a manifest.
    Raises ManifestError with every error of the folder, UsageError for an unknown format.
    """
    if dialect not in (known := folder_dialects(dialect)):
        raise UsageError(f"unknown format {dialect!r} of a folder", hint=f"Known: {', '.join(known)}.")
    granted = Permissions(Network.parse(network), tuple(read), tuple(write))
    base = os.path.realpath(root if root is not None else Path.cwd())
    files = SourceFiles((base, os.path.realpath(folder)), hidden_places(base, f"{base}/.toolcrib"))
    loaded = load_directory(Path(folder).absolute(), granted, dialect, files)
    found = [*loaded.diagnostics, *(finding for tool in loaded.tools for finding in check_tool(tool))]
    errors = [finding for finding in found if finding.is_error]
    if errors:
        raise failure(errors)
    host = host_of(base, catalog)
    return [(tool, partial(_executor, tool, host)) for tool in loaded.tools]


def _executor(tool: Tool, host: Host) -> Executor:
    make = kind_of(tool).executor
    if make is None:
        raise ToolUnavailable(f"{tool.name}: tools of kind {tool.kind!r} cannot be in a folder")
    learned: dict[str, str] = {}
    return WithSecrets(tool, make(tool, replace(host, learn=learned.update)), learned)


def host_of(root: str, catalog: Catalog) -> Host:
    """Return the surroundings of tools in a toolset without a project; `root` is a real path."""

    def workspace() -> Workspace:
        from toolcrib.executors.workspace.workspace import Workspace

        return Workspace(root, f"{root}/.toolcrib")

    def egress() -> Egress:
        from toolcrib.executors.connections import OneRequestEgress

        return OneRequestEgress()

    def function(tool: Tool, reference: str) -> Executor:
        from toolcrib.executors.builtin.kind import BuiltinExecutor

        return BuiltinExecutor(replace(tool, config=BuiltinExec(reference.rpartition(".")[2])), catalog)

    return Host(
        catalog=catalog,
        invoke=catalog.invoke,
        workspace=workspace,
        egress=egress,
        function=function,
        admit=lambda *_: None,  # The call path checks the call of each step.
    )


class WithSecrets:
    """Gives a tool its secrets from the environment, and masks them in its results and errors."""

    def __init__(self, tool: Tool, inner: Executor, learned: Mapping[str, str] | None = None) -> None:
        self._tool = tool
        self._learned = {} if learned is None else learned
        self._inner = inner
        self.grace_s = getattr(inner, "grace_s", 0.0)

    async def run(self, call: Call, ctx: CallContext) -> Outcome | Any:
        """Run one attempt."""
        if not self._tool.permissions.secrets and not self._tool.auth:
            return await self._inner.run(call, ctx)
        secrets = resolve(self._tool.permissions, EnvironmentSecrets())
        ctx.secrets = secrets  # type: ignore[misc]
        rules = ctx.redactor.rules if isinstance(ctx.redactor, Redactor) else MaskRules()
        ctx.redactor = Redactor(secrets).with_rules(rules)  # type: ignore[misc]
        try:
            outcome = await self._inner.run(call, ctx)
        except ToolcribError as error:
            error.apply_mask(Redactor({**secrets, **self._learned}).redact)
            raise
        redact = Redactor({**secrets, **self._learned}).redact
        return outcome.masked(redact) if isinstance(outcome, Outcome) else redact(outcome)
