"""Read the `mcpServers` map of MCP servers, whose format MCP clients share, and write one server into it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from toolcrib.errors import NotFoundError, ToolUnavailable, UsageError
from toolcrib.spec import Network, Permissions, SecretSpec
from toolcrib.spec.naming import did_you_mean, suggestion
from toolcrib.spec.record import record

_NAME = re.compile(r"[A-Za-z0-9](?!.*__)[A-Za-z0-9_-]{0,31}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PLAIN = frozenset({"HOME", "USER", "LANG", "PATH", "PWD", "SHELL", "TMPDIR", "LOGNAME", "TZ"})
"""Variables that are never secrets."""
_TRANSPORTS: Mapping[str, Literal["stdio", "http", "sse"]] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_MOST = 100
_LONGEST = 8_192
KEYS = (
    "type", "command", "args", "env", "cwd", "url", "headers", "oauth", "permissions", "prefix",
    "start_timeout_s", "tools", "disabled_tools",
)  # fmt: skip
"""The keys of a server. In `.mcp.json` others have no effect: they may belong to other clients."""
_OF_HOSTS = {
    "allowedTools": "tools",
    "includeTools": "tools",
    "enabled_tools": "tools",
    "disabledTools": "disabled_tools",
    "excludeTools": "disabled_tools",
    "serverUrl": "url",
    "httpUrl": "url",
}
"""Key in `.mcp.json`, as hosts write it, to the same one here. Sources: the settings of Gemini CLI
(`includeTools`, `excludeTools`, `httpUrl`), Codex (`enabled_tools`), Kiro (`disabledTools`) and Windsurf
(`disabledTools`, `serverUrl`)."""
_HOST_VARIABLE = re.compile(r"\$\{(?:(env|input):([^}]+)|(workspaceFolder|userHome))\}")
"""Variables of VS Code, which Cursor has too."""
_OTHER_VARIABLE = re.compile(r"\$\{\w+:(?!-)[^}]*\}")


@record
class OAuthClient:
    """The client of a login, if the settings name one."""

    client_id: str = ""
    client_secret: str = ""
    """May contain `${NAME}`."""
    callback_port: int = 0


@record
class Resolved:
    """The program of a launcher's package, as it was downloaded when the server was trusted."""

    line: tuple[str, ...]
    """The launcher and its words, up to the program's own arguments."""
    argv: tuple[str, ...]
    """The program that is started instead: its path, after that of its interpreter if it has one."""
    folder: str
    """The folder that it was downloaded into."""


@record
class ServerSpec:
    """One MCP server, local or remote. Its texts may contain `${NAME}` and `${NAME:-default}`."""

    name: str
    transport: Literal["stdio", "http", "sse"]
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "."
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    permissions: Permissions = field(default_factory=Permissions)
    """The permissions of its process; for a remote server, the other hosts that it may redirect to."""
    states_files: bool = False
    """True if its `permissions` state `fs`: then nothing is added to that."""
    states_network: bool = False
    """True if they state `network`: then `toolcrib trust` grants no hosts."""
    data: tuple[str, ...] = ()
    """The folders in `permissions.write` that are there because its command line names them."""
    unwritable: tuple[str, ...] = ()
    """Other places that its command line names for data, each with the reason and what to do."""
    oauth: OAuthClient = OAuthClient()
    prefix: bool = True
    """Its tools are named `SERVER__TOOL` here, else as they are."""
    tools: tuple[str, ...] = ("*",)
    """The only tools that it offers here, by its own names; `*` is every one."""
    disabled_tools: tuple[str, ...] = ()
    """Tools that it does not offer here."""
    start_timeout_s: float = 30.0
    """Seconds until it must have listed its tools."""
    resolved: Resolved | None = None
    """The command that its launcher was resolved to when it was trusted."""
    identity: str = ""
    """SHA-256 in hex of the name, the command or address, and the folder."""

    @property
    def is_local(self) -> bool:
        """True if it is a program that is started on this machine."""
        return self.transport == "stdio"

    @property
    def where(self) -> str:
        """The command line or the address, as it is written."""
        return " ".join((self.command, *self.args)) if self.is_local else self.url


def servers_key(raw: Any) -> str:
    """Return the key of a document's servers: `mcpServers`, or `servers` as VS Code writes it."""
    return (
        "servers"
        if isinstance(raw, dict) and "servers" in raw and not raw.get("mcpServers")
        else "mcpServers"
    )


