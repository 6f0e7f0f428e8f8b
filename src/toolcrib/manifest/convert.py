"""Convert tools from one format to another, with a report of the losses.

Losses are not guessed: the written text is read again, and the two tools are compared. An unchanged tool in
its own format is written byte for byte as it was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from toolcrib.errors import ManifestError, UsageError
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.dialects.registry import DIALECTS, dialect_named, entries
from toolcrib.manifest.kinds import LIMITS, Effect, kind_of, plain_effect
from toolcrib.manifest.lint.runner import check_tool
from toolcrib.manifest.native.writer import manifest_of
from toolcrib.manifest.yaml.diagnostics import Diagnostic
from toolcrib.spec import ABSENT, Tool
from toolcrib.spec.naming import json_path, suggestion
from toolcrib.spec.record import record
from toolcrib.template import Namespaces, untied

_MEANING: dict[str, str] = {
    "version": "the format keeps no such version",
    "tags": "the tool is not found by them",
    "annotations": "clients do not learn what a call does",
    "mcp": "MCP clients find it as a tool only",
    "inputs": "arguments are checked by other rules",
    "outputs.schema": "the output is not checked",
    "outputs": "the output is read or checked differently",
    "permissions": "the format does not have them in the file",
    "permissions.network": "the tool may reach the host of its own address, and no other",
    "permissions.secrets": "every ${NAME} that is not an argument is a required secret",
    "permissions.env": "every ${NAME} that is not an argument is a required secret",
    "files": "a change of these files asks nobody",
    "approval": "no person is asked before a call",
    "limits": "only the limits of its runner apply",
    "exec": "only the limits of its runner apply",
    "retry": "failed calls are retried differently, or not at all",
    "examples": "a model is shown no such calls",
    "extensions": "the keys of another format are gone",
}
"""The meaning of a difference, by its place in the native manifest; the longest matching prefix is used."""
_MAX_LISTED = 5


@record
class Loss:
    """One value that is not the same after writing and reading."""

    path: str
    """Its place in the native manifest, as a JSON path."""
    was: Any
    """`ABSENT` where there was none."""
    becomes: Any
    """`ABSENT` where it is gone."""
    means: str = ""
    """The consequence."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; `was` or `becomes` is left out where there is no value."""
        values = {"was": self.was, "becomes": self.becomes}
        return {
            "path": self.path,
            **{key: value for key, value in values.items() if value is not ABSENT},
            "means": self.means,
        }

    def __str__(self) -> str:
        was, becomes = (
            json.dumps(value, ensure_ascii=False, default=str) for value in (self.was, self.becomes)
        )
        if self.becomes is ABSENT:
            message = f"{was} is lost"
        elif self.was is ABSENT:
            message = f"{becomes} is added"
        else:
            message = f"{was} becomes {becomes}"
        return f"{self.path}: {message}" + (f" ({self.means})" if self.means else "")


@record
class Written:
    """One tool in the format asked for."""

    tool: Tool
    text: bytes
    losses: tuple[Loss, ...]


def targets() -> list[str]:
    """Return the names of the formats that tools are written in."""
    return [name for name in DIALECTS.names() if DIALECTS[name].write is not None]


def as_native(tool: Tool) -> Tool:
    """Return the tool in the terms of a native manifest, whose placeholders are spelled `${name}`.

    Raises ManifestError for what no manifest can say.
    """
    return tool if tool.source is None else dialect_named(tool.source.dialect).native_terms(tool)


def convert(tool: Tool, to: str) -> Written:
    """Return the tool in another format, with the losses.

    Raises UsageError for an unknown format, and ManifestError if the format cannot express the tool, or a
    call would do something else.
    """
    target = _target(to)
    same = tool.source is not None and tool.source.dialect == to
    if same and _unchanged(tool):
        assert tool.source is not None
        return Written(tool, tool.source.raw, ())
    termed = in_terms(tool, target)
    assert target.write is not None
    text = target.write(termed)
    path = target.file_name.format(name=tool.name)
    entry = next(iter(entries(path, text, to)), None)
    if entry is None or entry.tool is None:
        raise _inexpressible(tool, to, entry.found if entry is not None else ())
    found = tuple(losses(termed, entry.tool, to))
    if places := differences(termed, entry.tool):
        altering = [loss for loss in found if is_about_calls(loss.path[2:], places)]
        message = "; ".join(str(replace(loss, means="")) for loss in altering[:_MAX_LISTED]) or ", ".join(
            places
        )
        raise ManifestError(
            f"{tool.name} cannot be written as {to}, where its calls would do something else: {message}",
            hint="Change that in the tool first.",
            details={"losses": [loss.as_dict() for loss in altering]},
        )
    if same and target.several and tool.source is not None:
        found += (Loss("$.source", tool.source.path, ABSENT, "the rest of that file is not written"),)
    # A tool that had an error before may keep it: a conversion must only not add one.
    before = {finding.rule for finding in check_tool(tool) if finding.is_error}
    after = [finding for finding in check_tool(entry.tool) if finding.is_error]
    if new := [finding for finding in after if finding.rule not in before]:
        raise _inexpressible(tool, to, new)
    return Written(tool, text, found)


