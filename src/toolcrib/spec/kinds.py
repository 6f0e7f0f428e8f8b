"""One configuration per execution kind, as written in a manifest's `exec` block. Pure data.

Strings may hold templates (`${name}`); they are parsed once, when the tool is bound to its executor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["CommandExec", "ExecConfig", "FieldMap", "FileExec", "FunctionExec", "HttpExec", "PythonExec"]


@dataclass(frozen=True, slots=True)
class FunctionExec:
    """A Python callable registered in this process."""

    reference: str
    """`module:qualname` of the callable."""
    isolation: Literal["thread", "inline", "async", "process"] = "thread"


@dataclass(frozen=True, slots=True)
class PythonExec:
    """A function of a module, run in a confined interpreter of its own."""

    module: str
    function: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    venv: str | None = None
    cwd: str = "."
    returns: Literal["json", "text"] = "json"
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CommandExec:
    """A program and its arguments, run confined and without a shell."""

    entrypoint: str
    args: tuple[str, ...] = ()
    cwd: str = "."
    env: dict[str, str] = field(default_factory=dict)
    stdin: Any = None
    stdout_format: Literal["json", "text"] | None = None
    exit_codes_ok: tuple[int, ...] = (0,)
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FieldMap:
    """One projected field: `name` in the output, read from the dotted `path` of the response body."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class HttpExec:
    """One HTTP request."""

    method: str
    url: str
    headers: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    timeout_ms: int | None = None
    success_codes: tuple[int, ...] = ()
    """Empty: any 2xx."""
    error_mode: Literal["fail", "empty"] = "fail"
    json_path: str | None = None
    """Dotted path (`web.results`)."""
    jsonpath: str | None = None
    """RFC 9535 expression."""
    regex: str | None = None
    fields: tuple[FieldMap, ...] = ()
    max_response_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FileExec:
    """Read or write one file beneath the granted paths."""

    action: Literal["read", "write"]
    path: str
    content: Any = None
    encoding: Literal["utf-8", "base64", "binary"] = "utf-8"
    mode: int = 0o644
    mkdir: bool = False


ExecConfig = FunctionExec | PythonExec | CommandExec | HttpExec | FileExec
