"""The smallest `permissions` block for what a run used: worked out, and written ready to paste."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolcrib.executors.trace.observation import Observation, Uses
from toolcrib.executors.trace.reach import Reach, above, parent
from toolcrib.executors.workspace.workspace import within
from toolcrib.manifest import kind_of
from toolcrib.spec import Tool

__all__ = ["Block", "Line", "quoted"]

_MANY = 4
"""More files of one folder than this are named by their folder, where the folder was granted."""
_TOLD = 3
_PLAIN = re.compile(r"(?:/|\.{1,2}/|\.)?[A-Za-z_][\w./-]*|\.{1,2}|/")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"})


class Line(NamedTuple):
    """One line of a block: which permission, what it names, and why it is there."""

    permission: str
    """`network`, `fs.read`, `fs.write`, `secrets` or `env`."""
    value: str
    why: str

    def as_dict(self) -> dict[str, str]:
        """JSON form."""
        return self._asdict()


@dataclass(slots=True)
class Block:
    """What a run needed, and what else it asked for. Nothing here grants anything."""

    tool: str
    network: Any = False
    """As a manifest says it: false, true, host or {allow: […]}."""
    network_why: str = ""
    needed: list[Line] = field(default_factory=list)
    missing: list[Line] = field(default_factory=list)
    """Asked for, there, and not granted in this run: it may be allowed, and the tool traced again."""
    closed: list[Line] = field(default_factory=list)
    """Asked for, and no grant opens it."""
    unused: list[Line] = field(default_factory=list)
    """Granted, and not used in this run: left out."""

    @classmethod
    def of(cls, tool: Tool, seen: Observation) -> Block:
        """The block for `tool`, with the permissions that were in force, after what was seen."""
        block = cls(tool.name)
        _network(block, tool, seen)
        if seen.reach is not None:
            _files(block, tool, seen)
        _variables(block, tool, seen)
        return block

    def of_kind(self, permission: str) -> list[Line]:
        """The needed lines of one permission."""
        return [line for line in self.needed if line.permission == permission]

    def as_dict(self) -> dict[str, Any]:
        """JSON form; `permissions` is the block as data."""
        return {
            "permissions": self.permissions(),
            "needed": [line.as_dict() for line in self.needed],
            "missing": [line.as_dict() for line in self.missing],
            "closed": [line.as_dict() for line in self.closed],
            "unused": [line.as_dict() for line in self.unused],
        }

    def permissions(self) -> dict[str, Any]:
        """The block as a manifest's data."""
        data: dict[str, Any] = {"network": self.network}
        paths = {name: [line.value for line in self.of_kind(f"fs.{name}")] for name in ("read", "write")}
        fs = {name: found for name, found in paths.items() if found}
        if fs:
            data["fs"] = fs
        secrets = {line.value: {"type": "string"} for line in self.of_kind("secrets")}
        if secrets:
            data["secrets"] = secrets
        names = [line.value for line in self.of_kind("env")]
        if names:
            data["env"] = names
        return data

    def text(self, secrets: dict[str, dict[str, Any]]) -> str:
        """YAML for the manifest, each line with its reason; `secrets` are their blocks as declared."""
        lines = ["permissions:", *self._network_lines()]
        if self.of_kind("fs.read") or self.of_kind("fs.write"):
            lines.append("  fs:")
            for name in ("read", "write"):
                found = self.of_kind(f"fs.{name}")
                lines += [f"    {name}:"] if found else []
                lines += [f"      - {scalar(line.value)}  # {line.why}" for line in found]
        if self.of_kind("secrets"):
            lines.append("  secrets:")
            for line in self.of_kind("secrets"):
                declared = json.dumps(secrets.get(line.value, {"type": "string"}))
                lines.append(f"    {scalar(line.value)}: {declared}  # {line.why}")
        if self.of_kind("env"):
            lines.append("  env:")
            lines += [f"    - {scalar(line.value)}  # {line.why}" for line in self.of_kind("env")]
        for line in self.missing:
            lines.append(f"# not granted in this run: {line.permission}: {told(line.value)}  # {line.why}")
        for line in self.closed:
            lines.append(f"# never granted: {line.permission}: {told(line.value)}  # {line.why}")
        for line in self.unused:
            lines.append(f"# left out: {line.permission}: {told(line.value)}  # {line.why}")
        return "\n".join(lines) + "\n"

    def _network_lines(self) -> list[str]:
        hosts = self.of_kind("network")
        if not hosts:
            said = {True: "true", False: "false"}.get(self.network, self.network)
            return [f"  network: {said}  # {self.network_why}"]
        return ["  network:", "    allow:", *(f"      - {scalar(h.value)}  # {h.why}" for h in hosts)]


