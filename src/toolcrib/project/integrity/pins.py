"""Compares the tools of a project with its lock: one that differs from its pin does not run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from toolcrib.errors import LockDrift
from toolcrib.guard import ToolDigest, changed_parts
from toolcrib.project.integrity.lock import FILE, Lock, listed, pin_of, read_lock, unusable
from toolcrib.spec import Tool


class Pins:
    """Compares the tools of one project with its lock.

    `digest_of` returns a tool's digest as it is now; `started` is the code that the settings start.
    """

    def __init__(
        self, root: Path, digest_of: Callable[[Tool], ToolDigest], started: Mapping[str, str] | None = None
    ) -> None:
        self.path, self._root = root / FILE, root
        self._digest_of, self._started = digest_of, started or {}
        self._read: tuple[tuple[int, ...], Lock] | None = None
        self.remote: Callable[[], Mapping[str, Mapping[str, str]]] = dict
        """Returns by bundle the digest of each tool's definition from a remote server."""
        self.hosts: Callable[[], Mapping[str, str]] = dict
        """Returns by bundle the hosts that a person has allowed a server, as JSON."""

    def require(self, tool: Tool, digest: Callable[[], ToolDigest] | None = None) -> None:
        """Raise LockDrift if there is a lock and its pin is not the tool, with this digest or as it is now.

        Tools without a manifest, which a program has registered itself, are not pinned.
        """
        lock = self._lock()
        if lock is not None and (changed := self._drift(tool, lock, digest)):
            raise LockDrift(
                f"{tool.name} is not what {FILE} pins: {listed(changed)}",
                hint="A person accepts the change (toolcrib trust), then locks it: toolcrib trust --lock",
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
            if pinned is None or pinned != now:
                return ("definition",)
            return () if lock.hosts.get(tool.bundle) == self.hosts().get(tool.bundle) else ("hosts",)
        if tool.source is None:
            return ()
        pin = lock.tools.get(tool.name)
        if pin is None:
            return ("not in the lock",)
        found = self._digest_of(tool) if digest is None else digest()
        return changed_parts(pin, pin_of(found, self._root))

    def now(self, tools: Iterable[Tool], settings: str) -> Lock:
        """Return the lock of these tools as they are now, and of the code that the settings start.

        `settings` is the digest of the settings.

        Only tools of the project's manifests are pinned.
        """
        pinned = (tool for tool in tools if tool.source is not None and not tool.is_stored)
        pins = {tool.name: pin_of(self._digest_of(tool), self._root) for tool in pinned}
        return Lock(pins, self.remote(), self.hosts(), self._started, settings)

    def _lock(self) -> Lock | None:
        """Return the lock as it is now; it is read again only if the file has changed."""
        try:
            # Looked at before the file is read: a change between the two is seen at the next call.
            found = os.lstat(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(self.path, error.strerror) from None
        # A link in place of the file has an inode of its own, and `read_lock` refuses it.
        state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if self._read is None or self._read[0] != state:
            # None if it is gone by now. It may come back in the same state, so that is not kept.
            lock = read_lock(self.path)
            self._read = None if lock is None else (state, lock)
        return None if self._read is None else self._read[1]
