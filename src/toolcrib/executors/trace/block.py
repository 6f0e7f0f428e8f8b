"""The smallest `permissions` block for a run, as data and as YAML that is ready to paste."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from toolcrib.executors.trace.observation import Observation, Uses, named
from toolcrib.executors.trace.reach import Reach, above, parent
from toolcrib.executors.workspace.grants import GIT_SETTINGS
from toolcrib.manifest.touches import in_words
from toolcrib.sandbox.files.paths import within
from toolcrib.spec import Tool

_MANY = 4
"""More files of one granted folder than this become one line for the folder."""
_MAX_SHOWN = 3
"""Reasons of one line."""
_WHOLE = ("site-packages", "dist-packages", "node_modules", "zoneinfo")
"""Folders that are granted as a whole: which of their files a call reads depends on its arguments."""
_REPOSITORY = ("HEAD", "objects", "refs", "packed-refs")
"""Entries of `.git` without which git finds no repository or no commits."""
_PLAIN = re.compile(r"(?:/|\.{1,2}/|\.)?[A-Za-z_][\w./-]*|\.{1,2}|/", re.ASCII)
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"})
_STANDARD = ("PATH", "HOME", "LANG", "TMPDIR")
"""Variables that every tool has."""


class Line(NamedTuple):
    """One line of a block."""

    permission: str
    """Its place: `network`, `network.allow`, `fs.read`, `fs.write`, `secrets` or `env`."""
    value: str
    why: str

    def as_dict(self) -> dict[str, str]:
        """Return the JSON form; `words` say what the line would grant."""
        return {**self._asdict(), "words": in_words(self.permission, self.value)}


@dataclass(slots=True)
class Block:
    """The permissions that a run needed, and what else it asked for. A block grants nothing."""

    network: Any = False
    """The permission as in a manifest: false, true, host or {allow: […]}."""
    network_why: str = ""
    needed: list[Line] = field(default_factory=list)
    missing: list[Line] = field(default_factory=list)
    """Asked for and not granted in this run: allow it, then trace again."""
    closed: list[Line] = field(default_factory=list)
    """Asked for, and no permission allows it."""
    unused: list[Line] = field(default_factory=list)
    """Granted, and not used in this run: left out."""

    @classmethod
    def of(cls, tool: Tool, seen: Observation) -> Block:
        """Return the block for a run of `tool` with its present permissions."""
        block = cls()
        _network(block, tool, seen)
        if seen.reach is not None:
            _files(block, tool, seen, seen.reach)
        _variables(block, tool, seen)
        return block

    @classmethod
    def taken(cls, lines: Iterable[Line]) -> Block:
        """Return the block of exactly these lines."""
        block = cls(network_why="no host was taken", needed=list(lines))
        if hosts := block.of_kind("network.allow"):
            block.network = {"allow": [line.value for line in hosts]}
        for line in block.of_kind("network"):
            block.network, block.network_why = {"true": True}.get(line.value, line.value), line.why
        return block

    def in_folders(self, root: str) -> Block:
        """Return the block with the folders that a person would grant in place of single paths.

        Of a repository that is all but its settings: `config` may hold credentials, and git works without it.
        """
        return replace(self, needed=_in_folders(self.needed, root), missing=_in_folders(self.missing, root))

    def of_kind(self, permission: str) -> list[Line]:
        """Return the needed lines of one permission."""
        return [line for line in self.needed if line.permission == permission]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; `permissions` is the block as data."""
        groups = ("needed", "missing", "closed", "unused")
        lists = {name: [line.as_dict() for line in getattr(self, name)] for name in groups}
        return {"permissions": self.permissions(), **lists}

    def permissions(self) -> dict[str, Any]:
        """Return the block as a manifest's data."""
        paths = {name: [line.value for line in self.of_kind(f"fs.{name}")] for name in ("read", "write")}
        data = {
            "network": self.network,
            "fs": {name: found for name, found in paths.items() if found},
            "secrets": {line.value: {"type": "string"} for line in self.of_kind("secrets")},
            "env": [line.value for line in self.of_kind("env")],
        }
        return {name: found for name, found in data.items() if found or name == "network"}

    def text(self, secrets: dict[str, dict[str, Any]]) -> str:
        """Return YAML with the reason of each line; `secrets` are the declarations in the manifest."""
        lines = ["permissions:", *self._network_lines()]
        fs = [
            *self._list("    read:", "      ", self.of_kind("fs.read")),
            *self._list("    write:", "      ", self.of_kind("fs.write")),
        ]
        lines += ["  fs:", *fs] if fs else []
        if found := self.of_kind("secrets"):
            lines.append("  secrets:")
            for line in found:
                declared = json.dumps(secrets.get(line.value, {"type": "string"}))
                lines.append(f"    {scalar(line.value)}: {declared}  # {line.why}")
        lines += self._list("  env:", "    ", self.of_kind("env"))
        return "\n".join(lines) + "\n"

    def comments(self, root: str) -> str:
        """Return as comments: broader folders to choose from, and what the block leaves out."""
        lines, broader = [], self.in_folders(root)
        for permission in ("fs.read", "fs.write"):
            if (folders := broader.of_kind(permission)) != self.of_kind(permission):
                values = ", ".join(scalar(line.value) for line in folders)
                lines.append(f"# by folders: {permission}: [{values}]")
        for label, found in (
            ("not granted in this run", self.missing),
            ("never granted", self.closed),
            ("left out", self.unused),
        ):
            lines += [f"# {label}: {line.permission}: {quoted(line.value)}  # {line.why}" for line in found]
        return "".join(f"{line}\n" for line in lines)

    def _network_lines(self) -> list[str]:
        if isinstance(self.network, dict):
            hosts = self.of_kind("network.allow")
            return ["  network:", *self._list("    allow:", "      ", hosts)]
        value = {True: "true", False: "false"}.get(self.network, self.network)
        return [f"  network: {value}  # {self.network_why}"]

    @staticmethod
    def _list(head: str, indent: str, lines: list[Line]) -> list[str]:
        items = [f"{indent}- {scalar(line.value)}  # {line.why}" for line in lines]
        return [head, *items] if items else []


