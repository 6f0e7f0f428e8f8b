"""The digest of a whole project, the same in every folder and on every machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path

from toolcrib.errors import ToolcribError
from toolcrib.guard import ToolDigest
from toolcrib.manifest import SourceFiles
from toolcrib.project.integrity.lock import pin_of
from toolcrib.project.root import Place
from toolcrib.spec import Tool
from toolcrib.spec.record import record


@record
class ProjectDigest:
    """The digest of a whole project, and those of its tools, agents and workflows by name."""

    digest: str
    tools: Mapping[str, str] = field(default_factory=dict)


def digest_of_project(
    settings: str,
    place: Place,
    files: SourceFiles,
    tools: Iterable[Tool],
    digest_of: Callable[[Tool], ToolDigest],
) -> ProjectDigest:
    """Return the digest of everything that a project brings, the same in every folder and on every machine.

    It covers settings, agents and workflows (read by `files`) and, for each tool, what its own digest covers,
    but no programs outside of the project. A tool that cannot be used now has another digest once it can.
    """
    from toolcrib.runs.agents.files import agent_texts

    root, parts, versions = place.root, dict[str, object](), dict[str, str]()
    for kind, folder in (("agent", place.agents), ("workflow", place.workflows)):
        for path, raw in agent_texts(folder, files).items():
            digest = raw.code if isinstance(raw, ToolcribError) else hashlib.sha256(raw).hexdigest()
            parts[f"/{os.path.relpath(path, root)}"] = digest
            versions[f"{kind}:{Path(path).stem}"] = digest
    for tool in tools:
        if tool.source is None:
            continue
        try:
            found = digest_of(tool)
        except ToolcribError as error:
            parts[tool.name] = error.code
            continue
        versions[tool.name] = found.digest
        pinned = pin_of(found, root).parts
        # An absolute path after the kind (`entrypoint//usr/bin/git`) is a program of this machine.
        parts[tool.name] = {name: value for name, value in pinned.items() if "//" not in name}
    whole = json.dumps([settings, parts], sort_keys=True, separators=(",", ":"))
    return ProjectDigest(hashlib.sha256(whole.encode(errors="surrogateescape")).hexdigest(), versions)
