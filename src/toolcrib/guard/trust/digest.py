"""The digest of a tool: a change of anything that decides what a call of it does changes the digest.

It covers the manifest, the files beside it, the program or module it runs, the lock of its virtual
environment, and the real paths of its grants. Approvals and reviews are for one digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from threading import Lock
from types import MappingProxyType

from toolcrib.errors import ConflictError, ToolUnavailable
from toolcrib.manifest.kinds import CodeFile, kind_of
from toolcrib.sandbox.files.paths import SETTLED_NS, Paths, within
from toolcrib.schema import to_json_text
from toolcrib.spec import Tool
from toolcrib.spec.record import record
from toolcrib.state.private import open_plain

_MAX_FILES = 2_000
_MAX_BYTES = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_READS = 3
_KEPT = 20_000
_KEPT_TOOLS = 4_096
# A folder such as `/..2026_01_31/`, as Kubernetes makes one for each version of a ConfigMap.
_VERSION = re.compile(r"(?<=/)\.\.[^/]+(?=/)")


@record
class ToolDigest:
    """One digest, and its parts by name: `files/run.sh`, `grants/read/src`, …"""

    digest: str
    parts: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    """Each file of it, as a real path, with its kind and content: `executable SHA256`, `link SHA256`, …"""
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    """The path by which a file counts in `parts`, where that is not its real path."""

    def changed_since(self, earlier: Mapping[str, str]) -> list[str]:
        """Return the names of the parts that were changed, added or removed."""
        return list(changed_parts(earlier, self.parts))


def changed_parts(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the parts that were changed, added or removed, sorted."""
    return tuple(sorted(name for name in {*then, *now} if then.get(name) != now.get(name)))


_FileState = tuple[int, ...]


def _state_of(found: os.stat_result) -> _FileState:
    """Return what the kernel says of a file; no program can set the last, the time of its last change."""
    times = found.st_mtime_ns, found.st_ctime_ns
    return found.st_dev, found.st_ino, found.st_mode, found.st_size, *times


class _Looks:
    """Everything that one digest follows from: looks at paths, and the files with their states."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.paths = Paths()
        self.files: dict[str, str] = {}
        self.states: dict[str, _FileState | None] = {}
        """None: the file may have changed again after it was read, within one tick of the kernel's clock."""
        self.names: dict[str, str] = {}
        self._files = self._bytes = 0

    def spend(self, size: int, path: str) -> None:
        """Count one file or folder; `ToolUnavailable` if there are too many."""
        self._files += 1
        self._bytes += size
        if self._files > _MAX_FILES or self._bytes > _MAX_BYTES:
            raise ToolUnavailable(
                f"{self.tool} has more files than can be checked: over {_MAX_FILES:,}, or"
                f" {_MAX_BYTES // 1024**2} MiB",
                hint="Keep only the tool's program and assets beside its manifest; grant data as a folder.",
                details={"path": path},
            )

    def name(self, path: str) -> str:
        """Return the path by which a file counts.

        In a mounted ConfigMap or Secret of Kubernetes that goes through `..data`: the folder that this link
        leads to has another name after each mount.
        """
        named = _VERSION.sub(lambda part: self._version(path[: part.start()], part[0]), path)
        if named != path:
            self.names[path] = named
        return named

    def _version(self, above: str, name: str) -> str:
        is_current = self.paths.look(f"{above}..data").text == name
        return "..data" if is_current and self.paths.look(above + name).kind == stat.S_IFDIR else name

    def unchanged(self) -> bool:
        """Return True if a digest taken now would be the same."""
        try:
            same = all(
                state is not None and _state_of(os.lstat(path)) == state
                for path, state in self.states.items()
            )
        except OSError:
            return False
        return same and self.paths.unchanged()


