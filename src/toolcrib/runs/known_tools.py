"""The tools that the runs of a database may call: recorded there by each process that has them.

So an agent can use a tool that only another worker has, and a call can be checked and stored by a process
that could not run it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from toolcrib.core.bound import Bound, BoundTool
from toolcrib.errors import ToolNotFound, ToolUnavailable
from toolcrib.spec import Annotations, Executor, Limits, Output, Tool
from toolcrib.spec.naming import suggestion
from toolcrib.spec.tools.kinds import ExecConfig
from toolcrib.state import Database

_WRITE = (
    "INSERT INTO known_tools (name, digest, definition) VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, definition = excluded.definition"
)
_FORM = 1
"""Another number whenever a manifest leads to another definition."""
_COPIED = ("name", "description", "kind", "input_schema", "bundle", "version")


class KnownTools:
    """The known tools of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._recorded: dict[str, Tool | str] = {}
        """By name, the tools as this process has recorded them last; of some the SHA-256 of the manifest."""
        self._read: dict[str, tuple[str, Bound]] = {}
        """Digest and tool as they were read last, by name."""

    def recorded(self, manifests: Mapping[str, str]) -> set[str]:
        """Return those of these tools that are recorded as manifests with these SHA-256 say."""
        found = self._recorded
        new = {name: sha256 for name, sha256 in manifests.items() if found.get(name) != sha256}
        known = self._digests() if new else {}
        found |= {name: one for name, one in new.items() if known.get(name) == _of_manifest(one)}
        return {name for name, sha256 in manifests.items() if found.get(name) == sha256}

    def record(self, tools: Iterable[tuple[Tool, bool, bool]]) -> None:
        """Record tools as models may read them.

        With each comes True if it may run again after its worker died, and True if it is as its source says.
        Of different versions the one that was recorded last is offered.
        """
        new = {one[0].name: one for one in tools if self._recorded.get(one[0].name) is not one[0]}
        if not new:
            return
        known = self._digests()
        rows = [_row(*one) for one in new.values()]
        changed = [row for row in rows if known.get(row[0]) != row[1]]
        if changed:
            with self._database.write("known tools") as tx:
                for row in changed:
                    tx.later(_WRITE, *row)
        self._recorded |= {name: tool for name, (tool, *_) in new.items()}

    def _digests(self) -> dict[str, str]:
        return dict(self._database.rows("SELECT name, digest FROM known_tools"))

    def some(self, names: Collection[str]) -> dict[str, Bound]:
        """Return those of these tools that are known, in this order. None of them can run here."""
        found: dict[str, Bound] = {}
        if names:
            places = ", ".join("?" * len(names))
            query = f"SELECT name, digest, definition FROM known_tools WHERE name IN ({places})"
            for name, digest, definition in self._database.rows(query, *names):
                if self._read.get(name, ("",))[0] != digest:
                    self._read[name] = digest, _bound(json.loads(definition))
                found[name] = self._read[name][1]
        return {name: found[name] for name in names if name in found}

    def find(self, name: str) -> Bound:
        """Return one of them; `ToolNotFound` with the nearest name."""
        found = self.some((name,))
        if name in found:
            return found[name]
        names = [one for (one,) in self._database.rows("SELECT name FROM known_tools ORDER BY name")]
        hint = suggestion(name, names, "No process that serves this project has recorded it.")
        raise ToolNotFound(f"there is no tool named {name[:100]!r}", hint=hint)


def _row(tool: Tool, repeatable: bool, is_own: bool) -> tuple[str, str, str]:
    """Return name, digest and definition."""
    definition = {
        **{key: getattr(tool, key) for key in _COPIED},
        "tags": list(tool.tags),
        "annotations": _set(asdict(tool.annotations)),
        "limits": _set(asdict(tool.limits)),
        "output": {"format": tool.output.format, "schema": tool.output.schema},
        "repeatable": repeatable,
        "source": None if tool.source is None else tool.source.sha256,
    }
    text = json.dumps(definition, sort_keys=True)
    source = tool.source
    if is_own and source is not None and not source.stored:
        return tool.name, _of_manifest(source.sha256), text
    return tool.name, hashlib.sha256(text.encode()).hexdigest(), text


def _of_manifest(sha256: str) -> str:
    """Return the digest of a definition that follows from a manifest, so that no start has to make it."""
    return hashlib.sha256(f"{_FORM} {sha256}".encode()).hexdigest()


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _bound(definition: dict[str, Any]) -> Bound:
    repeatable, _ = definition.pop("repeatable"), definition.pop("source")
    made: dict[str, Any] = {"annotations": Annotations, "limits": Limits, "output": Output}
    parts = {key: kind(**definition.pop(key)) for key, kind in made.items()}
    tool = Tool(**{**definition, **parts, "tags": tuple(definition["tags"])}, config=ExecConfig())
    bound = BoundTool(tool, _elsewhere)
    bound.retries_timeouts = repeatable
    return bound


def _elsewhere() -> Executor:
    raise ToolUnavailable("this tool is known here, but only another process can run it")
