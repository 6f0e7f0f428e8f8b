"""Rules for calls of a tool: approval, retry, limits, output, hints to clients. Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from toolcrib.spec.record import record

Level = Literal["full", "landlock", "none"]
"""Confinement of a tool's process: namespaces and all else; Landlock and seccomp alone; none."""
LEVELS: tuple[Level, ...] = ("full", "landlock", "none")
"""All levels, the strongest first."""


@record
class ApprovalRule:
    """The rule whether a person must approve each call, and the reason."""

    required: bool = False
    reason: str = ""


@record
class Hmac:
    """The signature of a request: the message that is signed, and its form."""

    parts: tuple[str, ...] = ("method", "target", "timestamp", "body")
    """The message: `method`, `url`, `host`, `path`, `query`, `target` (path and query), `timestamp`, `nonce`,
    `body`, `body_sha256`, `header:NAME`, `text:LITERAL`."""
    separator: str = "\n"
    algorithm: Literal["sha1", "sha256", "sha384", "sha512"] = "sha256"
    encoding: Literal["hex", "base64", "base64url"] = "hex"
    key_encoding: Literal["text", "hex", "base64"] = "text"
    value: str = "{signature}"
    """The text that is sent: `{signature}`, `{timestamp}`, `{nonce}` and `{username}` are replaced."""
    timestamp: Literal["unix", "unix_ms", "iso"] = "unix"
    timestamp_header: str | None = None
    nonce_header: str | None = None


@record
class OAuth2:
    """The way to an access token (RFC 6749)."""

    token_url: str
    grant: Literal["client_credentials", "refresh_token", "device_code"] = "client_credentials"
    client_id: str | None = None
    """The id in clear text; `username_secret` names a secret instead."""
    client_auth: Literal["basic", "post", "none"] = "basic"
    scope: str | None = None
    refresh_secret: str | None = None
    """Name of the secret that holds the first refresh token."""
    device_url: str | None = None
    params: dict[str, str] = field(default_factory=dict)
    """Further fields of the request, such as `audience`."""


@record
class Auth:
    """Authentication of a request: the secrets it sends, and their place. They are declared permissions."""

    type: Literal["bearer", "basic", "api_key", "hmac", "oauth2"]
    secret: str | None = None
    """Name of the secret: the token, the key, the password or the client's secret (the last two may miss)."""
    username_secret: str | None = None
    """`basic`, `hmac`, `oauth2`: name of the secret that is the user name, the key's or the client's id."""
    location: Literal["header", "query", "cookie"] | None = None
    """`api_key`, `hmac`: the place of key or signature (`in` in the manifest)."""
    name: str | None = None
    """`api_key`, `hmac`: the name of that header, query entry or cookie."""
    hmac: Hmac | None = None
    oauth2: OAuth2 | None = None


@record
class Retry:
    """The number of attempts of a failing call, and the delays between them.

    `max_attempts` counts the first try. With `jitter` 0 a retry is instant; with `jitter` j > 0 the delay
    after attempt n is n⁴ seconds × (1 ± j). A fixed `backoff_ms`, if set, replaces that; so does `base_ms`:
    then the delay is a random one of up to `base_ms` × 2ⁿ⁻¹ (full jitter).
    """

    max_attempts: int = 1
    jitter: float = 0.0
    backoff_ms: int | None = None
    base_ms: int | None = None


@record
class Limits:
    """Limits of one attempt, and of the rate of calls. `None`: the project's default."""

    timeout_ms: int | None = None
    idle_ms: int | None = None
    """Time without a report of progress or a part of the output, within that of the attempt."""
    output_bytes: int | None = None
    """Bytes of the output that the caller sees; the rest is cut, and a warning says so."""
    memory_bytes: int | None = None
    """Memory of a confined tool with all its processes."""
    processes: int | None = None
    """Processes and threads of a confined tool at one time."""
    cpu_ms: int | None = None
    """Processor time of each process of a confined tool."""
    file_bytes: int | None = None
    """Size of any one file that a confined tool writes."""
    open_files: int | None = None
    """Files that each process of a confined tool may have open."""
    calls_per_minute: int | None = None
    """Calls within any 60 seconds, over all processes of the project."""
    min_interval_ms: int | None = None
    """Time between the starts of two calls."""
    concurrent_calls: int | None = None
    """Calls at the same time, over all processes of the project."""

    @property
    def are_rates(self) -> bool:
        """True if it limits how often calls are made."""
        return (self.calls_per_minute, self.min_interval_ms, self.concurrent_calls) != (None, None, None)


@record
class Output:
    """Format and check of a tool's output."""

    format: Literal["json", "text", "content"] = "json"
    """`content`: JSON that is content of MCP."""
    schema: dict[str, Any] | None = None
    on_violation: Literal["warn", "fail"] = "warn"


@record
class Annotations:
    """Hints to clients about the effect of a call; never a permission. `None`: not stated."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


MCP_HINTS: Mapping[str, str] = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""The fields of `Annotations`, and their names in MCP."""


@record
class McpForms:
    """The forms in which MCP clients find a tool, beside the list of tools or instead of it."""

    listed: bool = True
    """It is in the list of tools."""
    prompt: bool = False
    """It is a prompt: its arguments are the prompt's, and its result is the prompt's messages."""
    resource: str | None = None
    """It is the resource of this URI, or with `{argument}` in it the resource template."""
    mime_type: str | None = None
    """Media type of the resource."""
    task: bool = False
    """Each call is a task, stored before it runs; a client that knows no tasks cannot call it."""
    icons: Sequence[Mapping[str, Any]] = ()
    """Pictures that a client may show with its name, each an `Icon` of MCP: `src`, `mimeType`, `sizes`."""


@record
class Example:
    """One example call of a manifest."""

    description: str
    params: dict[str, Any]
    expected_output: str | None = None