class Digests:
    """The digests of one project's tools. What has not changed is only looked at, never read again."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._known: dict[str, tuple[_FileState, str]] = {}
        self._kept: OrderedDict[int, tuple[Tool, _Looks, ToolDigest]] = OrderedDict()
        self._lock = Lock()

    def of(self, tool: Tool) -> ToolDigest:
        """Return the digest of the tool as it would run now.

        Raises ConflictError if its manifest has changed since it was loaded, ToolUnavailable if a file cannot
        be read or there are too many.
        """
        with self._lock:
            # By identity: the tool is kept with its digest, so no other can get its id.
            kept = self._kept.get(id(tool))
        if kept is not None and kept[0] is tool and kept[1].unchanged():
            return kept[2]
        looks = _Looks(tool.name)
        found = _digest(dict(self._parts(tool, looks)), looks)
        with self._lock:
            self._kept[id(tool)] = tool, looks, found
            if len(self._kept) > _KEPT_TOOLS:
                self._kept.popitem(last=False)
        return found

    def of_code(self, name: str, files: Callable[[Paths], Iterable[CodeFile]]) -> ToolDigest:
        """Return the digest of what a command line of the settings starts; `name` is for messages."""
        looks = _Looks(name)
        parts = code_parts(files(looks.paths), self._root, looks.paths)
        return _digest({f"{part}/{looks.name(path)}": self._file(path, looks) for part, path in parts}, looks)

    def _parts(self, tool: Tool, looks: _Looks) -> Iterator[tuple[str, str]]:
        if tool.source is None:
            yield "definition", _sha(_definition(tool))
        else:
            yield "manifest", hashlib.sha256(tool.source.raw).hexdigest()
            if not (tool.source.stored or tool.source.shipped):  # What was read is what runs.
                yield from self._beside(tool, looks)
        for part, path in code_of(tool, self._root, looks.paths):
            yield f"{part}/{looks.name(path)}", self._file(path, looks)
        for access in ("read", "write"):
            for path in getattr(tool.permissions, access):
                yield f"grants/{access}/{path}", looks.paths.real(os.path.join(self._root, path))

    def _beside(self, tool: Tool, looks: _Looks) -> Iterator[tuple[str, str]]:
        """Digest every file of the tool's own folder: a link by its text, any other by its content."""
        assert tool.source is not None
        manifest = os.path.abspath(tool.source.path)
        loaded = hashlib.sha256(tool.source.raw).hexdigest()
        real = looks.paths.real(manifest)
        if not looks.paths.leads_to(manifest) or not self._file(real, looks).endswith(loaded):
            raise _stale(tool.name, manifest)
        if tool.source.shared:
            return
        folder = looks.paths.real(os.path.dirname(manifest))
        for path in _files_below(folder, looks):
            content, real = self._file(path, looks), looks.paths.real(path)
            if real == path or looks.name(f"{real}/") != f"{path}/":  # `..data` itself is in those names.
                yield f"files/{os.path.relpath(looks.name(path), looks.name(folder))}", content

    def _file(self, path: str, looks: _Looks) -> str:
        """Describe a path: its kind, executable or not, and the digest of its content."""
        try:
            if path not in looks.files:
                looks.files[path] = self._read(path, looks)
            return looks.files[path]
        except OSError as error:
            raise ToolUnavailable(
                f"{looks.tool} cannot be checked: {path}: {error.strerror}",
                hint="It is part of the tool, so this user must be able to read it.",
                details={"path": path},
            ) from None

    def _read(self, path: str, looks: _Looks) -> str:
        for _ in range(_READS):
            # State, content, state again: a file that changes meanwhile is read once more.
            found = os.lstat(path)
            looks.spend(found.st_size, path)
            looks.states[path] = state = _state_of(found)
            if not stat.S_ISREG(found.st_mode):
                return _special(path, found)
            known = self._known.get(path)
            if known is not None and known[0] == state:
                return known[1]
            began = time.time_ns()
            value = self._content(path, found)
            if value is not None:
                # Changed in this tick of the clock: another change could leave the same state, so it is not
                # remembered.
                if abs(began - found.st_ctime_ns) <= SETTLED_NS:
                    looks.states[path] = None
                else:
                    self._remember(path, state, value)
                return value
        raise ToolUnavailable(
            f"{path} of {looks.tool} changes while it is read",
            hint="Try again when nothing writes it.",
        )

    def _content(self, path: str, found: os.stat_result) -> str | None:
        """Digest a file that is in this state; None if it changes before the end."""
        state = _state_of(found)
        with open_plain(path) as file:
            if _state_of(os.fstat(file.fileno())) != state:
                return None
            content = hashlib.sha256()
            size = 0
            while data := file.read(_CHUNK):
                content.update(data)
                size += len(data)
                # A file that grows while it is read could keep this loop busy forever.
                if size > found.st_size:
                    return None
            if _state_of(os.fstat(file.fileno())) != state or size != found.st_size:
                return None
        return f"{'executable' if found.st_mode & 0o111 else 'file'} {content.hexdigest()}"

    def _remember(self, path: str, state: _FileState, value: str) -> None:
        with self._lock:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[path] = (state, value)


