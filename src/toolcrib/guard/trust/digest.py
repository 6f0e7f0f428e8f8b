"""The digest of a tool: everything that decides what a call of it does, so that any change shows.

Manifest, files beside it, the program or module it runs, the lock of its virtual environment, and the real
paths of what it was granted. What a person approved is bound to it.
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
"""A file changed less than this before it was read may change again within one tick of the kernel's clock,
and its times would not tell: such a reading is not kept."""
_READS = 3
_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class ToolDigest:
    """One digest, and the parts that it is made of: by name, `files/run.sh`, `grants/read/src`, …"""

    digest: str
    parts: Mapping[str, str]

    def changed_since(self, earlier: Mapping[str, str]) -> list[str]:
        """Names of the parts that are not what they were, came, or are gone."""
        names = {*self.parts, *earlier}
        return sorted(name for name in names if self.parts.get(name) != earlier.get(name))


class _State(NamedTuple):
    """What the kernel tells of a file; the change time is set by no program."""

    device: int
    inode: int
    mode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> _State:
        return cls(
            found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        )


class Digests:
    """Digests of the tools of one project; asked again, only files whose state has changed are read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[_State, str]] = {}
        self._lock = Lock()

    def of(self, tool: Tool) -> ToolDigest:
        """The tool's digest as it would run now.

        Raises ConflictError where its manifest is no longer what was loaded, ToolUnavailable where a file
        cannot be read, or there are too many.
        """
        parts = dict(self._parts(tool))
        whole = hashlib.sha256()
        for name, value in sorted(parts.items()):
            whole.update(json.dumps([name, value]).encode() + b"\n")
        return ToolDigest(whole.hexdigest(), parts)

    def _parts(self, tool: Tool) -> Iterator[tuple[str, str]]:
        budget = _Budget(tool.name)
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
            for written in getattr(tool.permissions, access):
                yield f"grants/{access}/{written}", os.path.realpath(self._root / written)

    def _beside(self, tool: Tool, budget: _Budget) -> Iterator[tuple[str, str]]:
        """Every file of the tool's own folder: a link as its text, anything else by what it holds."""
        assert tool.source is not None
        manifest = Path(tool.source.path)
        loaded = hashlib.sha256(tool.source.raw).hexdigest()
        if not manifest.exists() or not self._file(os.path.realpath(manifest), budget).endswith(loaded):
            raise _stale(tool.name, manifest)
        if tool.source.shared:
            return
        for path in _files_below(manifest.parent, budget):
            yield f"files/{os.path.relpath(path, manifest.parent)}", self._file(path, budget)

    def _file(self, path: str, budget: _Budget) -> str:
        """What a path is: kind, whether it may be executed, and the digest of what it holds."""
        try:
            return self._read(path, budget)
        except OSError as error:
            raise ToolUnavailable(
                f"{budget.tool} cannot be checked: {path}: {error.strerror}",
                hint="It belongs to the tool, so this user must be able to read it.",
                details={"path": path},
            ) from None

    def _read(self, path: str, budget: _Budget) -> str:
        for _ in range(_READS):
            found = os.lstat(path)
            budget.spend(found.st_size, path)
            if not stat.S_ISREG(found.st_mode):
                return _special(path, found)
            state = _State.of(found)
            known = self._known.get(path)
            if known is not None and known[0] == state:
                return known[1]
            value = self._content(path, state)
            if value is not None:
                return value
        raise ToolUnavailable(
            f"{path} of {budget.tool} changes while it is read", hint="Wait until it is written."
        )

    def _content(self, path: str, state: _State) -> str | None:
        """Read a file that is in this state; None where it is not, or not to the end."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if _State.of(os.fstat(descriptor)) != state:
                return None
            began = time.time_ns()
            content = hashlib.sha256()
            size = 0
            while data := file.read(_CHUNK):
                content.update(data)
                size += len(data)
                if size > state.size:
                    return None
            if _State.of(os.fstat(descriptor)) != state or size != state.size:
                return None
        value = f"{'executable' if state.mode & 0o111 else 'file'} {content.hexdigest()}"
        if abs(began - state.changed) > _SETTLED_NS:
            with self._lock:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[path] = (state, value)
        return value


class _Budget:
    """How much may belong to one tool."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self._files = 0
        self._bytes = 0

    def spend(self, size: int, path: str) -> None:
        """Count one file; `ToolUnavailable` where it is one too many."""
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
    """The digest of one tool, asked for once. Raises as `Digests.of` does."""
    return Digests(root).of(tool).digest


def _files_below(folder: Path, budget: _Budget) -> Iterator[str]:
    """Paths of all that is no folder, sorted; empty folders do not count."""
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
    """A tool without a manifest: what it is called, takes, and calls."""
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
        f"the manifest of {name} has changed since it was loaded, so what it says now is not what would run",
        hint="Load the project again: restart this process.",
        details={"path": str(manifest)},
    )


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
