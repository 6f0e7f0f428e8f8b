"""Kind `file`: read or write one file beneath the granted folders, opened by openat2 in this process."""

from __future__ import annotations

import base64
import binascii
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from toolcrib.errors import InvalidInput
from toolcrib.executors.file.granted import GrantedFiles
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.executors.output import decoded, uncut
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import FilePart, Roots
from toolcrib.spec import Call, CallContext, FileExec, Outcome, Tool
from toolcrib.template import Namespaces, Values, parse, parse_conditional, render_path, render_value

MAX_READ = 100_000
"""Bytes read of a file unless the tool's limits say otherwise."""


class FileExecutor:
    """Reads or writes one file. Relative paths start at the project root; all must be inside a grant."""

    def __init__(self, tool: Tool, workspace: Workspace) -> None:
        assert isinstance(tool.config, FileExec)
        names = Namespaces.of(tool)
        self._tool = tool
        self._config = tool.config
        self._workspace = workspace
        self._limit = tool.limits.output_bytes or MAX_READ
        self._path = parse_conditional(tool.config.path, names)
        self._content = parse(tool.config.content, names)
        self._files = GrantedFiles(tool, workspace)

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Read or write the file: in a thread, unless it is small, in memory, and only read."""
        values = Values.of(self._tool, call, ctx)
        asked = self._absolute(render_path(self._path, values))
        if self._config.action == "write":
            data = self._bytes(render_value(self._content, values))
            work = partial(self._write, asked, data, ctx)
        else:
            small = self._files.read_at_once(asked, self._limit)
            if small is not None:
                return self._got(small, ctx)
            work = partial(self._read, asked, ctx)
        outcome: Outcome = await run_in_thread(work)
        return outcome

    def _absolute(self, path: str) -> str:
        """Return the path as asked for: in the base folder if it is there, else from the project root."""
        root, base = self._workspace.root, self._config.base
        if base is not None and os.path.lexists(first := _joined(root, base, path)):
            return first
        return _joined(root, path)

    def _read(self, asked: str, ctx: CallContext) -> Outcome:
        content = self._files.use(asked, "read", lambda roots, path: roots.read(path, 0, self._limit)).value
        return self._got(content, ctx)

    def _got(self, content: FilePart, ctx: CallContext) -> Outcome:
        """Return what was read as the tool returns it."""
        data = content.data
        warnings: list[str] = []
        details: dict[str, Any] = {"bytes": content.total}
        if content.total > len(content.data):
            warnings.append(
                f"the file is cut at the tool's limit: {len(data):,} of {content.total:,} bytes are returned;"
                " to get all, raise limits.output_bytes in the manifest"
            )
            details["truncated"] = {"keptBytes": len(content.data), "totalBytes": content.total}
            data = uncut(ctx, data)
        value: Any = data
        if self._config.encoding == "base64":
            value = base64.b64encode(data).decode()
        elif self._config.encoding == "utf-8" and (text := decoded(data, warnings, "the file")) is not None:
            value = text
        return Outcome(value, tuple(warnings), details)

    def _write(self, asked: str, data: bytes, ctx: CallContext) -> Outcome:
        def write(roots: Roots, path: str) -> int:
            return roots.write(path, data, mode=self._config.mode, mkdir=self._config.mkdir)

        used = self._files.use(asked, "write", write)
        ctx.created += used.created
        return Outcome({"path": used.path, "bytes": used.value})

    def _bytes(self, content: Any) -> bytes:
        if not isinstance(content, str):
            raise InvalidInput(
                "the content of a file must be text",
                hint="Pass a text. For other values write text around the placeholder in exec.file.content.",
            )
        try:
            if self._config.encoding == "utf-8":
                return content.encode()
            return base64.b64decode(content, validate=True)
        except UnicodeEncodeError:
            raise InvalidInput("the content contains half of a surrogate pair") from None
        except binascii.Error as error:
            raise InvalidInput(f"the content is not base64: {error}") from None


@lru_cache
def _joined(*parts: str) -> str:
    return str(Path(*parts))
