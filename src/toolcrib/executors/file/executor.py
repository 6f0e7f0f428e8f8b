"""Kind `file`: read or write one file beneath the granted folders, opened by openat2 in this process."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from toolcrib.errors import InvalidInput
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.executors.output import decoded, uncut
from toolcrib.executors.workspace.workspace import Workspace, within
from toolcrib.sandbox import Root, Roots
from toolcrib.spec import Call, CallContext, FileExec, Outcome, Tool
from toolcrib.template import Namespaces, Values, parse, parse_conditional, render_path, render_value

__all__ = ["FileExecutor"]

MAX_READ = 100_000
"""Bytes read of a file unless the tool's limits say otherwise."""


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

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Read or write the file, in a thread."""
        values = Values.of(self._tool, call, ctx)
        asked = str(Path(self._workspace.root, render_path(self._path, values)))
        path = self._place(asked)
        if self._workspace.watch is not None:
            self._workspace.watch.touch(self._workspace, self._tool, self._config.action, asked)
        if self._config.action == "read":
            outcome: Outcome = await run_in_thread(lambda: self._read(path, ctx))
        else:
            content = render_value(self._content, values)
            outcome = await run_in_thread(lambda: self._write(path, content))
        return outcome

    @property
    def _asked(self) -> tuple[str, ...]:
        return (*self._tool.permissions.read, *self._tool.permissions.write)

    def _place(self, path: str) -> str:
        """Return the path with the real path of its grant, which may be written as a symbolic link."""
        for written in self._asked:
            prefix = os.path.normpath(Path(self._workspace.root, written))
            if within(path, prefix):
                return self._workspace.resolve(written) + path[len(prefix) :]
        return path

    def _roots(self, access: str, path: str) -> Roots:
        """Return all granted roots. A `read` grant inside a `write` grant stays read-only."""
        tool, workspace = self._tool, self._workspace
        if not (tool.permissions.write if access == "write" else self._asked):
            from toolcrib.executors.trace.denials import of_file

            raise of_file(workspace, tool, "write" if access == "write" else "read", path)
        grants = workspace.grants(tool)
        # A process needs its own folder to start from; a file tool has only what it was granted.
        granted = [workspace.resolve(written) for written in self._asked]
        scratch = next((folder for folder in grants.scratch if within(path, folder)), None)
        if scratch is not None and access == "write":
            inside = tuple(place for place in grants.protect if place != scratch and within(place, scratch))
            return Roots(Root(scratch, hidden=grants.hide, protected=inside))
        return Roots(
            *(
                Root(place, read_only=place not in grants.write, hidden=grants.hide, protected=grants.protect)
                for place in granted
            )
        )

    def _read(self, path: str, ctx: CallContext) -> Outcome:
        limit = self._tool.limits.output_bytes or MAX_READ
        with self._roots("read", path) as roots:
            content = roots.read(path, 0, limit)
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

    def _write(self, path: str, content: Any) -> Outcome:
        data = self._bytes(content)
        with self._roots("write", path) as roots:
            roots.write(path, data, mode=self._config.mode, mkdir=self._config.mkdir)
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