def in_terms(tool: Tool, target: Dialect) -> Tool:
    """Return the tool in the terms of a format. Raises ManifestError for what the format cannot say."""
    same = tool.source is not None and tool.source.dialect == target.name
    return target.terms(tool if same else as_native(tool))


def _target(name: str) -> Dialect:
    dialect = DIALECTS.get(name)
    if dialect is not None and dialect.write is not None:
        return dialect
    known = ", ".join(targets())
    if dialect is not None:
        raise UsageError(f"the format {name} is read only", hint=f"Written are {known}.")
    raise UsageError(f"no format {name!r} is written", hint=suggestion(name, targets(), f"Known: {known}."))


def _inexpressible(tool: Tool, to: str, found: Sequence[Diagnostic]) -> ManifestError:
    message = "; ".join(finding.message for finding in found[:3]) or "the result cannot be read back"
    return ManifestError(
        f"{tool.name} cannot be written as {to}: {message}", hint="Change that in the tool first."
    )


def losses(tool: Tool, back: Tool, to: str) -> Iterator[Loss]:
    """Yield the differences between a tool and the one that is read back.

    Keys that only the other format has are not losses, nor is another way to write the same call.
    """
    places = differences(tool, back)
    own = tool.extensions.get(to, {})
    kept = {key: value for key, value in back.extensions.get(to, {}).items() if key in own}
    others = {dialect: block for dialect, block in back.extensions.items() if dialect != to}
    back = replace(back, extensions=others | ({to: kept} if kept else {}))
    for loss in _differences((), _whole(tool), _whole(back)):
        path = loss.path[2:]
        if is_about_calls(path, places) or not is_about_calls(path):
            yield loss


def _whole(tool: Tool) -> dict[str, Any]:
    """Return a tool's manifest, with empty blocks where the other tool may have keys to compare."""
    manifest = manifest_of(tool)
    manifest["outputs"] = {"format": tool.output.format, **manifest.get("outputs", {})}
    for part in parts_of(tool):
        manifest["exec"][tool.kind].setdefault(part, {})
    return manifest


def _differences(path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[Loss]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            yield from _differences((*path, key), before.get(key, ABSENT), after.get(key, ABSENT))
    elif not _same(path, before, after):
        where = json_path(path)
        yield Loss(where, before, after, _meaning(where))


def _same(path: tuple[str | int, ...], before: Any, after: Any) -> bool:
    """Return True if two values are the same JSON; required names have no order."""
    if path[:2] == ("inputs", "schema") and path[-1] == "required" and path[-2] != "properties":
        before, after = (sorted(value) if isinstance(value, list) else value for value in (before, after))
    return bool(untied(before) == untied(after))


def _meaning(path: str) -> str:
    named = path.removeprefix("$.")
    begins = [key for key in _MEANING if named == key or named.startswith((f"{key}.", f"{key}["))]
    return _MEANING[max(begins, key=len)] if begins else ""


def _unchanged(tool: Tool) -> bool:
    """Return True if the tool is what its source says, and the only one in it."""
    assert tool.source is not None
    try:
        made = entries(tool.source.path, tool.source.raw, tool.source.dialect)
    except ManifestError:
        return False
    only = made[0].tool if len(made) == 1 else None
    return only is not None and replace(only, source=None) == replace(tool, source=None)


def read_all(path: str, raw: bytes, dialect: str | None = None) -> Sequence[Tool]:
    """Return every tool of a file, disabled ones too. Raises ManifestError if one cannot be used."""
    tools: list[Tool] = []
    for entry in entries(path, raw, dialect):
        wrong = next((finding for finding in entry.found if finding.is_error), None)
        if entry.tool is not None:
            tools.append(entry.tool)
        elif wrong is not None:
            details = {"diagnostics": [finding.as_dict() for finding in entry.found]}
            raise ManifestError(wrong.render(), details=details)
    return tools


_CALLS = ("exec", "auth", "outputs.format")
"""The places of a manifest that decide what a call does."""


def differences(one: Tool, other: Tool) -> tuple[str, ...]:
    """Return the places of a manifest (`exec.http.url`) where calls of two tools differ."""
    here, there = _effect(one), _effect(other)
    if here.keys() != there.keys():
        return _CALLS
    return tuple(place for places in here if here[places] != there[places] for place in places)


def is_about_calls(path: str, places: tuple[str, ...] = _CALLS) -> bool:
    """Return True if a place of a manifest is in one of these, and is not a limit."""
    inside = any(path == place or path.startswith((f"{place}.", f"{place}[")) for place in places)
    return inside and not path.endswith(tuple(f".{name}" for name in LIMITS))


def parts_of(tool: Tool) -> set[str]:
    """Return the blocks of its `exec` block whose keys are compared one by one (`response`)."""
    places = (place.split(".") for places in _effect(tool) for place in places)
    return {steps[2] for steps in places if len(steps) > 3}


def _effect(tool: Tool) -> Effect:
    names = Namespaces.of(tool)
    # An environment name and a secret of that name have the same value.
    names = replace(names, secrets=names.secrets | names.env, env=frozenset())
    try:
        found = kind_of(tool).effect(tool, names)
    except ManifestError:  # a bad template: its texts are compared
        found = plain_effect(tool, names)
    return {places: untied(value) for places, value in found.items()}
