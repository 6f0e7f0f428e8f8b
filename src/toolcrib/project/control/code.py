"""The code of a call: what was approved is what runs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from toolcrib.core.context import Context
from toolcrib.core.controls import Proceed
from toolcrib.errors import ApprovalRequired, ConflictError
from toolcrib.guard import Pinned, Snapshots, ToolDigest
from toolcrib.manifest import kind_of
from toolcrib.project.integrity.lock import Pins
from toolcrib.spec import Result, Tool


class ApprovedCode:
    """Takes the digest of a tool for the decisions about a call, and has exactly that version run.

    `fingerprint` returns a tool's digest as it is now.
    """

    def __init__(self, fingerprint: Callable[[Tool], ToolDigest], snapshots: Snapshots, pins: Pins) -> None:
        self._fingerprint = fingerprint
        self._snapshots = snapshots
        self._pins = pins

    def digest(self, ctx: Context) -> ToolDigest:
        """Return the digest that every decision about this call is for, taken when first needed."""
        if ctx.digest is None:
            ctx.digest = self._fingerprint(ctx.bound.tool)
        return ctx.digest

    def require_pinned(self, ctx: Context) -> None:
        """Raise LockDrift if the tool of this call differs from its pin in the lock.

        Functions of the program and the tools that its user keeps in bundles are not pinned.
        """
        tool, source = ctx.bound.tool, ctx.bound.tool.source
        if (source is not None and not source.stored) or tool.kind == "mcp":
            self._pins.require(tool, lambda: self.digest(ctx))

    def require_approved(self, ctx: Context) -> None:
        """Raise ApprovalRequired if whoever approved this very call was shown another version of the tool."""
        if ctx.approved_digest is not None and self.digest(ctx).digest != ctx.approved_digest:
            raise _changed(ctx.tool, [])

    def require_same(self, ctx: Context) -> ToolDigest:
        """Return the digest of the tool as it is now; ApprovalRequired if the decisions were for another."""
        now = self._fingerprint(ctx.bound.tool)
        then = ctx.digest
        if then is not None and now.digest != then.digest:
            raise _changed(ctx.tool, now.changed_since(then.parts))
        return now

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path, after everything that waits."""

        def step(ctx: Context) -> Awaitable[Result]:
            if ctx.digest is not None:
                if kind_of(ctx.bound.tool).confined:
                    ctx.code = lambda: self._code(ctx)
                else:
                    self.require_same(ctx)
            return proceed(ctx)

        return step

    def _code(self, ctx: Context) -> Pinned:
        source = ctx.bound.tool.source
        digest = self.require_same(ctx)
        own = None if source is None or source.shared else os.path.realpath(os.path.dirname(source.path))
        try:
            return self._snapshots.of(digest, own)
        except ConflictError as error:
            raise ApprovalRequired(error.message, hint=error.hint, details=error.details) from None


def _changed(tool: str, parts: list[str]) -> ApprovalRequired:
    which = f": {', '.join(parts)}" if parts else ""
    return ApprovalRequired(
        f"{tool} has changed since it was checked, so nothing was run{which}",
        hint="Make the call again: it is then checked as it is now.",
        details={"changed": parts},
    )