def _files_below(folder: str, looks: _Looks) -> Iterator[str]:
    """Yield the paths of everything that is not a folder; empty folders do not count."""
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        looks.spend(0, here)
        if not os.access(here, os.R_OK | os.X_OK):
            raise ToolUnavailable(
                f"{looks.tool} cannot be checked: {here}: this user may not list it",
                hint="This user must be able to read the tool's folder.",
                details={"path": here},
            )
        for name in looks.paths.names(here):
            path = f"{here}/{name}"
            if looks.paths.look(path).kind == stat.S_IFDIR:
                waiting.append(path)
            else:
                yield path


def _digest(parts: dict[str, str], looks: _Looks) -> ToolDigest:
    whole = hashlib.sha256()
    for name, value in sorted(parts.items()):
        # As JSON, one line each: no name can contain the border between two parts and so imitate others.
        whole.update(json.dumps([name, value]).encode() + b"\n")
    return ToolDigest(whole.hexdigest(), parts, looks.files, looks.names)


def _special(path: str, found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return f"link {_sha(os.fsencode(os.readlink(path)))}"
    return f"special {stat.S_IFMT(found.st_mode):o} {found.st_rdev}"


def _definition(tool: Tool) -> bytes:
    """Describe a tool without a manifest: its name, inputs and function."""
    config = tool.config
    definition = {
        "name": tool.name,
        "kind": tool.kind,
        "schema": tool.input_schema,
        "reference": getattr(config, "reference", None) or repr(config),
        "permissions": tool.permissions.as_json(),
    }
    return to_json_text(definition)


def _stale(name: str, manifest: str) -> ConflictError:
    return ConflictError(
        f"the manifest of {name} has changed since it was loaded, so another version of it would run",
        hint="Load the project again: restart this process.",
        details={"path": manifest},
    )


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def code_of(tool: Tool, root: str, paths: Paths) -> Iterator[tuple[str, str]]:
    """Yield part and real path of each file outside its own folder that decides what a tool runs."""
    return code_parts(kind_of(tool).code(tool, root, paths), root, paths)


def code_parts(files: Iterable[CodeFile], root: str, paths: Paths) -> Iterator[tuple[str, str]]:
    """Yield part and real path of each of these files; of a virtual environment those that define it."""
    for part, path, _ in files:
        real = paths.real(os.path.join(root, path))
        if stat.S_ISREG(paths.leads_to(real)):
            yield part, real
        elif part == "venv":
            yield from ((part, one) for one in _environment(path, real, paths))
        elif paths.is_source(written := os.path.join(root, path)) and not within(written, "/dev", "/proc"):
            # A pipe, or a link to one. Those of the system are others for each process.
            yield part, written
        # Any other file is missing: adding it changes the digest.


def _environment(written: str, folder: str, paths: Paths) -> Iterator[str]:
    """Yield the files that define the packages of a virtual environment.

    They are its settings, each package's list of files with their digests (RECORD), and the files that Python
    runs when it starts (`.pth`).
    """
    settings = f"{folder}/pyvenv.cfg"
    if not stat.S_ISREG(paths.leads_to(settings)):
        raise ToolUnavailable(
            f"the virtual environment {written!r} does not exist ({folder})",
            hint=f"Create it: python3 -m venv {written}",
            details={"path": folder},
        )
    yield settings
    yield paths.real(f"{folder}/bin/python")
    for site in sorted(_sites(folder, paths)):
        for name in paths.names(site):
            path = f"{site}/{name}"
            if name.endswith(".dist-info"):
                lists = (f"{path}/{one}" for one in ("RECORD", "METADATA"))
                yield next((one for one in lists if paths.exists(one)), path)
            elif name.endswith((".pth", ".py", ".egg-link")):
                yield path


def _sites(folder: str, paths: Paths) -> set[str]:
    """Return the real folders of installed packages."""
    libraries = [f"{folder}/{name}" for name in paths.names(folder) if name.startswith("lib")]
    versions = [
        f"{lib}/{name}" for lib in libraries for name in paths.names(lib) if name.startswith("python")
    ]
    sites = (f"{version}/site-packages" for version in versions)
    return {paths.real(site) for site in sites if paths.is_folder(site)}
