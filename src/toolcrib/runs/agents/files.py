"""Agents in files: one YAML file for each, checked against the published JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
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
    failure,
    load,
    make,
    read,
)
from toolcrib.manifest.yaml.form import Form, Misfit
from toolcrib.runs.agents.agent import Agent
from toolcrib.spec.naming import did_you_mean

_SUFFIX = ".yml"
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


def read_agent(path: str, raw: bytes) -> tuple[Agent, Document]:
    """Return the agent of a file, and the file. Raises `ManifestError` with every misfit and its position."""
    document = load(raw, path)
    found = _form().misfits(document, document.data)
    if not found:
        data = document.data
        if data["name"] != Path(path).name.removesuffix(_SUFFIX):
            # An agent is found by the name of its file, so nobody could call it by another one.
            message = f"the name differs from that of the file, {Path(path).name}"
            found.append(document.diagnostic("name-folder", message, ("name",)))
        if data.get("instructions") and data.get("system"):
            message = "`system` is another name for `instructions`: write one of them"
            found.append(document.diagnostic("wrong-value", message, ("system",), key=True))
        both = [name for name in data.get("agents") or () if name in (data.get("tools") or ())]
        for name in both:
            at = ("agents", data["agents"].index(name))
            found.append(document.diagnostic("wrong-value", f"`{name}` is a tool of it as well", at))
    if found:
        raise failure(found)
    return Agent.of(document.data), document


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