def scalar(text: str) -> str:
    """The text as a YAML scalar that is this text and nothing else."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and text.isascii():
        return text
    return told(text)


def quoted(text: str) -> str:
    """The same, in quotes whatever it is."""
    return f"'{text}'" if text.isprintable() and "'" not in text else told(text)


def told(text: str) -> str:
    """The text in quotes, on one line, with nothing in it that steers a terminal or ends a comment."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# -- files ---------------------------------------------------------------------------------------


def _files(block: Block, tool: Tool, seen: Observation) -> None:
    reach = seen.reach
    assert reach is not None
    writes = _least(seen.used["write"], reach.write)
    reads = _reads(seen, reach, writes)
    for name, found in (("fs.read", reads), ("fs.write", writes)):
        for path, why in sorted(found.items()):
            names = _written_as(path, seen, (*reads, *writes))
            block.needed += [Line(name, reach.written(one), _why(why)) for one in names]
    for access in ("read", "write"):
        uses = {path: why for path, why in seen.missing[access].items() if _not_both(path, access, seen)}
        for path, why in sorted(_least(uses, ()).items()):
            away = "" if reach.in_project(path) else "; outside of the project"
            lines = [reach.written(one) for one in _written_as(path, seen, (*reads, *writes))]
            block.missing += [Line(f"fs.{access}", line, _why(why) + away) for line in lines]
        for path, why in sorted(_least(seen.closed[access], ()).items()):
            block.closed.append(Line(f"fs.{access}", reach.written(path), f"{_why(why)}; no grant opens it"))
    _unused(block, tool, seen, reads, writes)


def _reads(seen: Observation, reach: Reach, writes: Uses) -> Uses:
    """What was read and is not written anyway, which gives reading too."""
    reads = dict(seen.used["read"])
    shown = {folder for path in (*reads, *writes, *reach.free) for folder in (path, *above(path))}
    # It sees a folder that holds a grant; only one without needs a line of its own.
    reads |= {folder: {"looked for": None} for folder in seen.looked if folder not in shown}
    kept = _least({path: why for path, why in reads.items() if not _covered(path, writes)}, reach.read)
    for path in reach.read:
        if any(within(path, folder) and path != folder for folder in writes) and path not in seen.replaced:
            # Taken out, it would become writable.
            kept[path] = {"stays read-only in a folder that is written": None}
    return kept


def _written_as(path: str, seen: Observation, named: Iterable[str]) -> list[str]:
    """How a manifest names a real path: by the links on the way to it, which are then to be seen too.

    A link that lies in a folder of the block is seen with that.
    """
    over = max((real for real in seen.aliases if within(path, real)), key=len, default="")
    names = [link + path[len(over) :] for link in seen.aliases.get(over, ())]
    below = [
        link for real in seen.aliases if real != over and within(real, path) for link in seen.aliases[real]
    ]
    return [name for name in (*names, *below) if not any(within(name, one) for one in named)] or [path]


def _not_both(path: str, access: str, seen: Observation) -> bool:
    """Whether a line for this access says something: to write implies to read.

    What is granted by itself cannot be put or removed.
    """
    return access == "write" or (path not in seen.missing["write"] and path not in seen.replaced)


def _unused(block: Block, tool: Tool, seen: Observation, reads: Uses, writes: Uses) -> None:
    """What is granted, and nothing of the block stands for."""
    reach = seen.reach
    assert reach is not None
    granted = (("read", tool.permissions.read, reads), ("write", tool.permissions.write, writes))
    for name, declared, mine in granted:
        for written in declared:
            place = reach.place(f"{reach.root}/{written}" if written[:1] != "/" else written)
            covered = _covered(place, mine) and not (name == "read" and place in seen.replaced)
            if covered or any(within(path, place) for path in mine):
                continue
            why = "was not used in this run"
            if name == "write" and any(within(path, place) for path in reads):
                why = "was only read in this run"
            if place in seen.replaced:
                why = "is replaced or removed, which nothing can be that is granted by itself"
            block.unused.append(Line(f"fs.{name}", written, why))


def _covered(path: str, folders: Container[str]) -> bool:
    """Whether it is one of the folders or lies below one."""
    return path in folders or any(folder in folders for folder in above(path))


