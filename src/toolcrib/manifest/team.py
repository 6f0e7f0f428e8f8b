"""Teams: the tools that each member may use, by `members[].skills` of a team file or its map `agents:`.

The lists are compared with the existing tools. Other keys (model, system prompt) are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from toolcrib.errors import NotFoundError
from toolcrib.manifest.yaml.diagnostics import Diagnostic, failure, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document, load
from toolcrib.spec.naming import nearest


@dataclass(frozen=True, slots=True)
class Member:
    """One member or agent of a team."""

    name: str
    skills: tuple[str, ...] = ()
    """The names of the tools that it may use; an empty list allows none."""
    role: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    """The other keys, as written."""
    place: KeyPath = ()
    """The position of its list of tools in the file."""


@dataclass(frozen=True, slots=True)
class Team:
    """The members and agents of one file."""

    members: tuple[Member, ...]
    document: Document

    def member(self, name: str) -> Member:
        """Return the member of that name. Raises NotFoundError with the nearest one."""
        for member in self.members:
            if member.name == name:
                return member
        names = [member.name for member in self.members]
        close = nearest(name, names)
        hint = f"Did you mean {close!r}?" if close else f"Known here: {', '.join(names) or 'nobody'}."
        raise NotFoundError(f"{self.document.path} has no member {name!r}", hint=hint)


def read_team(path: str, raw: bytes) -> Team:
    """Return the team of a file. Raises ManifestError with every mistake in its form."""
    document = load(raw, path)
    found: list[Diagnostic] = []
    members: list[Member] = []
    data = document.data
    if not isinstance(data, dict) or not ({"members", "agents"} & data.keys()):
        message = "a team file has `members:` (a list) or `agents:` (a mapping)"
        raise failure([document.diagnostic("not-a-mapping", message)])
    for place, name, block, key in _entries(document, found):
        member = _member(document, place, name, block, key, found)
        if any(member.name == other.name for other in members):
            message = f"{quoted(member.name)} is defined twice"
            found.append(document.diagnostic("wrong-value", message, place))
        members.append(member)
    if found:
        raise failure(sorted(found, key=lambda finding: (finding.line, finding.column)))
    return Team(tuple(members), document)


def check_team(team: Team, names: Iterable[str]) -> list[Diagnostic]:
    """Return a finding for each listed tool that does not exist, with the nearest name."""
    known = sorted(names)
    there = frozenset(known)
    found: list[Diagnostic] = []
    for member in team.members:
        for at, skill in enumerate(member.skills):
            if skill not in there:
                close = nearest(skill, known)
                hint = (
                    f"did you mean `{close}`?" if close else "`toolcrib list` shows the tools that there are"
                )
                message = f"{quoted(member.name)} lists {quoted(skill)}, and there is no such tool"
                place = (*member.place, at)
                found.append(team.document.diagnostic("team", message, place, hint=hint))
    return found


def _entries(
    document: Document, found: list[Diagnostic]
) -> Iterator[tuple[KeyPath, Any, dict[str, Any], str]]:
    """Yield each entry: its position, its name, its block, and the key of its list of tools."""
    members, agents = document.data.get("members"), document.data.get("agents")
    if members is not None and not isinstance(members, list):
        found.append(document.diagnostic("wrong-type", "`members` must be a list", ("members",), key=True))
        members = None
    if agents is not None and not isinstance(agents, dict):
        found.append(document.diagnostic("wrong-type", "`agents` must be a mapping", ("agents",), key=True))
        agents = None
    blocks: list[tuple[KeyPath, Any, Any, str]] = []
    for at, block in enumerate(members or []):
        name = block.get("name") if isinstance(block, dict) else None
        blocks.append((("members", at), name, block, "skills"))
    blocks += [(("agents", name), name, block, "tools") for name, block in (agents or {}).items()]
    for place, name, block, key in blocks:
        if not isinstance(block, dict):
            found.append(document.diagnostic("wrong-type", "must be a mapping", place))
        else:
            yield place, name, block, key


def _member(
    document: Document, place: KeyPath, name: Any, block: dict[str, Any], key: str, found: list[Diagnostic]
) -> Member:
    if not isinstance(name, str) or not name.strip():
        found.append(document.diagnostic("missing-key", "`name` is missing", place))
        name = ""
    skills = block.get(key)
    if skills is None:
        skills = []
    if not isinstance(skills, list) or not all(isinstance(skill, str) for skill in skills):
        message = f"`{key}` must be a list of names of tools"
        found.append(document.diagnostic("wrong-type", message, (*place, key)))
        skills = []
    for written in block:
        close = nearest(written, (key,))
        if written != key and close is not None:
            message = f"there is no key {quoted(written)} here"
            hint = f"did you mean `{key}`?"
            found.append(document.diagnostic("unknown-key", message, (*place, written), key=True, hint=hint))
    more = {written: value for written, value in block.items() if written not in ("name", "role", key)}
    role = block.get("role")
    return Member(
        name, tuple(dict.fromkeys(skills)), role if isinstance(role, str) else "", more, (*place, key)
    )
