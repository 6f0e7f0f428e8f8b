"""The project's settings, `config.yml` in its home folder. Every key is known; what is unknown is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolcrib.errors import ConfigError, ManifestError
from toolcrib.guard import MAX_BYTES, Rules, Trust, Weakening, narrowed, weakening
from toolcrib.manifest import Diagnostic, Document, diagnostics_of, failure, load, read
from toolcrib.project.config.mcp import FILE, Servers, servers_block
from toolcrib.project.config.policy import Approvals, Review, read_approvals, read_policy, read_review
from toolcrib.project.config.reader import Misfit, Reader
from toolcrib.project.config.reader import Path as Place
from toolcrib.project.config.secrets import ENVIRONMENT, SourceSetting, secrets_block
from toolcrib.project.config.sources import ToolSource, read_sources
from toolcrib.spec import LEVELS, Level, Network, Permissions, Retry, SecretSpec

__all__ = ["KEYS", "Config", "load_config"]

DEFAULT_TIMEOUT_MS = 300_000


@dataclass(frozen=True, slots=True)
class McpSettings:
    """The `mcp` block."""

    max_listed: int = 100
    """With more tools than this, MCP clients are listed the meta-tools and the pinned ones only."""
    pinned: tuple[str, ...] = ()
    """Names of tools that are listed always."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a project sets for all its tools."""

    timeout_ms: int = DEFAULT_TIMEOUT_MS
    """`limits.timeout_ms`: no attempt of any tool takes longer."""
    retry: Retry = field(default_factory=lambda: Retry(max_attempts=2))
    """`retry`: for registered Python tools and for HTTP reads; other tools make one attempt."""
    allowed_hosts: tuple[str, ...] | None = None
    """`security.allowed_hosts`: tools reach these at most; None leaves each its own permission."""
    sandbox_minimum: Level = "full"
    """`sandbox.minimum`: the weakest level tools may be run at. Counts in a trusted project only."""
    max_permissions: Permissions | None = None
    """`security.max_permissions`: the ceiling for tools that agents create."""
    created_tools: int = 500
    """`limits.created_tools`: how many tools agents may have made at a time."""
    mcp: McpSettings = field(default_factory=McpSettings)
    """`mcp`: which tools MCP clients are shown."""
    calls_per_minute: int | None = None
    """`limits.calls_per_minute`: of each tool, whoever calls; None for no limit."""
    concurrency: int | None = None
    """`limits.concurrency`: calls of each tool at one time; None for no limit."""
    policy: Rules = field(default_factory=Rules)
    """`policy`: who may call what."""
    approvals: Approvals = field(default_factory=Approvals)
    """`approvals`: by which ways a person may agree, and for how long a call waits."""
    review: Review = "ask"
    """`review`: whether a person must look at a tool before its first call."""
    document: Document | None = field(default=None, compare=False, repr=False)
    """The file it was read from; None for settings that a program made itself."""
    lenient: bool = False
    """`inputs.lenient`: read arguments that do not fit once more, a number in a text as that number."""
    audit_max_bytes: int = MAX_BYTES
    """`audit.max_bytes`: the size at which the audit log is rotated."""
    secret_sources: tuple[SourceSetting, ...] = ENVIRONMENT
    """`secrets.sources`: what is asked for a secret, one after the other."""
    sources: tuple[ToolSource, ...] = ()
    """`sources`: further folders of tools. One outside of the project counts in a trusted project only."""

    servers: Servers = field(default_factory=Servers)
    """`mcp_servers`, and `.mcp.json` beside them: MCP servers whose tools are the project's too."""

    @property
    def digest(self) -> str:
        """SHA-256 of the file's bytes, and those of `.mcp.json` if it names servers, in hex.

        What trust is bound to.
        """
        own = self.document.raw if self.document is not None else b""
        return hashlib.sha256(own + self.servers.mark).hexdigest()

    def weakening(self) -> list[Weakening]:
        """What counts only once a person trusts it; nothing of settings that a program made itself."""
        found = weakening(self.document.data) if self.document is not None else []
        return found + weakening({FILE: self.servers.shared})

    def narrowed(self) -> Config:
        """The settings with every weakening one at what is safe."""
        if not self.weakening():
            return self
        document = self.document
        if document is None:
            return replace(self, servers=Servers())
        return _config(
            Document(document.path, document.raw, document.text, narrowed(document.data)), document
        )

    def effective(self, trusted: Trust) -> tuple[Config, list[Weakening]]:
        """The settings that count, and those that do not count yet. Asks only where something weakens."""
        waiting = self.weakening()
        if not waiting or trusted.is_trusted(self.digest):
            return self, []
        return self.narrowed(), waiting


_LIMITS = {
    "timeout_ms": 86_400_000,
    "calls_per_minute": 1_000_000,
    "concurrency": 10_000,
    "created_tools": 500,
}
"""The greatest value of each; the least is 1."""


def _limits(reader: Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("limits",), tuple(_LIMITS))
    return {name: reader.number(block[name], ("limits", name), 1, _LIMITS[name]) for name in block}


def _retry(reader: Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("retry",), ("max_attempts", "jitter"))
    return {
        "retry": Retry(
            reader.number(block.get("max_attempts", 2), ("retry", "max_attempts"), 1, 100),
            float(reader.number(block.get("jitter", 0.0), ("retry", "jitter"), 0, 1, whole=False)),
        )
    }