def read_servers(raw: Any, folder: str = ".") -> tuple[list[ServerSpec], dict[str, str], dict[str, str]]:
    """Return the servers of a document, and by name the errors of invalid ones, and what has no effect here.

    An entry may be written as other hosts write it. `folder` is the project's root. A server that is switched
    off is left out. Unknown keys have no effect; only in an entry that has neither `command` nor `url` the
    first of them is the error.
    """
    key = servers_key(raw)
    block = raw.get(key, {}) if isinstance(raw, dict) else None
    if not isinstance(block, dict):
        return [], {"": f"must have an object `{key}`: name, then command and args, or url"}, {}
    if key == "mcpServers" and "servers" in raw:
        return [], {"": "has both `mcpServers` and `servers`; write all servers under `mcpServers`"}, {}
    found: list[ServerSpec] = []
    wrong: dict[str, str] = {}
    notes: dict[str, str] = {}
    for name, entry in list(block.items())[:_MOST]:
        try:
            spec, note = _read_shared(name, entry, folder)
            found += [spec] if spec is not None else []
            notes |= {name: note} if note else {}
        except ValueError as error:
            wrong[name] = str(error)
    for name in list(block)[_MOST:]:
        wrong[name] = f"is beyond the {_MOST} servers that a project may have"
    return found, wrong, notes


def _read_shared(name: str, entry: Any, folder: str) -> tuple[ServerSpec | None, str]:
    """Return the server of an entry as hosts write it, None if it is switched off, and what has no effect."""
    if not isinstance(entry, dict):
        return read_server(name, entry), ""
    if off := _switched_off(entry):
        return None, f"it is disabled by {off}, so it is not started"
    ours = _as_here(entry, folder)
    started = not {"command", "url"}.isdisjoint(ours)
    if name in KEYS and not started:
        raise ValueError(f"is not a server; write `{name}` inside of one, beside its `command`")
    spec = read_server(name, {key: ours[key] for key in ours if key in KEYS} if started else ours)
    ignored = [f"`{key}`" for key in ours if key not in (*KEYS, *_SWITCHES)]
    return spec, f"{', '.join(ignored)}: of other hosts, without effect here" if ignored else ""


_SWITCHES = {"disabled": True, "enabled": False}
"""Key of an entry to the value that switches the server off."""


def _switched_off(entry: Mapping[str, Any]) -> str:
    """Return the member of an entry that switches the server off, or ""."""
    for key, off in _SWITCHES.items():
        if not isinstance(entry.get(key, False), bool):
            raise ValueError(f"`{key}` must be true or false")
        if entry.get(key) is off:
            return f"`{key}: {str(off).lower()}`"
    return ""


