"""Kind `file`: read or write one file beneath the granted folders, opened by openat2 in this process."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import InvalidInput
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.executors.output import decoded, uncut
from toolcrib.executors.workspace.grants import FileGrants, within
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Root, Roots
from toolcrib.sandbox.files.paths import PathCache, Paths
from toolcrib.spec import Call, CallContext, FileExec, Outcome, Tool
from toolcrib.template import Namespaces, Values, parse, parse_conditional, render_path, render_value

__all__ = ["FileExecutor"]

MAX_READ = 100_000
"""Bytes read of a file unless the tool's limits say otherwise."""


class _Granted(NamedTuple):
    """The grants of the tool, as one call resolved them."""

    grants: FileGrants
    prefixes: list[tuple[str, str]]
    """Each grant as an absolute path, as it is written, and its real path."""
    hidden: tuple[str, ...]
    protected: tuple[str, ...]


class FileExecutor:
    """Reads or writes one file. Relative paths start at the project root; all must lie inside a grant."""

    def __init__(self, tool: Tool, workspace: Workspace) -> None:
        assert isinstance(tool.config, FileExec)
        names = Namespaces.of(tool)
        self._tool = tool
        self._config = tool.config
        self._workspace = workspace
        self._path = parse_conditional(tool.config.path, names)
        self._content = parse(tool.config.content, names)
        self._granted: PathCache[_Granted] = PathCache(1)

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Read or write the file, in a thread."""
        values = Values.of(self._tool, call, ctx)
        workspace, action = self._workspace, self._config.action
        asked = str(Path(workspace.root, render_path(self._path, values)))
        granted = self._granted.get(None, self._resolve)
        if workspace.watch is not None:
            workspace.watch.touch(workspace, self._tool, granted.grants, action, asked)
        path, roots = self._place(asked, granted), self._roots(asked, granted)
        if action == "read":
            outcome: Outcome = await run_in_thread(lambda: self._read(path, roots, ctx))
        else:
            content = render_value(self._content, values)
            outcome = await run_in_thread(lambda: self._write(path, roots, content))
        return outcome

    def _resolve(self, paths: Paths) -> _Granted:
        """Return the tool's grants, each resolved once."""
        tool, files = self._tool, self._workspace.files(paths)
        grants = files.grants(tool)
        written = (*tool.permissions.read, *tool.permissions.write)
        # A process needs its own folder to start from; a file tool has only what it was granted.
        real = (*grants.read[: len(tool.permissions.read)], *grants.write)
        prefixes = [
            (os.path.normpath(Path(files.root, one)), place) for one, place in zip(written, real, strict=True)
        ]
        hidden = tuple(dict.fromkeys((*grants.hide, *map(paths.real, grants.hide))))
        protected = tuple(dict.fromkeys((*grants.protect, *map(paths.real, grants.protect))))
        return _Granted(grants, prefixes, hidden, protected)

    @staticmethod
    def _place(path: str, granted: _Granted) -> str:
        """Return the path with the real path of its grant, which may be written as a symbolic link."""
        for prefix, real in granted.prefixes:
            if within(path, prefix):
                return real + path[len(prefix) :]
        return path

    def _roots(self, asked: str, granted: _Granted) -> tuple[Root, ...]:
        """Return all granted roots. A `read` grant inside a `write` grant stays read-only."""
        action, grants = self._config.action, granted.grants
        if not (grants.write if action == "write" else granted.prefixes):
            from toolcrib.executors.trace.denials import of_file

            raise of_file(self._workspace, self._tool, grants, action, asked)
        path = self._place(asked, granted)
        scratch = next((folder for folder in grants.scratch if within(path, folder)), None)
        if scratch is not None and action == "write":
            inside = tuple(one for one in granted.protected if one != scratch and within(one, scratch))
            return (Root(scratch, hidden=granted.hidden, protected=inside),)
        return tuple(
            Root(place, place not in grants.write, granted.hidden, granted.protected)
            for _, place in granted.prefixes
        )

    def _read(self, path: str, roots: tuple[Root, ...], ctx: CallContext) -> Outcome:
        limit = self._tool.limits.output_bytes or MAX_READ
        with Roots(*roots) as opened:
            content = opened.read(path, 0, limit)
        data = content.data
        warnings: list[str] = []
        details: dict[str, Any] = {"bytes": content.total}
        if content.total > len(content.data):
            warnings.append(f"the file is cut: {len(content.data)} of {content.total} bytes are returned")
            details["truncated"] = {"kept_bytes": len(content.data), "total_bytes": content.total}
            data = uncut(ctx, data)
        if self._config.encoding == "utf-8":
            return Outcome(decoded(data, warnings, "the file"), tuple(warnings), details)
        return Outcome(base64.b64encode(data).decode(), tuple(warnings), details)

    def _write(self, path: str, roots: tuple[Root, ...], content: Any) -> Outcome:
        data = self._bytes(content)
        with Roots(*roots) as opened:
            opened.write(path, data, mode=self._config.mode, mkdir=self._config.mkdir)
        return Outcome({"path": path, "bytes": len(data)})

    def _bytes(self, content: Any) -> bytes:
        if not isinstance(content, str):
            raise InvalidInput("the content of a file must be text")
        try:
            if self._config.encoding == "utf-8":
                return content.encode()
            return base64.b64decode(content, validate=True)
        except UnicodeEncodeError:
            raise InvalidInput("the content contains half of a surrogate pair") from None
        except binascii.Error as error:
            raise InvalidInput(f"the content is not base64: {error}") from None