def _security(reader: Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("security",), ("max_permissions", "allowed_hosts"))
    found: dict[str, Any] = {}
    if "allowed_hosts" in block:
        found["allowed_hosts"] = _hosts(reader, block["allowed_hosts"], ("security", "allowed_hosts"))
    if "max_permissions" in block:
        found["max_permissions"] = _ceiling(reader, block["max_permissions"])
    return found


def _hosts(reader: Reader, value: Any, at: Place) -> tuple[str, ...]:
    from toolcrib.egress import HostRule

    hosts = reader.texts(value, at)
    for number, host in enumerate(hosts):
        try:
            HostRule.parse(host)
        except ValueError:
            hint = "write api.example.com, *.example.org or name:port; no https://, no path"
            raise reader.misfit((*at, number), "must be a host", hint) from None
    return hosts


def _ceiling(reader: Reader, value: Any) -> Permissions:
    at = ("security", "max_permissions")
    block = reader.mapping(value, at, ("network", "fs", "secrets", "env"))
    files = reader.mapping(block.get("fs"), (*at, "fs"), ("read", "write"))
    try:
        network = Network.parse(block.get("network", False))
    except ValueError as error:
        told = str(error).removeprefix("network ")
        raise reader.misfit((*at, "network"), told) from None
    return Permissions(
        network=network,
        read=reader.texts(files.get("read", []), (*at, "fs", "read")),
        write=reader.texts(files.get("write", []), (*at, "fs", "write")),
        secrets=tuple(SecretSpec(name) for name in reader.texts(block.get("secrets", []), (*at, "secrets"))),
        env=reader.texts(block.get("env", []), (*at, "env")),
    )


def _sandbox(reader: Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("sandbox",), ("minimum",))
    minimum = block.get("minimum", "full")
    if minimum not in LEVELS:
        at = ("sandbox", "minimum")
        raise reader.misfit(
            at,
            f"must be one of {', '.join(LEVELS)}",
            "`full` is the default; `toolcrib doctor` tells what can be had here",
        )
    return {"sandbox_minimum": minimum}


def _inputs(reader: Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("inputs",), ("lenient",))
    return {"lenient": reader.truth(block.get("lenient", False), ("inputs", "lenient"))}


def _audit(reader: Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("audit",), ("max_bytes",))
    if "max_bytes" not in block:
        return {}
    at = ("audit", "max_bytes")
    return {"audit_max_bytes": reader.number(block["max_bytes"], at, 65_536, 2**40)}


def _mcp(reader: Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("mcp",), ("max_listed", "pinned"))
    found: dict[str, Any] = {}
    if "max_listed" in block:
        found["max_listed"] = reader.number(block["max_listed"], ("mcp", "max_listed"), 0, 10_000)
    if "pinned" in block:
        found["pinned"] = reader.texts(block["pinned"], ("mcp", "pinned"))
    return {"mcp": McpSettings(**found)}


_BLOCKS: Mapping[str, Callable[[Reader, Any], dict[str, Any]]] = {
    "approvals": read_approvals,
    "audit": _audit,
    "inputs": _inputs,
    "limits": _limits,
    "mcp": _mcp,
    "mcp_servers": servers_block,
    "policy": read_policy,
    "retry": _retry,
    "review": read_review,
    "sandbox": _sandbox,
    "secrets": secrets_block,
    "security": _security,
    "sources": read_sources,
}
KEYS = (
    "approvals.channels",
    "approvals.ttl_hours",
    "inputs.lenient",
    "limits.calls_per_minute",
    "limits.concurrency",
    "limits.created_tools",
    "audit.max_bytes",
    "limits.timeout_ms",
    "mcp.max_listed",
    "mcp.pinned",
    "mcp_servers",
    "policy.default",
    "policy.rules",
    "policy.self_approval",
    "retry.max_attempts",
    "retry.jitter",
    "review",
    "sandbox.minimum",
    "secrets.sources",
    "security.allowed_hosts",
    "security.max_permissions",
    "sources",
)
"""Every setting there is."""


def load_config(path: Path, root: Path | None = None) -> Config:
    """Read the settings; a missing or empty file leaves the defaults. `root` is where `.mcp.json` is, if any.

    Raises `ConfigError` with everything that is wrong, each with its place, as a manifest's findings are.
    """
    try:
        document = load(read(str(path)), str(path))
    except (FileNotFoundError, NotADirectoryError):
        config = Config()
    except ManifestError as error:
        raise _failure(diagnostics_of(error)) from None
    else:
        config = _config(document, document)
    return config if root is None else replace(config, servers=config.servers.beside(root))


def _config(document: Document, origin: Document) -> Config:
    """The settings that a document holds; `origin` is the document as it is on disk."""
    reader = Reader(document)
    found: list[Diagnostic] = []
    settings: dict[str, Any] = {}
    data = document.data
    try:
        blocks = reader.mapping(data, (), tuple(data) if isinstance(data, dict) else tuple(_BLOCKS))
    except Misfit as misfit:
        raise _failure([misfit.finding]) from None
    for name, value in blocks.items():
        try:
            if name not in _BLOCKS:
                raise reader.unknown((name,), tuple(_BLOCKS))
            settings.update(_BLOCKS[name](reader, value))
        except Misfit as misfit:
            found.append(misfit.finding)
    if found:
        raise _failure(found)
    return Config(**settings, document=origin)


def _failure(found: Sequence[Diagnostic]) -> ConfigError:
    error = failure(found)
    return ConfigError(error.message, hint=error.hint, violations=error.violations, details=error.details)