def _as_here(entry: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return an entry with the keys and variables that other hosts have for what there is here."""
    made: dict[str, Any] = {}
    for key, value in entry.items():
        ours = _OF_HOSTS.get(key, key)
        if ours in made:
            raise ValueError(f"`{key}` says again what another key says; write one of them")
        made[ours] = _with_our_variables(value, folder)
    return made


def _with_our_variables(value: Any, folder: str) -> Any:
    if isinstance(value, list):
        return [_with_our_variables(one, folder) for one in value]
    if isinstance(value, dict):
        return {name: _with_our_variables(one, folder) for name, one in value.items()}
    if not isinstance(value, str):
        return value

    def ours(match: re.Match[str]) -> str:
        kind, name, place = match.groups()
        if place:
            return folder if place == "workspaceFolder" else "${HOME}"
        return f"${{{name if kind == 'env' else re.sub(r'[^A-Za-z0-9]', '_', name).upper()}}}"

    return _HOST_VARIABLE.sub(ours, value)


def read_server(name: Any, entry: Any) -> ServerSpec:
    """Return one server. Raises ValueError with the reason if it is invalid or has an unknown key."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("a server's name has 1 to 32 letters, digits, `-` or `_`, and never `__`")
    if not isinstance(entry, dict):
        raise ValueError("must be a mapping with `command` or `url`")
    for key in entry:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS, f"known: {', '.join(KEYS)}")
            raise ValueError(f"`{key}` is not a key of a server; {hint}")
    if {"command", "url"}.isdisjoint(entry):
        raise ValueError("a server has `command` or `url`")
    kind = entry.get("type") or ("stdio" if "command" in entry else "http")
    transport = _TRANSPORTS.get(kind) if isinstance(kind, str) else None
    if transport is None:
        raise ValueError(f"`type` must be stdio, http or sse, not {kind!r}")
    local = transport == "stdio"
    wanted, other = ("command", "url") if local else ("url", "command")
    if not entry.get(wanted) or other in entry:
        raise ValueError(f"a server of type {transport} has `{wanted}` and no `{other}`")
    parts: dict[str, Any] = {
        "command": _text(entry, "command"),
        "args": tuple(_listed(entry.get("args"), "args")),
        "env": _texts(entry, "env"),
        "cwd": _text(entry, "cwd") or ".",
        "url": _url(entry),
        "headers": _texts(entry, "headers"),
    }
    parts["oauth"] = _oauth(entry.get("oauth"), local)
    _refuse_other_variables(parts)
    parts |= {
        key: tuple(_listed(entry[key], key))
        for key in ("tools", "disabled_tools")
        if entry.get(key) is not None
    }
    parts["permissions"] = _permissions(entry.get("permissions"), parts, local)
    stated = entry.get("permissions") or {}
    parts |= {"states_files": "fs" in stated, "states_network": "network" in stated}
    _refuse_secret_arguments(parts)
    parts["prefix"] = entry.get("prefix", True)
    if not isinstance(parts["prefix"], bool):
        raise ValueError("`prefix` must be true or false")
    timeout = entry.get("start_timeout_s", 30)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0.1 <= timeout <= 600:
        raise ValueError("`start_timeout_s` must be a number from 0.1 to 600")
    whole = json.dumps([name, transport, parts["command"], parts["args"], parts["url"], parts["cwd"]])
    identity = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    return ServerSpec(name, transport, **parts, start_timeout_s=float(timeout), identity=identity)


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its variables replaced.

    Raises ToolUnavailable for a variable that has neither a value nor a default.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = values.get(name)
        if default is not None:
            return found or default
        if found is None:
            hint = f"Set it, or write ${{{name}:-default}}."
            raise ToolUnavailable(f"the variable {name} is not set", hint=hint)
        return found

    return _VARIABLE.sub(value, text)


def _permissions(block: Any, parts: Mapping[str, Any], local: bool) -> Permissions:
    """Return the stated permissions; by default the project is readable, and there is no network."""
    if block is None:
        block = {}
    if not isinstance(block, dict) or not set(block) <= {"network", "fs", "secrets", "env"}:
        raise ValueError("`permissions` may have network, fs, secrets and env")
    files = block.get("fs", {"read": ["."] if local else []})
    if not isinstance(files, dict) or not set(files) <= {"read", "write"}:
        raise ValueError("`permissions.fs` may have read and write")
    env = tuple(_listed(block.get("env"), "permissions.env"))
    try:
        network = Network.parse(block.get("network", False))
    except ValueError as error:
        raise ValueError(f"`permissions.{error}`") from None
    secrets = {name: SecretSpec(name) for name in _listed(block.get("secrets"), "permissions.secrets")}
    for name, required in _variables(parts):
        if name in _PLAIN or name in env:
            env = (*env, name) if name not in env else env
        elif name not in secrets or required:
            secrets[name] = SecretSpec(name, required=required or name in secrets)
    return Permissions(
        network=network,
        read=tuple(_listed(files.get("read"), "permissions.fs.read")),
        write=tuple(_listed(files.get("write"), "permissions.fs.write")),
        secrets=tuple(secrets.values()),
        env=env,
    )


def _oauth(block: Any, local: bool) -> OAuthClient:
    """Return the client of a login. Other clients write these names with capital letters."""
    if block is None:
        return OAuthClient()
    if local or not isinstance(block, dict):
        raise ValueError("`oauth` must be a mapping, of a server with a `url`")
    names = {"clientId": "client_id", "clientSecret": "client_secret", "callbackPort": "callback_port"}
    known = {names.get(str(key), str(key)): value for key, value in block.items()}
    if wrong := set(known) - set(names.values()):
        raise ValueError(f"`oauth.{min(wrong)}` is not known; known: {', '.join(names.values())}")
    port = known.get("callback_port", 0)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:
        raise ValueError("`oauth.callback_port` must be a port")
    return OAuthClient(_text(known, "client_id"), _text(known, "client_secret"), port)


