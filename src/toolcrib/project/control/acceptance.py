"""Acceptance: a project that this user neither made nor accepted runs no tool, at any interface."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolcrib.core.context import Context
from toolcrib.errors import NotTrusted, ToolcribError
from toolcrib.guard import ToolDigest, Trust
from toolcrib.manifest import SourceFiles
from toolcrib.project.integrity.lock import pin_of
from toolcrib.project.root import Place
from toolcrib.spec import Tool
from toolcrib.spec.calls.caller import OWN_CALLERS
from toolcrib.spec.record import record
from toolcrib.state import user_settings_file


@record
class ProjectDigest:
    """The digest of a whole project, and those of its tools, agents and workflows by name."""

    digest: str
    tools: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Acceptance:
    """The rule about one project as a whole.

    `whole`: the program that opened it accepts everything in it. `versions` are the digests of the tools that
    this user's settings accept.
    """

    trust: Trust
    digest: Callable[[], ProjectDigest]
    whole: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    _accepted: bool = False

    def require(self, ctx: Context) -> None:
        """Refuse a call of a tool of the project, before anything else is looked at: `NotTrusted`.

        Once it is accepted, in whatever process, the next call runs.
        """
        tool = ctx.bound.tool
        if self._accepted or (tool.source is None and tool.kind != "mcp"):
            return
        if not self.given:
            raise self.refusal(own=ctx.identity is None and ctx.caller in OWN_CALLERS)
        self._accepted = True

    @property
    def given(self) -> bool:
        """True if the project is accepted."""
        return self.whole or bool(self.versions) or self.trust.current() is not None

    def refusal(self, *, own: bool) -> NotTrusted:
        """Return the error for a project that is not accepted. Its user also gets the digest of it."""
        if not own:
            return NotTrusted(
                "nobody has accepted this project, so none of its tools runs",
                hint="The person whose machine this is has to accept it first.",
            )
        digest = self.digest().digest
        return NotTrusted(
            f"you have not accepted this project, so none of its tools runs; its digest is {digest}",
            hint="To see what it holds and accept it: toolcrib trust. In CI: add the digest to"
            f" accepted_projects in {user_settings_file()}.",
            details={"digest": digest},
        )


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
        parts[tool.name] = {name: value for name, value in pinned.items() if "//" not in name}
    whole = json.dumps([settings, parts], sort_keys=True, separators=(",", ":"))
    return ProjectDigest(hashlib.sha256(whole.encode(errors="surrogateescape")).hexdigest(), versions)


def require_own_folder(place: Place) -> None:
    """Refuse a project in a folder of another user, who could have put it above this one's: `NotTrusted`."""
    for folder in (place.root, place.home):
        owner = folder.stat().st_uid
        if owner not in (os.geteuid(), 0):
            raise NotTrusted(
                f"{folder} belongs to another user ({_name(owner)}), so nothing of it is read",
                hint=f"If you know where it comes from, accept it: toolcrib trust --root {place.root}",
                details={"path": str(folder), "owner": owner},
            )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
