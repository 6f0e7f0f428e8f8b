"""The files, hosts and secrets that a call may touch, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

from toolcrib.manifest.kinds import IN_PROCESS, kind_of
from toolcrib.spec import Tool

Touch = Literal["network", "read", "write", "secrets", "environment", "code", "tools", "nothing"]
"""Words for the things that a tool may touch: `code` is code that is not confined or comes with a call."""

_WORDS = {
    "network": "network: {}",
    "network.allow": "network: {}",
    "fs.read": "read {}",
    "fs.write": "write {}",
    "secrets": "secret {}",
    "env": "environment variable {}",
}
_NETWORKS = {"true": "any public host", "host": "this machine's whole network"}


def touched(tool: Tool) -> frozenset[Touch]:
    """Return what a call of this tool may touch, in words to count tools by."""
    return frozenset(what for what, _ in _lines(tool)) or frozenset({"nothing"})


def may_touch(tool: Tool) -> list[str]:
    """List in words what a call of this tool may touch, one line each."""
    return [line for _, line in _lines(tool)] or ["nothing of this machine"]


def effects(tool: Tool) -> list[str]:
    """List those lines that say more than that it reads files: they are the reasons to ask for trust."""
    return [line for what, line in _lines(tool) if what not in ("read", "tools") and line != IN_PROCESS]


def hosts(tool: Tool) -> list[str]:
    """Return the hosts that the requests of a tool may reach; none for a kind that sends no request."""
    url = kind_of(tool).url(tool.config)
    if url and tool.permissions.network.mode == "hosts":
        return list(tool.permissions.network.allow)
    with suppress(ValueError):
        url = urlsplit(url).netloc.rpartition("@")[2] or url
    return [url] if url else []


def in_words(permission: str, value: str) -> str:
    """Return what a line of a manifest's `permissions` allows, by its place there, such as `fs.read`."""
    if permission == "network":
        value = _NETWORKS.get(value, value)
    return _WORDS[permission].format(value)


def _lines(tool: Tool) -> Iterator[tuple[Touch, str]]:
    permissions, kind = tool.permissions, kind_of(tool)
    if network := _network(tool):
        yield "network", _WORDS["network"].format(network)
    yield from (("read", in_words("fs.read", path)) for path in permissions.read)
    yield from (("write", in_words("fs.write", path)) for path in permissions.write)
    yield from (("secrets", in_words("secrets", secret.name)) for secret in permissions.secrets)
    yield from (("environment", in_words("env", name)) for name in permissions.env)
    yield from (("code", line) for line in kind.touches(tool))
    if names := ", ".join(dict.fromkeys(name for _, name in kind.calls(tool.config))):
        yield "tools", f"everything that the tools it calls may touch: {names}"


def _network(tool: Tool) -> str:
    network, url = tool.permissions.network, kind_of(tool).url(tool.config)
    if network.mode == "hosts":
        return ", ".join(network.allow)
    anywhere = f"the host of {url}" if url else _NETWORKS["true"]
    return {"none": "", "host": _NETWORKS["host"]}.get(network.mode, anywhere)