def _refuse_other_variables(parts: Mapping[str, Any]) -> None:
    """Refuse variables that would be sent as they are written."""
    for text in _all_texts(parts):
        if _OTHER_VARIABLE.search(text):
            raise ValueError(f"{text!r} has a variable that only other hosts know; write ${{NAME}}")


def _refuse_secret_arguments(parts: Mapping[str, Any]) -> None:
    """Refuse secrets in a command line, which any user of the machine can read."""
    secrets = {secret.name for secret in parts["permissions"].secrets}
    for key, texts in (("command", (parts["command"],)), ("args", parts["args"])):
        named = (match.group(1) for text in texts for match in _VARIABLE.finditer(text))
        name = next((name for name in named if name in secrets), None)
        if name is not None:
            raise ValueError(
                f"the secret {name} cannot be used in `{key}`: any user of the machine can read a command "
                "line; set it in `env`, or name it in `permissions.env` if it is not a secret"
            )


def _variables(parts: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield every variable of the texts, with True if it has no default."""
    for text in _all_texts(parts):
        for match in _VARIABLE.finditer(text):
            yield match.group(1), match.group(2) is None


def _all_texts(parts: Mapping[str, Any]) -> list[str]:
    """Return every text of a server that may contain variables."""
    return [
        parts["command"],
        parts["url"],
        *parts["args"],
        *parts["env"].values(),
        *parts["headers"].values(),
        parts["oauth"].client_secret,
    ]


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str) or len(value) > _LONGEST or "\0" in value:
        raise ValueError(f"`{key}` must be a text")
    return value


def _url(entry: Mapping[str, Any]) -> str:
    url = _text(entry, "url")
    # The value of a variable is known only when the server is called.
    if url and _VARIABLE.search(url) is None:
        from toolcrib.egress import Destination

        try:
            Destination.parse(url)
        except ValueError as error:
            raise ValueError(f"`url` is {url!r}: {error}") from None
    return url


def _listed(value: Any, key: str) -> list[str]:
    value = [] if value is None else value
    if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise ValueError(f"`{key}` must be a list of texts")
    return value


def _texts(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    value = entry.get(key) or {}
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and name and isinstance(text, str) and "\0" not in name + text
        for name, text in value.items()
    ):
        raise ValueError(f"`{key}` must be a mapping of names to texts")
    return dict(value)


def with_server(text: str, path: Path, keys: Sequence[str], name: str, server: dict[str, Any]) -> str:
    """Return a file's text with a server added below these keys, or changed if the name is there already.

    Raises UsageError for a file that cannot be changed so.
    """
    try:
        document, servers = _parsed(text, keys)
        servers[name] = server
    except (ValueError, AttributeError, TypeError):
        raise cannot_change(path, json.dumps({name: server}, indent=2), keys) from None
    return _as_json(document, text)


def without_server(text: str, path: Path, keys: Sequence[str], name: str) -> str:
    """Return a JSON file's text without a server. Raises UsageError as `with_server`, and NotFoundError."""
    try:
        document, servers = _parsed(text, keys)
        names = list(servers)
        servers.pop(name, None)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"{path} cannot be changed without losing something in it: comments, or another form",
            hint=f"Remove {name} from it yourself.",
        ) from None
    if name not in names:
        raise NotFoundError(f"{path} has no server {name!r}", hint=suggestion(name, names, ""))
    return _as_json(document, text)


def _parsed(text: str, keys: Sequence[str]) -> tuple[Any, Any]:
    """Return a JSON document, and the servers in it, below these keys."""
    # Written anew, a file would lose comments and keys that are there twice: one with either is refused.
    document = servers = json.loads(text, object_pairs_hook=_without_duplicates) if text.strip() else {}
    for key in keys:
        servers = servers.setdefault(key, {})
    return document, servers


def _as_json(document: Any, like: str) -> str:
    indent = re.search(r"\n([ \t]+)\S", like)
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def cannot_change(path: Path, entry: str, keys: Sequence[str]) -> UsageError:
    return UsageError(
        f"{path} cannot be changed without losing something in it: comments, another form, or an entry"
        " of this name",
        hint=f"Add this to it yourself, under {' → '.join(keys)}:\n{entry}",
        details={"path": str(path), "entry": entry},
    )
