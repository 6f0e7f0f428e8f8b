"""The configurations of the built-in execution kinds, as written in a manifest's `exec` block. Pure data.

They are here because readers of several formats make them. A new kind defines its own beside its record.
Strings may contain templates (`${name}`); they are parsed once, when the tool is bound to its executor.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any, Final, Literal

from toolcrib.spec.record import record


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""The value of a choice that leaves out its key or item."""


@record
class Choice:
    """A value that depends on the arguments: the value of the first branch whose test is true, or none."""

    branches: tuple[tuple[str | None, Any], ...]
    """Test and value. A test names an argument, which must be neither absent, null, false, 0 nor empty; the
    test None is always true. A value is one of any template, `ABSENT`, or another choice."""


class ExecConfig:
    """The base of every kind's configuration."""

    __slots__ = ()

    @property
    def by_name(self) -> bool:
        """Return True if a call passes all arguments on by their names, without a template."""
        return False


@record
class FunctionExec(ExecConfig):
    """A Python callable registered in this process."""

    reference: str
    """`module:qualname` of the callable."""
    isolation: Literal["thread", "inline", "async", "process"] = "thread"


@record
class PythonExec(ExecConfig):
    """A function of a module, run in a confined interpreter of its own."""

    module: str
    function: str
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None
    venv: str | None = None
    cwd: str = "."
    returns: Literal["json", "text"] = "json"
    timeout_ms: int | None = None

    @property
    def by_name(self) -> bool:
        return self.args is None and self.kwargs is None


@record
class CommandExec(ExecConfig):
    """A program and its arguments, run confined: without a shell, or as one line for it."""

    entrypoint: str
    args: tuple[str, ...] = ()
    cwd: str = "."
    env: dict[str, Any] = field(default_factory=dict)
    stdin: Any = None
    stdout_format: Literal["json", "text"] | None = None
    exit_codes_ok: tuple[int, ...] = (0,)
    timeout_ms: int | None = None
    shell: str | None = None
    """A line for `/bin/sh -c`; `entrypoint` is `/bin/sh` then, and `args` are empty."""
    allow_dash: tuple[str, ...] = ()
    """Arguments of the tool that may begin with `-` where they are words of their own."""
    allow_code: bool = False
    """Values of a call may be code of a program; without this such a tool does not load."""


@record
class BuiltinExec(ExecConfig):
    """A function registered in the same toolset, under another name."""

    function: str


@record
class FieldMap:
    """One projected field: `name` in the output, read from the dotted `path` of the response body."""

    name: str
    path: str


@record
class ParameterStyle:
    """The form of a list or an object in a path, query, header, cookie or form (OpenAPI 3.2, 4.12)."""

    style: str
    """`simple`, `label`, `matrix`, `form`, `spaceDelimited`, `pipeDelimited`, `tabDelimited`, `deepObject`,
    `json`, or `cookie` (as `form`, not percent-encoded)."""
    explode: bool = False
    """Each item, or each key of an object, apart."""
    name: str | None = None
    """The name that `matrix` writes; the argument's own without it."""
    allow_reserved: bool = False
    """Leave the reserved characters of RFC 3986 that cannot end a value as they are."""


@record
class BodyPart:
    """One part of a multipart body (RFC 7578)."""

    encoding: Literal["text", "json", "base64", "file"] | None = None
    """base64: the value is base64 text, its bytes are sent. file: the value is the path of a file, which is
    sent. None: text for a scalar, JSON for the rest."""
    filename: str | None = None
    """A template."""
    content_type: str | None = None


@record
class HttpExec(ExecConfig):
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
    cookies: dict[str, Any] = field(default_factory=dict)
    styles: dict[str, ParameterStyle] = field(default_factory=dict)
    """Argument name to the form of its value outside JSON."""
    body_format: Literal["json", "form", "multipart", "text", "binary", "file"] | None = None
    """None: decided by the content type and the form of `body`."""
    parts: dict[str, BodyPart] = field(default_factory=dict)


@record
class FileExec(ExecConfig):
    """Read or write one file beneath the granted paths."""

    action: Literal["read", "write"]
    path: str
    content: Any = None
    encoding: Literal["utf-8", "base64", "binary"] = "utf-8"
    mode: int = 0o644
    mkdir: bool = False
    base: str | None = None
    """The folder that a relative path is looked for in first, before the project root."""


@record
class Comparison:
    """A condition: `value`, a template, and what it must be."""

    value: Any
    how: Literal["truth", "is", "is_not", "schema"] = "truth"
    """`truth`: neither absent nor false, null, 0 or empty."""
    other: Any = None
    """The value to compare with, or the JSON Schema that must match."""


@record
class Step:
    """One call of another tool."""

    id: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    """Templates over the arguments and the results of other steps."""
    needs: tuple[str, ...] = ()
    """Steps that must end first, besides those whose results it uses."""
    when: tuple[Comparison, ...] = ()
    """All must be true, or the step is skipped."""
    foreach: Any = None
    """A template that gives a list: one call for each item. None: one call."""
    concurrency: int = 4
    """Calls of a `foreach` that run at the same time."""
    on_error: Literal["fail", "continue", "default"] = "fail"
    default: Any = None
    """The value of a failed call, where `on_error` is `default`."""


@record
class CompositeExec(ExecConfig):
    """Other tools, called one after the other or side by side."""

    steps: tuple[Step, ...]
    output: Any = None
    """A template; None gives the value of the last step."""


@record
class McpExec(ExecConfig):
    """One tool of an MCP server."""

    server: str
    """The server's name in the project's settings."""
    tool: str
    """The tool's own name, as the server knows it."""
    definition: str = ""
    """SHA-256 of the definition that the server gives now, in hex."""
    identity: str = ""
    """SHA-256 of the server's entry in the settings, in hex."""


@record
class SqlExec(ExecConfig):
    """One SQL statement. Values are bound to its parameters and never written into its text."""

    engine: str
    """`sqlite` with `database`, or `postgres` with `secret`."""
    statement: str
    database: str | None = None
    """`sqlite`: the file, from the project root."""
    parameters: tuple[Any, ...] = ()
    """Templates, in the order of the statement's `?`."""
    timeout_ms: int | None = None
    secret: str | None = None
    """`postgres`: name of the secret that holds the address, `postgresql://USER:PASSWORD@HOST/DATABASE`."""
    write: bool = False
    """`postgres`: the statement may change data."""
    max_rows: int | None = None
    """`postgres`: rows that are returned at most; None: 1,000."""