def whole(path: str) -> str:
    """Return the folder above a path that is granted as a whole; else the path itself."""
    parts = path.split("/")
    at = next((at for at, part in enumerate(parts) if part in _WHOLE), len(parts))
    return "/".join(parts[: at + 1])


def _in_folders(lines: Iterable[Line], root: str) -> list[Line]:
    found: dict[tuple[str, str], Line] = {}
    for line in lines:
        is_path = line.permission.startswith("fs.")
        for value in _broader(line.value, root) if is_path else (line.value,):
            why = line.why if value == line.value else f"for {quoted(line.value)}"
            found.setdefault((line.permission, value), Line(line.permission, value, why))
    kept = (line for line in found.values() if not any((line.permission, up) in found for up in _up(line)))
    return sorted(kept, key=lambda line: line[:2])


def _broader(path: str, root: str) -> tuple[str, ...]:
    """Return the paths that a person would grant in place of one."""
    before, inside, below = f"/{path}".rpartition("/.git/")
    if not inside:
        return (whole(path),)
    repository = f"{before}/.git"[1:]
    own = () if (first := below.partition("/")[0]) in GIT_SETTINGS else (first,)
    names = (f"{repository}/{name}" for name in dict.fromkeys((*own, *_REPOSITORY)))
    return tuple(name for name in names if os.path.lexists(os.path.join(root, name)))


def _up(line: Line) -> Iterator[str]:
    path = line.value
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def scalar(text: str) -> str:
    """Return a YAML scalar that stands for exactly this text."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else quoted(text)


def quoted(text: str) -> str:
    """Return a double-quoted YAML scalar without line breaks or characters that control a terminal."""
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else character.encode("unicode_escape").decode()


# -- files ---------------------------------------------------------------------------------------


def _files(block: Block, tool: Tool, seen: Observation, reach: Reach) -> None:
    writes = _fewest(seen.used["write"], reach.write)
    reads = _reads(seen, reach, writes)
    for permission, found in (("fs.read", reads), ("fs.write", writes)):
        block.needed += [Line(permission, reach.written(path), _why(acts)) for path, acts in found.items()]
    block.needed.sort(key=lambda line: line[:2])
    for access in ("read", "write"):
        missing = seen.missing[access]
        if access == "read":  # Write permission includes reading.
            missing = {path: why for path, why in missing.items() if path not in seen.missing["write"]}
        for path, acts in sorted(_fewest(missing, ()).items()):
            away = "" if reach.in_project(path) else "; outside of the project"
            block.missing.append(Line(f"fs.{access}", reach.written(path), _why(acts) + away))
        for path, acts in sorted(_fewest(seen.closed[access], ()).items()):
            block.closed.append(Line(f"fs.{access}", reach.written(path), f"{_why(acts)}; no grant opens it"))
    block.unused += _unused(tool, reach, reads, writes)


def _reads(seen: Observation, reach: Reach, writes: Uses) -> Uses:
    """Return the paths that were read, without those that are writable anyway."""
    reads = dict(seen.used["read"])
    shown = {folder for path in (*reads, *writes, *reach.free) for folder in (path, *above(path))}
    # The tool sees a folder that holds a grant; any other one needs a line.
    reads |= {folder: {"looked for": None} for folder in seen.looked if folder not in shown}
    kept = _fewest({path: why for path, why in reads.items() if not within(path, *writes)}, reach.read)
    written = [reach.place(path) for path in writes]
    for path in reach.read:
        if any(within(path, folder) and path != folder for folder in written):
            # Without its line it would become writable.
            kept[path] = {"stays read-only in a folder that is written": None}
    return kept


def _unused(tool: Tool, reach: Reach, reads: Uses, writes: Uses) -> Iterator[Line]:
    """Yield the tool's grants that no line of the block stands for."""
    read, write = ({reach.place(path) for path in uses} for uses in (reads, writes))
    granted = (("read", tool.permissions.read, read), ("write", tool.permissions.write, write))
    for name, declared, mine in granted:
        for written in declared:
            place = reach.place(os.path.join(reach.root, written))
            if not within(place, *mine) and not any(within(path, place) for path in mine):
                only_read = name == "write" and any(within(path, place) for path in read)
                why = "was only read in this run" if only_read else "was not used in this run"
                yield Line(f"fs.{name}", written, why)


