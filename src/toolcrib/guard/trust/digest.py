"""The digest of a tool: a change of anything that decides what a call of it does changes the digest.

It covers the manifest, the files beside it, the program or module it runs, the lock of its virtual
environment, and the real paths of its grants. Approvals and reviews are for one digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from toolcrib.errors import ConflictError, ToolUnavailable
from toolcrib.guard.trust.digest_parts import entrypoint_files, lock_files, module_files, script_files
from toolcrib.spec import CommandExec, FunctionExec, PythonExec, Tool

__all__ = ["Digests", "ToolDigest", "tool_digest"]

_MAX_FILES = 2_000
_MAX_BYTES = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_SETTLED_NS = 100_000_000
"""A file changed less than this before it was read could change again within one tick of the kernel's clock
without a new time, so its digest is not kept."""
_READS = 3
_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class ToolDigest:
    """One digest, and its parts by name: `files/run.sh`, `grants/read/src`, …"""

    digest: str
    parts: Mapping[str, str]

    def changed_since(self, earlier: Mapping[str, str]) -> list[str]:
        """Return the names of the parts that were changed, added or removed."""
        names = {*self.parts, *earlier}
        return sorted(name for name in names if self.parts.get(name) != earlier.get(name))


class _FileState(NamedTuple):
    """The kernel's facts about a file; no program can set the change time."""

    device: int
    inode: int
    mode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> _FileState:
        return cls(
            found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        )


class Digests:
    """The digests of one project's tools. Files whose state has not changed are not read again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[_FileState, str]] = {}
        self._lock = Lock()

    def of(self, tool: Tool) -> ToolDigest:
        """Return the digest of the tool as it would run now.

        Raises ConflictError if its manifest has changed since it was loaded, ToolUnavailable if a file cannot
        be read or there are too many.
        """
        parts = dict(self._parts(tool))
        whole = hashlib.sha256()
        for name, value in sorted(parts.items()):
            whole.update(json.dumps([name, value]).encode() + b"\n")
        return ToolDigest(whole.hexdigest(), parts)

    def _parts(self, tool: Tool) -> Iterator[tuple[str, str]]:
        budget = _FileBudget(tool.name)
        if tool.source is None:
            yield "definition", _sha(_definition(tool))
        else:
            yield "manifest", hashlib.sha256(tool.source.raw).hexdigest()
            yield from self._beside(tool, budget)
        config = tool.config
        if isinstance(config, CommandExec):
            for path in entrypoint_files(config.entrypoint, self._root):
                yield f"entrypoint/{path}", self._file(path, budget)
            for path in map(os.path.realpath, script_files(config, self._root)):
                yield f"script/{path}", self._file(path, budget)
        elif isinstance(config, PythonExec):
            own = None if tool.source is None else Path(tool.source.path).parent
            for path in map(os.path.realpath, module_files(config, self._root, own)):
                yield f"module/{path}", self._file(path, budget)
            for path in lock_files(config, self._root):
                yield f"venv/{path}", self._file(path, budget)
        for access in ("read", "write"):
            for path in getattr(tool.permissions, access):
                yield f"grants/{access}/{path}", os.path.realpath(self._root / path)

    def _beside(self, tool: Tool, budget: _FileBudget) -> Iterator[tuple[str, str]]:
        """Digest every file of the tool's own folder: a link by its text, any other by its content."""
        assert tool.source is not None
        manifest = Path(tool.source.path)
        loaded = hashlib.sha256(tool.source.raw).hexdigest()
        if not manifest.exists() or not self._file(os.path.realpath(manifest), budget).endswith(loaded):
            raise _stale(tool.name, manifest)
        if tool.source.shared:
            return
        for path in _files_below(manifest.parent, budget):
            yield f"files/{os.path.relpath(path, manifest.parent)}", self._file(path, budget)

    def _file(self, path: str, budget: _FileBudget) -> str:
        """Describe a path: its kind, executable or not, and the digest of its content."""
        try:
            return self._read(path, budget)
        except OSError as error:
            raise ToolUnavailable(
                f"{budget.tool} cannot be checked: {path}: {error.strerror}",
                hint="It is part of the tool, so this user must be able to read it.",
                details={"path": path},
            ) from None

    def _read(self, path: str, budget: _FileBudget) -> str:
        for _ in range(_READS):
            found = os.lstat(path)
            budget.spend(found.st_size, path)
            if not stat.S_ISREG(found.st_mode):
                return _special(path, found)
            state = _FileState.of(found)
            known = self._known.get(path)
            if known is not None and known[0] == state:
                return known[1]
            value = self._content(path, state)
            if value is not None:
                return value
        raise ToolUnavailable(
            f"{path} of {budget.tool} changes while it is read", hint="Try again when nothing writes it."
        )

    def _content(self, path: str, state: _FileState) -> str | None:
        """Digest a file that is in this state; None if it changes before the end."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if _FileState.of(os.fstat(descriptor)) != state:
                return None
            began = time.time_ns()
            content = hashlib.sha256()
            size = 0
            while data := file.read(_CHUNK):
                content.update(data)
                size += len(data)
                if size > state.size:
                    return None
            if _FileState.of(os.fstat(descriptor)) != state or size != state.size:
                return None
        value = f"{'executable' if state.mode & 0o111 else 'file'} {content.hexdigest()}"
        if abs(began - state.changed) > _SETTLED_NS:
            with self._lock:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[path] = (state, value)
        return value


class _FileBudget:
    """The number and size of files that one tool may have."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self._files = 0
        self._bytes = 0

    def spend(self, size: int, path: str) -> None:
        """Count one file; `ToolUnavailable` if there are too many."""
        self._files += 1
        self._bytes += size
        if self._files > _MAX_FILES or self._bytes > _MAX_BYTES:
            raise ToolUnavailable(
                f"{self.tool} has more files than can be checked: over {_MAX_FILES:,}, or"
                f" {_MAX_BYTES // 1024**2} MiB",
                hint="Keep only the tool's program and assets beside its manifest; grant data as a folder.",
                details={"path": path},
            )


def tool_digest(tool: Tool, root: Path) -> str:
    """Return the digest of one tool, without a cache. Raises as `Digests.of` does."""
    return Digests(root).of(tool).digest


def _files_below(folder: Path, budget: _FileBudget) -> Iterator[str]:
    """Yield the paths of everything that is not a folder; empty folders do not count."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise ToolUnavailable(
                f"{budget.tool} cannot be checked: {error.filename}: {error.strerror}",
                hint="This user must be able to read the tool's folder.",
                details={"path": str(error.filename)},
            ) from None
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                budget.spend(0, entry.path)
                waiting.append(entry.path)
            else:
                yield entry.path


def _special(path: str, found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return f"link {_sha(os.fsencode(os.readlink(path)))}"  # noqa: PTH115 - the text as it stands
    return f"special {stat.S_IFMT(found.st_mode):o} {found.st_rdev}"


def _definition(tool: Tool) -> bytes:
    """Describe a tool without a manifest: its name, inputs and function."""
    from toolcrib.schema import to_json_text

    config = tool.config
    definition = {
        "name": tool.name,
        "kind": tool.kind,
        "schema": tool.input_schema,
        "reference": config.reference if isinstance(config, FunctionExec) else repr(config),
        "permissions": tool.permissions.as_json(),
    }
    return to_json_text(definition)


def _stale(name: str, manifest: Path) -> ConflictError:
    return ConflictError(
        f"the manifest of {name} has changed since it was loaded, so another version of it would run",
        hint="Load the project again: restart this process.",
        details={"path": str(manifest)},
    )


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
