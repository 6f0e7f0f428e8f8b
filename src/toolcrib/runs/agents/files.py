"""Agents in files: one YAML file for each, checked against the published JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import orjson

from toolcrib.errors import ManifestError
from toolcrib.manifest import (
    ANY_FILE,
    Diagnostic,
    Document,
    SourceFiles,
    diagnostics_of,
    dump,
    failure,
    load,
    make,
    read,
)
from toolcrib.manifest.dialects.base import Translated
from toolcrib.manifest.team import read_team
from toolcrib.manifest.yaml.form import Form, Misfit
from toolcrib.runs.agents.agent import Agent, full_model
from toolcrib.spec.naming import did_you_mean

_SUFFIX = ".yml"
_HAS_AGENTS = re.compile(rb"^agents[ \t]*:", re.MULTILINE)
_File = TypeVar("_File")
_KNOWN = (
    Misfit(("name",), rule="name"),
    Misfit(("script",), "required", message="`model: scripted` needs the key `script`"),
)


@cache
def agent_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of an agent's file."""
    schema: dict[str, Any] = orjson.loads(Path(__file__).with_name("schema.json").read_bytes())
    return schema


@cache
def _form() -> Form:
    return Form(agent_schema(), _KNOWN)


def agent_texts(folder: Path, files: SourceFiles = ANY_FILE) -> dict[str, bytes | ManifestError]:
    """Return the files of a folder of agents by path, in the order of their names; none without a folder.

    A file that cannot be read is the error about it.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX and path.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, bytes | ManifestError] = {}
    for path in paths:
        try:
            found[str(path)] = read(str(path), files)
        except ManifestError as error:
            found[str(path)] = error
        except FileNotFoundError:
            # A file that was removed since the folder was listed is none; a link to nothing is a mistake.
            if path.is_symlink():
                message = "this is a link that leads nowhere"
                found[str(path)] = failure([make(str(path), (1, 1), "unreadable", message)])
    return found


def read_files(
    folder: Path, files: SourceFiles, read_one: Callable[[str, bytes], tuple[_File, Document]]
) -> tuple[dict[str, tuple[_File, Document]], list[Diagnostic]]:
    """Return the agents or workflows of a folder by name, and the findings about files that are none."""
    found: dict[str, tuple[_File, Document]] = {}
    findings: list[Diagnostic] = []
    for path, raw in agent_texts(folder, files).items():
        try:
            if isinstance(raw, ManifestError):
                raise raw
            found[Path(path).stem] = read_one(path, raw)
        except ManifestError as error:
            findings += diagnostics_of(error)
    return found, findings


def read_all(
    folder: Path, teams: Iterable[Path], files: SourceFiles
) -> tuple[dict[str, tuple[Agent, Document]], list[Diagnostic]]:
    """Return the agents of a folder and of team files by name, and the findings about both."""
    found, findings = read_files(folder, files, _read_agent)
    for path in teams:
        try:
            raw = read(str(path), files)
            agents = _read_team_agents(str(path), raw) if _HAS_AGENTS.search(raw) else {}
        except FileNotFoundError:
            continue
        except ManifestError as error:
            findings += diagnostics_of(error)
            continue
        for name, (agent, document) in agents.items():
            if name in found:
                message = f"there is an agent `{name}` in {found[name][1].path} already"
                findings.append(document.diagnostic("wrong-value", message, key=True))
            else:
                found[name] = agent, document
    return found, findings


def read_agent(path: str, raw: bytes) -> tuple[Agent, Document]:
    """Return the agent of a file, and the file. Raises `ManifestError` with every misfit and its position."""
    document = load(raw, path)
    found = _misfits(document)
    if not found and document.data["name"] != Path(path).name.removesuffix(_SUFFIX):
        # An agent is found by the name of its file, so nobody could call it by another one.
        message = f"the name differs from that of the file, {Path(path).name}"
        found.append(document.diagnostic("name-folder", message, ("name",)))
    if found:
        raise failure(found)
    return Agent.of(document.data), document


def read_team_agents(path: str, raw: bytes) -> dict[str, tuple[Agent, Document]]:
    """Return the agents of the map `agents:` of a team file by name, each with its part of the file.

    An entry without `model` is only a list of tools. Raises `ManifestError` with every mistake.
    """
    team, found = read_team(path, raw), []
    agents: dict[str, tuple[Agent, Document]] = {}
    for member in team.members:
        if member.place[0] == "agents" and "model" in member.more:
            data = {"name": member.name, "description": member.role, **member.more, "tools": [*member.skills]}
            if isinstance(data["model"], str):
                data["model"] = full_model(data["model"])
            document = Translated(team.document, data, {(): member.place[:2]})
            # People trust one agent of the file, whatever else is in it.
            document.raw = dump(data).encode()
            misfits = _misfits(document)
            found += misfits
            if not misfits:
                agents[member.name] = Agent.of(data), document
    if found:
        raise failure(found)
    return agents


def _misfits(document: Document) -> list[Diagnostic]:
    """Return what is wrong with the form of one agent."""
    found, data = _form().misfits(document, document.data), document.data
    if not found:
        if data.get("instructions") and data.get("system"):
            message = "`system` is another name for `instructions`: write one of them"
            found.append(document.diagnostic("wrong-value", message, ("system",), key=True))
        both = [name for name in data.get("agents") or () if name in (data.get("tools") or ())]
        for name in both:
            at = ("agents", data["agents"].index(name))
            found.append(document.diagnostic("wrong-value", f"`{name}` is a tool of it as well", at))
    return found


def check_agents(
    agents: Mapping[str, tuple[Agent, Document]], tools: Iterable[str], others: Iterable[str] = ()
) -> list[Diagnostic]:
    """Return a finding for each tool and each agent that an agent lists and that does not exist.

    `others` are agents that are in no file.
    """
    names = sorted(tools)
    known = {"tools": names, "agents": sorted({*agents, *others})}
    found = []
    for agent, document in agents.values():
        for key, there in known.items():
            for at, name in enumerate(getattr(agent, key)):
                if name not in there:
                    hint = did_you_mean(name, there, f"known here: {', '.join(there) or 'none'}")
                    message = f"there is no {key[:-1]} `{name}`"
                    found.append(document.diagnostic("agent", message, (key, at), hint=hint))
    return found


# Files are read for each use, but parsed only if path or bytes differ from the last time.
_read_agent = lru_cache(maxsize=256)(read_agent)
_read_team_agents = lru_cache(maxsize=16)(read_team_agents)
