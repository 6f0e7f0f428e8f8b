"""The project's settings, `config.yml` in its home folder: one table of all keys, and how it is read.

Each field of `Config` is one setting. Strict reading, the rules of trust and the table in docs/project.md
come from it; the field's docstring is its meaning there.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from toolcrib.builtin.settings import RootFolder
from toolcrib.errors import ConfigError, ManifestError
from toolcrib.executors.workspace.grants import hidden_places
from toolcrib.guard import EFFECTS, MAX_BYTES, POLICY, SETTINGS, Effect, Ledger, Rule, Rules
from toolcrib.manifest import Diagnostic, Document, SourceFiles, diagnostics_of, failure, load, read
from toolcrib.manifest.yaml.diagnostics import make
from toolcrib.project.config import weakening as weak
from toolcrib.project.config.mcp import FILE, NamedServers, read_named_servers
from toolcrib.project.config.middleware import MiddlewareSetting, middleware_lines, read_middleware
from toolcrib.project.config.policy import DEFAULT_TTL_HOURS, read_channels, read_people, read_rules
from toolcrib.project.config.reader import (
    Read,
    Reader,
    SettingError,
    choice,
    hosts,
    items,
    number,
    permissions,
    read_builtins,
    read_providers,
    read_roots,
    texts,
    truth,
)
from toolcrib.project.config.reader import database as read_database
from toolcrib.project.config.secrets import (
    ENVIRONMENT,
    SourceSetting,
    helper_folders,
    helper_lines,
    read_secret_sources,
)
from toolcrib.project.config.sources import ToolSource, place_of, read_source
from toolcrib.project.config.started import parts_of
from toolcrib.project.config.weakening import Weakening
from toolcrib.spec import LEVELS, Level, Permissions, Retry
from toolcrib.spec.model_provider import ModelProvider
from toolcrib.spec.record import record
from toolcrib.state import IN_FILE, LEASE_S

T = TypeVar("T")


class _Setting(NamedTuple):
    """The setting of one field of `Config`."""

    key: str
    read: Read
    weakens: Callable[[Any], str | None] | None
    safe: Callable[[Any], Any]


def _setting(
    key: str,
    read: Read,
    default: T,
    weakens: Callable[[Any], str | None] | None,
    safe: Callable[[Any], Any] = lambda _: None,
) -> T:
    """Describe one field.

    `weakens` says in words what a value as written would allow beyond the default; it is None for a
    setting that only narrows. `safe` returns the value that applies until a person trusts the settings;
    None: the default.
    """
    found: T = field(default=default, metadata={"setting": _Setting(key, read, weakens, safe)})
    return found


@record
class Config:
    """The settings of a project. A program may make them itself; then nothing in them needs trust."""

    approval_channels: tuple[str, ...] = _setting(
        "approvals.channels",
        read_channels,
        weak.OWN_CHANNELS,
        weak.channels,
        safe=lambda value: [one for one in value if one != "elicitation"],
    )
    """The channels by which a person may approve a call: `cli`, the command line; `elicitation`, the
    calling client, which [waits for trust](security.md#trust); `page`, [over HTTP](rest.md); `telegram`,
    `discord`, `slack`, `whatsapp` and `webhook`, the [chats](kubernetes.md#approvals-in-a-chat) of
    `approvals.people`. An approval by another channel is refused."""
    approval_people: tuple[tuple[str, tuple[str, ...]], ...] = _setting(
        "approvals.people", read_people, (), weak.people
    )
    """The people who may approve calls in a chat, each with a list of accounts, `CHANNEL:ID`. It waits for
    trust."""
    approval_ttl_hours: float = _setting(
        "approvals.ttl_hours", number(0.01, 24 * 366, whole=False), DEFAULT_TTL_HOURS, weak.ttl_hours
    )
    """The hours that a call waits for a person, from 0.01 to 8,784. More than the default waits for trust."""
    audit_max_bytes: int = _setting("audit.max_bytes", number(65_536, 2**40), MAX_BYTES, None)
    """The size in bytes at which a file of the audit log is closed and the next one begun
    ([rotation](audit.md#files)), from 65,536."""
    database: str = _setting("database", read_database, IN_FILE, weak.database)
    """The place of waiting calls, rates and results of calls with a key: `sqlite`, a file in the project, or
    `postgresql://USER@HOST:PORT/DATABASE`, which waits for trust ([Databases](databases.md))."""
    lenient: bool = _setting("inputs.lenient", truth, False, None)
    """If `true`, arguments that do not match are read again: `"12"` for 12, JSON text for an object, null for
    a missing value ([lists for providers](providers.md))."""
    builtins: tuple[tuple[str, Mapping[str, Any]], ...] = _setting("builtins", read_builtins, (), None)
    """The [built-in tools](builtins.md) that are on: a list of names, or a mapping of names to options. Those
    that write or reach beyond the project need trust like any tool."""
    calls_per_minute: int | None = _setting("limits.calls_per_minute", number(1, 1_000_000), None, None)
    """Calls of each tool in any 60 seconds, by all callers and in all processes of the project together."""
    concurrency: int | None = _setting("limits.concurrency", number(1, 10_000), None, None)
    """Calls of each tool at one time, in all processes of the project together."""
    created_tools: int = _setting("limits.created_tools", number(1, 500), 500, None)
    """The number of tools that [agents may have made](tools-made-by-agents.md) at a time, from 1 to the
    default."""
    timeout_ms: int = _setting(
        "limits.timeout_ms", number(1, 86_400_000), weak.DEFAULT_TIMEOUT_MS, weak.timeout_ms
    )
    """No attempt of any tool takes longer, in milliseconds. The smallest of this, the tool's own limit and
    the call's own limit applies, and the error names it. More than the default waits for trust."""
    max_listed: int = _setting("mcp.max_listed", number(0, 10_000), 100, None)
    """With more tools than this, the list for MCP clients has only the
    [meta-tools](tools-made-by-agents.md#meta-tools) and the pinned tools."""
    pinned: tuple[str, ...] = _setting("mcp.pinned", texts, (), None)
    """Names of tools that are always listed."""
    servers: NamedServers = _setting("mcp_servers", read_named_servers, NamedServers(), weak.mcp_servers)
    """Third-party MCP servers whose tools become tools of the project, by name ([MCP
    servers](mcp-servers.md)). Used in a trusted project only."""
    providers: tuple[ModelProvider, ...] = _setting("models.providers", read_providers, (), weak.providers)
    """Servers of models for [agents](agents.md#models), by name: `api` (`anthropic`, `openai` or `google`),
    `base_url`, and `key`, the name of the secret that is its key. Used in a trusted project only."""
    middleware: tuple[MiddlewareSetting, ...] = _setting(
        "middleware",
        items(read_middleware, 50),
        (),
        weak.middleware,
        safe=lambda value: [one for one in value if not weak.acts(one)],
    )
    """Wrappers of each call, outermost first ([Middleware](middleware.md)): a name, or `use`, `tools` and
    `options`. `cache`, `retry` and code of the project wait for trust."""
    policy_default: Effect = _setting("policy.default", choice(EFFECTS), "allow", None)
    """The decision about calls that no rule matches: `allow`, `ask` or `deny`."""
    rules: tuple[Rule, ...] = _setting("policy.rules", read_rules, (), None)
    """The [rules](security.md#rules)."""
    self_approval: bool = _setting("policy.self_approval", truth, False, weak.self_approval)
    """If `true`, a person may decide on calls made with their own token, and a token on calls made for its
    own owner ([callers](security.md#callers)). Waits for trust."""
    retry_jitter: float = _setting("retry.jitter", number(0, 1, whole=False), 0.0, None)
    """0: the next attempt follows at once. Above 0: after attempt n it waits n⁴ seconds, varied at random
    by up to this fraction."""
    retry_attempts: int = _setting("retry.max_attempts", number(1, 100), weak.DEFAULT_ATTEMPTS, weak.attempts)
    """Attempts, including the first, of registered Python functions and of manifest tools that can safely be
    repeated: HTTP with GET, HEAD, OPTIONS, PUT or DELETE, and those with `annotations.idempotent: true`. All
    others make one attempt. A tool's own `retry` replaces it. More than the default waits for trust."""
    calls_days: float = _setting("retention.calls_days", number(1, 36_500, whole=False), 30.0, None)
    """The days that a durable call which belongs to no run is kept after its end."""
    runs_days: float = _setting("retention.runs_days", number(1, 36_500, whole=False), 90.0, None)
    """The days that a run is kept, with its calls, events and messages. While its session continues, a run
    stays. The audit log is never cut."""
    failed_days: float = _setting("retention.failed_days", number(1, 36_500, whole=False), 180.0, None)
    """The same for runs that failed, if it is more."""
    roots: tuple[RootFolder, ...] = _setting("roots", read_roots, (), None)
    """The folders of built-in tools by name, the first of which is where relative paths begin: a path that is
    only read, or `{path: PATH, write: true}`. Not set: the project, read-only."""
    sandbox_minimum: Level = _setting(
        "sandbox.minimum",
        choice(LEVELS, "`full` is the default; `toolcrib doctor` shows what this machine supports"),
        "full",
        weak.sandbox,
    )
    """The weakest level at which commands and Python tools may run: `full`, `landlock` or `none`. Less than
    `full` is used in a trusted project only: see [Levels](sandbox.md#a-lower-minimum)."""
    secret_sources: tuple[SourceSetting, ...] = _setting(
        "secrets.sources", read_secret_sources, ENVIRONMENT, weak.secret_sources
    )
    """The sources of secrets, asked one after the other: `env`, `env_file`, `folder`, `command`, `keyring`
    ([Secrets](secrets.md))."""
    allowed_hosts: tuple[str, ...] | None = _setting("security.allowed_hosts", hosts, None, None)
    """HTTP tools and programs reach at most these hosts, within what their own permission allows. Not set:
    their own permission alone decides. Entries as in [HTTP tools](http-tools.md#where-a-request-may-go)."""
    max_permissions: Permissions | None = _setting(
        "security.max_permissions",
        permissions(("network", "fs", "secrets", "env")),
        None,
        weak.max_permissions,
        safe=lambda _: {},
    )
    """The ceiling for [tools that agents make](tools-made-by-agents.md): `network`, `fs`, `secrets`,
    `env`. Not set: they may ask for nothing. A ceiling above nothing waits for trust."""
    sources: tuple[ToolSource, ...] = _setting(
        "sources",
        items(read_source, 100),
        (),
        weak.outside_sources,
        safe=lambda value: [one for one in value if not weak.leads_out(one)],
    )
    """Further tools, in [another format](formats.md#sources) than `tool.yml`: a folder (`dir`) or a file
    (`file`), its `dialect`, and `permissions` for programs and files of these tools: `network`, `fs.read` (by
    default the project), `fs.write`. A source outside of the project waits for trust."""
    lease_s: float = _setting("workers.lease_s", number(5, 3600, whole=False), LEASE_S, None)
    """Seconds after which a process on another machine that is silent counts as dead, and its calls are
    taken over, from 5 to 3,600. On one machine a dead process is seen at once."""
    document: Document | None = field(default=None, compare=False, repr=False)
    """The file they come from; None for settings that a program made itself."""
    started: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The code inside the project that they start, as it was when they were read: name of the setting and
    path, with the digest."""
    unconfined: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The programs that they start without a sandbox: name of the setting, with the program's real path."""
    accepted: Rules | None = field(default=None, compare=False, repr=False)
    """The rules that this user has accepted: what is weaker than these waits for trust."""

    @property
    def retry(self) -> Retry:
        """The retry rule of tools without their own."""
        return Retry(self.retry_attempts, self.retry_jitter)

    @property
    def policy(self) -> Rules:
        """The rules about calls."""
        return Rules(self.policy_default, self.rules, self.self_approval)

    @property
    def digest(self) -> str:
        """SHA-256 in hex of the file, of `.mcp.json` if it names servers, and of the code that they start.

        The paths of programs without a sandbox are part of it. Trust is bound to it.
        """
        # The zero bytes divide the parts: no text in one of them can pass for the next one.
        whole = (self.document.raw if self.document is not None else b"") + self.servers.trusted_bytes
        for part in filter(None, (self.started, self.unconfined)):
            whole += b"\0" + json.dumps(sorted(part.items())).encode(errors="surrogateescape")
        return hashlib.sha256(whole).hexdigest()

    @property
    def policy_document(self) -> dict[str, Any]:
        """The rules as they are written in the settings."""
        rules = [one.as_dict() for one in self.rules]
        # A name with `#` is only the number of a rule, and would be refused when this is read again.
        unnamed = [{k: v for k, v in one.items() if k != "name" or v[0] != "#"} for one in rules]
        return {"default": self.policy_default, "rules": unnamed}

    def as_written(self) -> dict[str, Any]:
        """Return every setting by its name, as the file has it; None for one that is not there."""
        data = None if self.document is None else self.document.data
        return {key: _value(data, key) for key in KEYS}

    def teams(self, root: Path) -> list[Path]:
        """Return where the project's team files may be: `team.yaml`, and the files of its sources."""
        files = (place_of(one, root) for one in self.sources if one.is_file)
        inside = (path for path in files if path.is_relative_to(root))
        return list(dict.fromkeys((root / "team.yaml", *inside)))

    def since(self, ledger: Ledger) -> Config:
        """Return the same with the rules that this user has accepted."""
        row = ledger.last(POLICY)
        if row is None:
            return self
        text = json.dumps({"policy": row.shown["policy"]})
        return replace(self, accepted=config_of(text, Path("accepted")).policy)

    def with_data(self, root: Path) -> Config:
        """Return the same with the folders that the command lines of its servers name for data."""
        specs = self.servers.specs
        if not specs:
            return self
        from toolcrib.executors.mcp.process.local import with_data

        # Code that a helper or a source loads must never become a server's folder for data to write.
        closed = [*helper_folders(self.secret_sources, root), *(place_of(one, root) for one in self.sources)]
        named = tuple(with_data(one, str(root), map(str, closed)) for one in specs)
        return replace(self, servers=replace(self.servers, specs=named))

    def with_started(self, root: Path) -> Config:
        """Return the same with all that they start, as it is now."""
        helpers, files = helper_lines(self.secret_sources), middleware_lines(self.middleware)
        lines = {**self.servers.lines(root), **helpers, **files}
        free = {name: line.unconfined for name, line in lines.items() if line.unconfined}
        return replace(self, started=parts_of(lines, root), unconfined=free)

    def weakening(self) -> list[Weakening]:
        """Return the settings that wait for trust; none of settings that a program made itself."""
        # `.mcp.json` is a file of its own, so its servers are in no field of the settings below.
        shared = weak.mcp_servers(self.servers.shared)
        found = [Weakening(FILE, shared)] if shared else []
        found += weak.unconfined(self.unconfined)
        for setting in _SETTINGS.values():
            value = None if self.document is None else _value(self.document.data, setting.key)
            if setting.weakens is not None and value is not None and (allows := setting.weakens(value)):
                found.append(Weakening(setting.key, allows))
        return found + ([] if self.accepted is None else weak.policy(self.accepted, self.policy))

    def narrowed(self) -> Config:
        """Return the settings with a safe value for every weakening one."""
        waiting = {weakening.name for weakening in self.weakening()}
        document = self.document
        if not waiting:
            return self
        if document is None:
            # Without a config.yml only the servers of `.mcp.json` and the rules (`_kept`) can wait for trust.
            return replace(self, servers=NamedServers(), **self._kept())
        # The file is read again with safe values, so that every rule of reading applies to them too.
        data = copy.deepcopy(document.data)
        for setting in _SETTINGS.values():
            if setting.key in waiting and setting.weakens is not None:
                _put(data, setting.key, setting.safe(_value(data, setting.key)))
        narrow = _config(Document(document.path, document.raw, document.text, data), document)
        return replace(narrow, started=self.started, unconfined=self.unconfined, **self._kept())

    def _kept(self) -> dict[str, Any]:
        """Return the rules that were accepted, with those of now that are stricter."""
        before = self.accepted
        if before is None or not weak.policy(before, self.policy):
            return {"accepted": before}
        # What is stricter needs no trust; what allows more waits for it.
        new = [one for one in self.rules if one.effect != "allow" and one not in before.rules]
        default = min(before.default, self.policy_default, key=EFFECTS.index)
        return {"accepted": before, "rules": (*before.rules, *new), "policy_default": default}

    def effective(self, ledger: Ledger) -> tuple[Config, list[Weakening]]:
        """Return the settings that apply, and those that wait for trust."""
        config = self.since(ledger)
        waiting = config.weakening()
        if not waiting or is_trusted(self.digest, ledger):
            return self, []
        return config.narrowed(), waiting


_SETTINGS: dict[str, _Setting] = {
    one.name: one.metadata["setting"] for one in fields(Config) if "setting" in one.metadata
}
"""Name of a field of `Config` to its setting."""
_FIELDS = {setting.key: name for name, setting in _SETTINGS.items()}
KEYS = tuple(sorted(_FIELDS))
"""Every setting."""
_BLOCKS = {
    block: tuple(key.partition(".")[2] for key in KEYS if key.startswith(f"{block}."))
    for block in sorted({key.partition(".")[0] for key in KEYS})
}
"""Each key at the top of the file to the keys below it."""


def is_trusted(digest: str, ledger: Ledger) -> bool:
    """Return True if exactly the settings with this digest are what the user accepted last."""
    row = ledger.last(SETTINGS)
    return row is not None and row.digest == digest


def is_accepted(config: Config, ledger: Ledger) -> bool:
    """Return True if settings are trusted as they are, or weaken nothing in a project that is accepted."""
    return ledger.last(SETTINGS) is not None and (not config.weakening() or is_trusted(config.digest, ledger))


def source_files(root: Path, home: Path, secret: tuple[str, ...] = ()) -> SourceFiles:
    """Return the files that a project's settings and manifests may be read from; none of `secret`."""
    return SourceFiles((str(root),), (*hidden_places(str(root), str(home)), *secret))


def load_config(path: Path, root: Path | None = None) -> Config:
    """Read the settings; a missing or empty file leaves the defaults. `root` is the folder of `.mcp.json`.

    Raises `ConfigError` with every error and its position.
    """
    home = path.parent.resolve()
    files = source_files(home.parent if root is None else root, home)
    try:
        document = load(read(str(path), files), str(path))
    except (FileNotFoundError, NotADirectoryError):
        # Without an error its rules and limits would not count, and nobody would notice.
        if (other := path.with_suffix(".yaml")).exists():
            message, hint = f"settings are read only from {path.name}", f"rename it to {path}"
            raise _failure([make(str(other), (1, 1), "file-place", message, hint=hint)]) from None
        config = Config()
    except ManifestError as error:
        raise _failure(diagnostics_of(error)) from None
    else:
        config = _config(document, document)
    if root is None:
        return config
    # In this order: `.mcp.json` adds servers, their data folders belong to what they start, and the
    # digest of that is taken last.
    return replace(config, servers=config.servers.beside(root, files)).with_data(root).with_started(root)


def config_of(text: str, path: Path) -> Config:
    """Return the settings that a text would make in the file at `path`. Raises as `load_config` does."""
    try:
        document = load(text.encode(), str(path))
    except ManifestError as error:
        raise _failure(diagnostics_of(error)) from None
    return _config(document, document)


def _config(document: Document, origin: Document) -> Config:
    """Return the settings of a document; `origin` is the document as it is on disk."""
    reader = Reader(document)
    found: list[Diagnostic] = []
    values: dict[str, Any] = {}
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        known = f"known here: {', '.join(_BLOCKS)}"
        raise _failure([reader.misfit((), "must be a mapping", known, "wrong-type").finding])
    for block, value in data.items():
        try:
            values |= _block(reader, block, value)
        except SettingError as misfit:
            found.append(misfit.finding)
    if found:
        raise _failure(found)
    return Config(**values, document=origin)


def _block(reader: Reader, block: str, value: Any) -> dict[str, Any]:
    """Return the values of one key at the top of the file, by the names of their fields."""
    if block not in _BLOCKS:
        raise reader.unknown((block,), tuple(_BLOCKS))
    if value is None:
        return {}
    below = _BLOCKS[block]
    entries = reader.mapping(value, (block,), below) if below else {"": value}
    found: dict[str, Any] = {}
    for key, one in entries.items():
        at = (block, key) if below else (block,)
        name = _FIELDS[".".join(at)]
        found[name] = _SETTINGS[name].read(reader, one, at)
    return found


def _value(data: Any, key: str) -> Any:
    for part in key.split("."):
        data = (data or {}).get(part)
    return data


def _put(data: Any, key: str, value: Any) -> None:
    """Set the value of a key; None removes it."""
    *above, last = key.split(".")
    for part in above:
        data = data[part]
    data[last] = value
    if value is None:
        del data[last]


def _failure(found: Sequence[Diagnostic]) -> ConfigError:
    error = failure(found)
    return ConfigError(error.message, hint=error.hint, violations=error.violations, details=error.details)
