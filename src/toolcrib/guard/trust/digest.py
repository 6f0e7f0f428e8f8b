"""The digest of a tool: a change of any file of its code changes the digest (see `manifest.code`).

It is the SHA-256 of the sorted parts, one a line: the manifest, each file by its path with the SHA-256 of its
content and its executable bit, or the text of a link, and the real paths of the grants. Paths in the project
begin at its root, so the digest of a tool is the same on every machine that has the project.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from threading import Lock
from types import MappingProxyType

from toolcrib.errors import ConflictError, ToolUnavailable
from toolcrib.manifest.code import CodeFile, code_of, code_of_start, own_folder
from toolcrib.manifest.kinds import Start
from toolcrib.sandbox.files.paths import SETTLED_NS, Paths, within
from toolcrib.schema import to_json_text
from toolcrib.spec import Tool
from toolcrib.spec.record import record
from toolcrib.state.private import open_plain

_CHUNK = 1024 * 1024
_READS = 3
_KEPT = 20_000
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
    """Each of these files with the path by which it counts in `parts`."""

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


class Digests:
    """The digests of one project's tools. A file is read once, and again only when it has changed.

    `written` returns the paths that tools of the project may write, as the manifests say them.
    """

    def __init__(self, root: Path, written: Callable[[], Iterable[str]] = tuple) -> None:
        self._root, self._written = str(root), written
        self._known: dict[str, tuple[_FileState, str]] = {}
        self._lock = Lock()
        self._many: tuple[Paths, Collection[str], dict[str, tuple[Tool, ToolDigest]]] = Paths(), (), {}

    def of(self, tool: Tool, paths: Paths | None = None) -> ToolDigest:
        """Return the digest of the tool as it would run now. `paths` keeps looks at paths for many tools.

        Raises ConflictError if its manifest has changed since it was loaded, ToolUnavailable if a file cannot
        be read or there are too many.
        """
        paths, source, parts = paths or Paths(), tool.source, dict[str, str]()
        own = own_folder(tool, paths)
        if source is None:
            parts["definition"] = _sha(_definition(tool))
        else:
            parts["manifest"] = hashlib.sha256(source.raw).hexdigest()
            if tool.translations:  # Those of a native manifest are not in it.
                parts["translations"] = _sha(to_json_text(tool.translations))
            self._require_loaded(tool, parts["manifest"], paths)
        for access in ("read", "write"):
            for path in getattr(tool.permissions, access):
                parts[f"grants/{access}/{path}"] = self._short(paths.real(os.path.join(self._root, path)))
        return self._digest(tool.name, self._code_of(tool, paths), parts, paths, own)

    def of_many(self) -> Callable[[Tool], ToolDigest]:
        """Return `of` for many tools at one time, and for one thread.

        Of a tool that it was asked about before it only looks at the files again, unless a path has changed.
        """
        written = {*self._written()}
        if self._many[1] != written or not self._many[0].unchanged():
            self._many = Paths(), written, {}
        paths, _, known = self._many

        def of(tool: Tool) -> ToolDigest:
            last = known.get(tool.name)
            if last is None or last[0] is not tool or not self._is_same(tool, last[1], paths):
                known[tool.name] = last = tool, self.of(tool, paths)
            return last[1]

        return of

    def _is_same(self, tool: Tool, digest: ToolDigest, paths: Paths) -> bool:
        """Return True if the files of a digest are as they were. Raises as `of` does."""
        if "manifest" in digest.parts:
            self._require_loaded(tool, digest.parts["manifest"], paths)
        return all(self._file(path, tool.name) == value for path, value in digest.files.items())

    def _code_of(self, tool: Tool, paths: Paths) -> list[CodeFile]:
        """Return the files that count: one that is no script is data where a tool may write its folder.

        The root is no such folder: a tool that may write all of the project may write what others run, too.
        """
        found = code_of(tool, self._root, paths)
        if not any(one.kind == "file" for one in found):
            return found
        folders = {paths.real(os.path.join(self._root, path)) for path in self._written()} - {self._root}
        return [one for one in found if one.kind != "file" or not within(one.path, *folders)]

    def of_start(self, name: str, start: Start, write: Iterable[str]) -> ToolDigest:
        """Return the digest of what the settings start; `name` is for messages, `write` what it may write."""
        paths = Paths()
        return self._digest(name, code_of_start(name, start, self._root, write, paths), {}, paths)

    def _digest(
        self, tool: str, code: Iterable[CodeFile], parts: dict[str, str], paths: Paths, own: str = ""
    ) -> ToolDigest:
        files, names = {}, {}
        for kind, path, _ in code:
            files[path] = self._file(path, tool)
            stable = _stable(path, paths)
            names[path] = named = self._short(stable)
            part = os.path.relpath(stable, _stable(own, paths)) if kind == "files" else named
            # `..data` is the link of a mounted ConfigMap, which leads to another folder each time.
            if not path.endswith("/..data"):
                parts[f"{kind}/{part}"] = files[path]
        whole = hashlib.sha256()
        for part, value in sorted(parts.items()):
            # As JSON, one line each: no name can contain the border between two parts and so imitate others.
            whole.update(json.dumps([part, value]).encode() + b"\n")
        return ToolDigest(whole.hexdigest(), parts, files, names)

    def _short(self, path: str) -> str:
        return os.path.relpath(path, self._root) if within(path, self._root) else path

    def _require_loaded(self, tool: Tool, loaded: str, paths: Paths) -> None:
        assert tool.source is not None
        if tool.source.stored or tool.source.shipped:  # What was read is what runs.
            return
        manifest = os.path.abspath(tool.source.path)
        if not paths.leads_to(manifest) or not self._file(paths.real(manifest), tool.name).endswith(loaded):
            raise ConflictError(
                f"the manifest of {tool.name} has changed since it was loaded, so another version of it would"
                " run",
                hint="Load the project again: restart this process.",
                details={"path": manifest},
            )

    def _file(self, path: str, tool: str) -> str:
        """Describe a path: its kind, executable or not, and the digest of its content."""
        try:
            for _ in range(_READS):
                # State, content, state again: a file that changes meanwhile is read once more.
                found = os.lstat(path)
                state, known = _state_of(found), self._known.get(path)
                if not stat.S_ISREG(found.st_mode):
                    return _special(path, found)
                if known is not None and known[0] == state:
                    return known[1]
                began = time.time_ns()
                if (value := _content(path, found)) is not None:
                    # Changed in this tick of the clock: another change could leave the same state, so it is
                    # not remembered.
                    if abs(began - found.st_ctime_ns) > SETTLED_NS:
                        self._remember(path, state, value)
                    return value
        except OSError as error:
            raise ToolUnavailable(
                f"{tool} cannot be checked: {path}: {error.strerror}",
                hint="It is part of the tool, so this user must be able to read it.",
                details={"path": path},
            ) from None
        raise ToolUnavailable(
            f"{path} of {tool} changes while it is read", hint="Try again when nothing writes it."
        )

    def _remember(self, path: str, state: _FileState, value: str) -> None:
        with self._lock:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[path] = (state, value)


def _content(path: str, found: os.stat_result) -> str | None:
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


def _stable(path: str, paths: Paths) -> str:
    """Return the path by which a file counts.

    In a mounted ConfigMap or Secret of Kubernetes that goes through `..data`: the folder that this link leads
    to has another name after each mount.
    """

    def version(part: re.Match[str]) -> str:
        return "..data" if paths.look(f"{path[: part.start()]}..data").text == part[0] else part[0]

    return _VERSION.sub(version, path)


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


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