def _least(uses: Uses, granted: tuple[str, ...]) -> Uses:
    """Without what another one covers; many files of one granted folder as that folder."""
    alone = {path: why for path, why in uses.items() if not any(folder in uses for folder in above(path))}
    siblings: dict[str, list[str]] = {}
    for path in alone:
        siblings.setdefault(parent(path), []).append(path)
    for folder, paths in siblings.items():
        if len(paths) > _MANY and any(within(folder, grant) for grant in granted):
            why: dict[str, None] = {}
            for path in paths:
                for act in alone.pop(path):
                    why[f"{act} {told(path.rpartition('/')[2])}"] = None
            alone[folder] = why
    return alone if all(path in uses for path in alone) else _least(alone, granted)


def _why(acts: Iterable[str]) -> str:
    found = list(acts)
    rest = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return ", ".join(found[:_TOLD]) + rest


# -- network -------------------------------------------------------------------------------------


def _network(block: Block, tool: Tool, seen: Observation) -> None:
    network = tool.permissions.network
    let = sorted(_host(*key) for key, granted in seen.hosts.items() if granted)
    refused = sorted(_host(*key) for key, granted in seen.hosts.items() if not granted)
    block.missing += [Line("network", host, "the tool asked for this host") for host in refused]
    if network.mode == "none":
        block.network_why = "none was granted"
        if seen.sockets and not refused:
            why = "an internet socket was asked for; for which host cannot be observed"
            block.missing.append(Line("network", "allow: [HOST]", why))
    elif not kind_of(tool).confined and network.mode != "hosts":
        block.network = network.as_json()
        block.network_why = f"the host of the tool's own URL: {', '.join(let) or 'not called in this run'}"
    elif network.mode == "host":
        _as_declared(block, tool, seen)
    elif seen.hosts:
        _hosts(block, tool, let)
    elif seen.sockets or seen.addresses:
        _as_declared(block, tool, seen)
    else:
        block.network_why = "no socket was asked for"


def _as_declared(block: Block, tool: Tool, seen: Observation) -> None:
    """Where it is not known which hosts were reached, nothing is taken away."""
    network = tool.permissions.network
    used = ", ".join(list(seen.addresses)[:_TOLD])
    block.network = network.as_json()
    block.network_why = "as declared; which hosts it used cannot be observed"
    if used:
        block.network_why += f", but addresses: {used}"
    block.needed += [Line("network", host, block.network_why) for host in network.allow]


def _hosts(block: Block, tool: Tool, let: list[str]) -> None:
    """The hosts that it was let through to."""
    if not let:
        block.network_why = "no granted host was reached"
        return
    block.network = {"allow": let}
    block.needed += [Line("network", host, "reached") for host in let]
    for entry in tool.permissions.network.allow:
        if not any(_names(entry, host) for host in let):
            block.unused.append(Line("network", entry, "was not used in this run"))


def _host(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def _names(entry: str, host: str) -> bool:
    """Whether an entry of an allow-list is what let this host through."""
    name, _, port = entry.removeprefix("*").rpartition(":")
    if not (name and port.isdigit()):
        name, port = entry.removeprefix("*"), ""
    bare, _, used = host.rpartition(":")
    if port and port != used:
        return False
    return bare.endswith(name) if entry.startswith("*.") else bare == name


# -- variables -----------------------------------------------------------------------------------


def _variables(block: Block, tool: Tool, seen: Observation) -> None:
    permissions = tool.permissions
    for name, kind in (
        *((s.name, "secrets") for s in permissions.secrets),
        *((n, "env") for n in permissions.env),
    ):
        block.needed.append(Line(kind, name, _variable(name, tool, seen)))
    declared = {*permissions.env, *(secret.name for secret in permissions.secrets)}
    for name in sorted(set(seen.variables or ()) - declared):
        if name in os.environ and name not in ("PATH", "HOME", "LANG", "TMPDIR"):
            block.missing.append(Line("env", name, "the tool asked for this variable, which is set here"))


def _variable(name: str, tool: Tool, seen: Observation) -> str:
    """What can be said of one variable. A process reads its own memory, which nobody sees from outside."""
    if not kind_of(tool).confined:
        return "declared"
    if seen.variables is None:
        return "declared; whether it was read cannot be observed"
    if name in seen.variables:
        return "read through os.environ"
    return "declared; not read through os.environ, a library may have read it otherwise"
