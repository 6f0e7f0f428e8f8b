"""The code of a call: what was approved, and pinned in `toolcrib.lock`, is what runs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from toolcrib.core.context import Context
from toolcrib.core.controls import Proceed
from toolcrib.errors import ApprovalRequired, ConflictError, LockDrift
from toolcrib.guard import Pinned, Snapshots, ToolDigest, changed_parts
from toolcrib.manifest import kind_of
from toolcrib.project.integrity.lock import FILE, Lock, Pin, listed, pin_of, read_lock, unusable
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
                # Confined code runs from a copy of what was hashed. All else can only be looked at once more.
                if kind_of(ctx.bound.tool).confined:
                    ctx.code = lambda: self._code(ctx)
                else:
                    self.require_same(ctx)
            return proceed(ctx)

        return step

    def _code(self, ctx: Context) -> Pinned:
        source = ctx.bound.tool.source
        digest = self.require_same(ctx)
        # Beside a file that holds many tools lie files that are not part of this one, so no folder is copied.
        own = None if source is None or source.shared else os.path.realpath(os.path.dirname(source.path))
        try:
            return self._snapshots.of(digest, own)
        # A file changed between digest and copy. To the caller that is the same as a change before.
        except ConflictError as error:
            raise ApprovalRequired(error.message, hint=error.hint, details=error.details) from None


def _changed(tool: str, parts: list[str]) -> ApprovalRequired:
    which = f": {', '.join(parts)}" if parts else ""
    return ApprovalRequired(
        f"{tool} has changed since it was checked, so nothing was run{which}",
        hint="Make the call again: it is then checked as it is now.",
        details={"changed": parts},
    )


class Pins:
    """Compares the tools of one project with its lock.

    `digest_of` returns a tool's digest as it is now; `started` is the code that the settings start.
    """

    def __init__(
        self, root: Path, digest_of: Callable[[Tool], ToolDigest], started: Mapping[str, str] | None = None
    ) -> None:
        self.path = root / FILE
        self._started = started or {}
        self._root = root
        self._digest_of = digest_of
        self._read: tuple[tuple[int, ...], Lock] | None = None
        self.remote: Callable[[], Mapping[str, Mapping[str, str]]] = dict
        """Returns by bundle the digest of each tool's definition from a remote server."""

    def require(self, tool: Tool, digest: Callable[[], ToolDigest] | None = None) -> None:
        """Raise LockDrift if there is a lock and the tool, with this digest or as it is now, differs from its
        pin.

        Tools without a manifest, which a program has registered itself, are not pinned.
        """
        lock = self._lock()
        if lock is not None and (changed := self._drift(tool, lock, digest)):
            raise LockDrift(
                f"{tool.name} is not what {FILE} pins: {listed(changed)}",
                hint="A person has to look at the change (toolcrib lock --check) before the tool runs.",
                details={"changed": list(changed)},
            )

    def holds(self, tool: Tool) -> bool:
        """Return True if there is a lock and the tool is as it pins it."""
        lock = self._lock()
        return lock is not None and not self._drift(tool, lock)

    def _drift(
        self, tool: Tool, lock: Lock, digest: Callable[[], ToolDigest] | None = None
    ) -> tuple[str, ...]:
        """Return the parts of a tool that differ from its pin."""
        defined = self.remote().get(tool.bundle) if tool.source is None else None
        if defined is not None:
            pinned, now = lock.bundles.get(tool.bundle, {}).get(tool.name), defined.get(tool.name)
            return () if pinned == now is not None else ("definition",)
        if tool.source is None:
            return ()
        pin = lock.tools.get(tool.name)
        if pin is None:
            return ("not in the lock",)
        found = self._digest_of(tool) if digest is None else digest()
        return changed_parts(pin.parts, pin_of(found, self._root).parts)

    def now(self, tools: Iterable[Tool]) -> Lock:
        """Return the lock of these tools as they are now, and of the code that the settings start.

        Only tools of the project's manifests are pinned.
        """
        pins = {tool.name: self.pin(tool) for tool in tools if tool.source is not None and not tool.is_stored}
        return Lock(pins, self.remote(), self._started)

    def pin(self, tool: Tool) -> Pin:
        """Return the pin of a tool as it is now."""
        return pin_of(self._digest_of(tool), self._root)

    def _lock(self) -> Lock | None:
        """Return the lock as it is now; it is read again only if the file has changed."""
        try:
            # Looked at before the file is read: a change between the two is seen at the next call.
            found = os.lstat(self.path)
        except FileNotFoundError:
            self._read = None
            return None
        except OSError as error:
            raise unusable(self.path, error.strerror) from None
        # A link in place of the file has an inode of its own, and `read_lock` refuses it.
        state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if self._read is None or self._read[0] != state:
            lock = read_lock(self.path)
            if lock is None:
                return None
            self._read = (state, lock)
        return self._read[1]
