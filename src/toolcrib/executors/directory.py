"""The tools of a folder for a toolset that stands alone: read, checked, and each with its executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolcrib.errors import ToolcribError, UsageError
from toolcrib.executors.builtin import BuiltinExecutor
from toolcrib.guard import EnvironmentSecrets, Redactor, resolve
from toolcrib.manifest import FOLDERS, check_tool, failure, load_directory
from toolcrib.spec import (
    BuiltinExec,
    Call,
    CallContext,
    Catalog,
    Executor,
    FunctionExec,
    Network,
    Outcome,
    Permissions,
    Tool,
)

__all__ = ["open_directory"]

Made = tuple[Tool, Callable[[], Executor]]


def open_directory(
    folder: str | os.PathLike[str],
    catalog: Catalog,
    *,
    dialect: str = "vega",
    root: str | os.PathLike[str] | None = None,
    read: Sequence[str] = (".",),
    write: Sequence[str] = (),
    network: Any = False,
) -> list[Made]:
    """Every tool of a folder and what makes its executor.

    `dialect` is its format: vega, flexigpt, toolbox, sympozium or skill. `root` (default: the working folder)
    is where relative paths begin; `read`, `write` and `network`, as in a manifest, are what programs and
    files may touch. ManifestError with every mistake there is; UsageError for a format that is not known.
    """
    if dialect not in FOLDERS:
        raise UsageError(f"there is no format {dialect!r} of folders", hint=f"Known: {', '.join(FOLDERS)}.")
    granted = Permissions(Network.parse(network), tuple(read), tuple(write))
    loaded = load_directory(Path(folder).absolute(), granted, dialect)
    found = [*loaded.diagnostics, *(finding for tool in loaded.tools for finding in check_tool(tool))]
    errors = [finding for finding in found if finding.is_error]
    if errors:
        raise failure(errors)
    shared = _Shared(os.path.realpath(root if root is not None else Path.cwd()), catalog)
    return [(tool, _maker(tool, shared)) for tool in loaded.tools]


def _maker(tool: Tool, shared: _Shared) -> Callable[[], Executor]:
    return lambda: _Sealed(tool, shared.executor(tool))


@dataclass(slots=True)
class _Shared:
    """What the executors of one folder share."""

    root: str
    catalog: Catalog

    def executor(self, tool: Tool) -> Executor:
        from toolcrib.executors.workspace.workspace import Workspace

        if isinstance(tool.config, FunctionExec):
            name = tool.config.reference.rpartition(".")[2]
            return BuiltinExecutor(replace(tool, config=BuiltinExec(name)), self.catalog)
        if tool.kind == "builtin":
            return BuiltinExecutor(tool, self.catalog)
        if tool.kind == "http":
            return _Request(tool)
        workspace = Workspace(self.root, f"{self.root}/.toolcrib")
        if tool.kind == "file":
            from toolcrib.executors.file import FileExecutor

            return FileExecutor(tool, workspace)
        if tool.kind == "sql":
            from toolcrib.executors.process.sql import SqlExecutor

            return SqlExecutor(tool, workspace)
        from toolcrib.executors.process.command import CommandExecutor

        return CommandExecutor(tool, workspace)


class _Request:
    """An HTTP tool with a connection of its own for each call, so that there is nothing to close."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """One attempt."""
        from toolcrib.egress import Egress
        from toolcrib.executors.http.executor import HttpExecutor

        async with Egress() as egress:
            return await HttpExecutor(self._tool, egress).run(call, ctx)


class _Sealed:
    """Gives a tool its secrets from the environment, and masks them in all that comes back."""

    def __init__(self, tool: Tool, inner: Executor) -> None:
        self._tool = tool
        self._inner = inner
        self.grace_s = getattr(inner, "grace_s", 0.0)

    async def run(self, call: Call, ctx: CallContext) -> Outcome | Any:
        """One attempt."""
        if not self._tool.permissions.secrets:
            return await self._inner.run(call, ctx)
        secrets = resolve(self._tool.permissions, EnvironmentSecrets())
        ctx.secrets = secrets  # type: ignore[misc]
        redact = Redactor(secrets).redact
        try:
            outcome = await self._inner.run(call, ctx)
        except ToolcribError as error:
            error.message = redact(error.message)
            error.args = (error.message,)
            error.hint, error.details = redact(error.hint), redact(error.details)
            raise
        if not isinstance(outcome, Outcome):
            return redact(outcome)
        return Outcome(redact(outcome.value), tuple(redact(list(outcome.warnings))), redact(outcome.details))