def _fewest(uses: Uses, granted: tuple[str, ...]) -> Uses:
    """Return the uses without paths that others cover, and with one folder for many of its files.

    Only a folder in one of the `granted` places may stand for its files.
    """
    alone = {path: why for path, why in uses.items() if not any(folder in uses for folder in above(path))}
    siblings: dict[str, list[str]] = {}
    for path in alone:
        siblings.setdefault(parent(path), []).append(path)
    for folder, paths in siblings.items():
        if len(paths) > _MANY and within(folder, *granted):
            acts = (f"{act} {quoted(path.rpartition('/')[2])}" for path in paths for act in alone.pop(path))
            alone[folder] = dict.fromkeys(acts)
    return alone if all(path in uses for path in alone) else _fewest(alone, granted)


def _why(acts: Iterable[str]) -> str:
    found = list(acts)
    rest = f" and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return ", ".join(found[:_MAX_SHOWN]) + rest


# -- network -------------------------------------------------------------------------------------


def _network(block: Block, tool: Tool, seen: Observation) -> None:
    network = tool.permissions.network
    allowed = sorted(named(*key) for key, granted in seen.hosts.items() if granted)
    refused = sorted(named(*key) for key, granted in seen.hosts.items() if not granted)
    block.missing += [Line("network.allow", host, "the tool asked for this host") for host in refused]
    if network.mode == "none":
        block.network_why = "none was granted"
        if seen.sockets and not refused:
            why = "the tool asked for an internet socket; the host cannot be observed"
            block.missing.append(Line("network", "allow: [HOST]", why))
    elif not seen.of_process(tool) and network.mode != "hosts":
        block.network = network.as_json()
        block.network_why = (
            f"the host of the tool's own URL: {', '.join(allowed) or 'not called in this run'}"
        )
    elif network.mode == "host" or (not seen.hosts and (seen.sockets or seen.addresses)):
        used = ", ".join(list(seen.addresses)[:_MAX_SHOWN])
        block.network = network.as_json()
        block.network_why = "as declared; which hosts it used cannot be observed"
        block.network_why += f", but addresses: {used}" if used else ""
        block.needed += [Line("network.allow", host, block.network_why) for host in network.allow]
    elif allowed:
        block.network = {"allow": allowed}
        block.needed += [Line("network.allow", host, "reached") for host in allowed]
        unused = (entry for entry in network.allow if not any(_allows(entry, host) for host in allowed))
        block.unused += [Line("network.allow", entry, "was not used in this run") for entry in unused]
    else:
        block.network_why = "no granted host was reached" if seen.hosts else "no socket was asked for"
    if block.network in (True, "host"):
        block.needed.append(Line("network", {True: "true"}.get(block.network, "host"), block.network_why))


def _allows(entry: str, host: str) -> bool:
    """Return True if an entry of an allow-list, such as `*.example.com:8080`, allows a host with port."""
    name, _, port = host.rpartition(":")
    allowed = entry.removesuffix(f":{port}").removeprefix("*")
    return name.endswith(allowed) if entry.startswith("*.") else name == allowed


# -- variables -----------------------------------------------------------------------------------


def _variables(block: Block, tool: Tool, seen: Observation) -> None:
    secrets = [secret.name for secret in tool.permissions.secrets]
    declared = [*(("secrets", name) for name in secrets), *(("env", name) for name in tool.permissions.env)]
    block.needed += [Line(kind, name, _variable(name, tool, seen)) for kind, name in declared]
    for name in sorted({*(seen.variables or ())} - {name for _, name in declared}):
        if name in os.environ and name not in _STANDARD:
            block.missing.append(Line("env", name, "the tool asked for this variable, which is set here"))


def _variable(name: str, tool: Tool, seen: Observation) -> str:
    """Return the reason for one variable. How a process reads its own memory cannot be observed."""
    if not seen.of_process(tool):
        return "declared"
    if seen.variables is None:
        return "declared; whether it was read cannot be observed"
    if name in seen.variables:
        return "read through os.environ"
    return "declared; not read through os.environ, a library may have read it otherwise"
