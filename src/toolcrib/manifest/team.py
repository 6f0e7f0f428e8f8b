"""Teams: the tools that each member may use, by `members[].skills` of a team file or its map `agents:`.

The lists are compared with the existing tools. Other keys are kept as they are: `runs.agents` makes agents of
the entries of `agents:` that name a model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cache
from typing import Any

from toolcrib.errors import NotFoundError
from toolcrib.manifest.dialects.vega.reader import load_team as load_text
from toolcrib.manifest.yaml.diagnostics import Diagnostic, failure, quoted
from toolcrib.manifest.yaml.form import Form
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import ANY_FILE, Document, SourceFiles, read
from toolcrib.spec.naming import did_you_mean, suggestion
from toolcrib.spec.record import record


@record
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


@record
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
        hint = suggestion(name, names, f"Known here: {', '.join(names) or 'nobody'}.")
        raise NotFoundError(f"{self.document.path} has no member {name!r}", hint=hint)


def load_team(path: str | os.PathLike[str], files: SourceFiles = ANY_FILE) -> Team:
    """Read a team file: `team.member(NAME).skills` are the tools that a member may use.

    Raises NotFoundError if there is none, ManifestError with every mistake in its form.
    """
    name = os.fspath(path)
    try:
        return read_team(name, read(name, files))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no team file {name}") from None


def read_team(path: str, raw: bytes) -> Team:
    """Return the team of a file. Raises ManifestError with every mistake in its form."""
    document = load_text(raw, path)
    data = document.data
    if not isinstance(data, dict) or not ({"members", "agents"} & data.keys()):
        message = "a team file has `members:` (a list) or `agents:` (a mapping)"
        raise failure([document.diagnostic("not-a-mapping", message)])
    found = _form().misfits(document, data)
    members: dict[str, Member] = {}
    for place, name, block, key in () if found else _entries(data):
        if name in members:
            message = f"{quoted(name)} is defined twice"
            found.append(document.diagnostic("wrong-value", message, place))
        for written in block:
            hint = did_you_mean(written, (key,))
            if written != key and hint is not None:
                message = f"there is no key {quoted(written)} here"
                at = (*place, written)
                found.append(document.diagnostic("unknown-key", message, at, key=True, hint=hint))
        skills = tuple(dict.fromkeys(block.get(key) or ()))
        more = {written: value for written, value in block.items() if written not in ("name", "role", key)}
        members[name] = Member(name, skills, block.get("role") or "", more, (*place, key))
    if found:
        raise failure(found)
    return Team(tuple(members.values()), document)


def check_team(team: Team, names: Iterable[str]) -> list[Diagnostic]:
    """Return a finding for each listed tool that does not exist, with the nearest name."""
    known = sorted(names)
    there = frozenset(known)
    found: list[Diagnostic] = []
    for member in team.members:
        for at, skill in enumerate(member.skills):
            if skill not in there:
                hint = did_you_mean(skill, known, "`toolcrib list` shows the tools that there are")
                message = f"{quoted(member.name)} lists {quoted(skill)}, but there is no such tool"
                place = (*member.place, at)
                found.append(team.document.diagnostic("team", message, place, hint=hint))
    return found


def _entries(data: dict[str, Any]) -> Iterator[tuple[KeyPath, str, dict[str, Any], str]]:
    """Yield each entry: its position, its name, its block, and the key of its list of tools."""
    for at, block in enumerate(data.get("members") or ()):
        yield ("members", at), block["name"], block, "skills"
    for name, block in (data.get("agents") or {}).items():
        yield ("agents", name), name, block, "tools"


_NAMES = {"type": ["array", "null"], "items": {"type": "string"}}
_ROLE = {"type": ["string", "null"]}
_MEMBER = {"name": {"type": "string", "pattern": r"\S"}, "role": _ROLE, "skills": _NAMES}
_AGENT = {"role": _ROLE, "tools": _NAMES}
_MEMBERS = {"type": "object", "required": ["name"], "properties": _MEMBER}
_AGENTS = {"type": "object", "properties": _AGENT}


@cache
def _form() -> Form:
    properties = {
        "members": {"type": ["array", "null"], "items": _MEMBERS},
        "agents": {"type": ["object", "null"], "additionalProperties": _AGENTS},
    }
    return Form({"type": "object", "properties": properties})
