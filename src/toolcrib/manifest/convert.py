"""From one format to another, with what gets lost on the way.

What is lost is not guessed: the text that was written is read again, and the two tools are held against each
other. An unchanged tool in its own format is written byte for byte as it was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.errors import ManifestError, UsageError
from toolcrib.manifest import flexigpt
from toolcrib.manifest.dialects import entries
from toolcrib.manifest.native import FILE_NAME
from toolcrib.manifest.source import dump
from toolcrib.manifest.writer import manifest_of
from toolcrib.spec import FunctionExec, HttpExec, Tool
from toolcrib.spec.naming import json_path, nearest

__all__ = ["TARGETS", "Loss", "Target", "Written", "convert", "losses", "read_all"]


@dataclass(frozen=True, slots=True)
class Loss:
    """One value that is not the same after the way there and back."""

    path: str
    """Where it stands in the native manifest, as a JSON path."""
    was: Any
    becomes: Any
    """None where it is gone."""

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {"path": self.path, "was": self.was, "becomes": self.becomes}

    def __str__(self) -> str:
        told = json.dumps(self.was, ensure_ascii=False)
        after = (
            "is lost" if self.becomes is None else f"becomes {json.dumps(self.becomes, ensure_ascii=False)}"
        )
        return f"{self.path}: {told} {after}"


@dataclass(frozen=True, slots=True)
class Written:
    """One tool in the format asked for."""

    tool: Tool
    text: bytes
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A format that tools are written in."""

    file_name: str
    write: Callable[[Tool], bytes]


def _native(tool: Tool) -> bytes:
    return dump(manifest_of(tool)).encode()


def _flexigpt(tool: Tool) -> bytes:
    if not isinstance(tool.config, FunctionExec | HttpExec):
        told = f"{tool.name} is of kind {tool.kind}; FlexiGPT has http and go (a registered function) only"
        raise ManifestError(told)
    return (json.dumps(flexigpt.record_of(tool), indent=2, ensure_ascii=False) + "\n").encode()


TARGETS: dict[str, Target] = {
    "native": Target(FILE_NAME, _native),
    "flexigpt": Target("tool.json", _flexigpt),
}
"""Every format that is written, by its name."""


def convert(tool: Tool, to: str) -> Written:
    """The tool in another format, and what is lost.

    Raises UsageError for an unknown format, ManifestError where the tool cannot be said in it at all.
    """
    if to not in TARGETS:
        close = nearest(to, TARGETS)
        hint = f"Did you mean {close}?" if close else f"Known: {', '.join(TARGETS)}."
        raise UsageError(f"no format {to!r} is written", hint=hint)
    target = TARGETS[to]
    if tool.source is not None and tool.source.dialect == "vega":
        # Its shell lines and conditions have no words in the others, and its placeholders are spelled apart.
        told = f"{tool.name} is a definition of Vega, which is not written in other formats"
        raise ManifestError(told, hint="Use it as it is: name its file or folder under `sources`.")
    if tool.source is not None and tool.source.dialect == to and _unchanged(tool):
        return Written(tool, tool.source.raw, ())
    text = target.write(tool)
    path = f"{tool.name}/{target.file_name}"
    entry = next(iter(entries(path, text, to)), None)
    if entry is None or entry.tool is None:
        faults = [finding.message for finding in entry.found] if entry is not None else []
        told = f"{tool.name} cannot be written as {to}: {'; '.join(faults[:3]) or 'it does not read back'}"
        raise ManifestError(told, hint="Change that in the tool first.")
    return Written(tool, text, tuple(losses(tool, entry.tool, to)))


def losses(tool: Tool, back: Tool, to: str) -> Iterator[Loss]:
    """What differs between a tool and what is read back of it; what only the other format says is no loss."""
    before, after = manifest_of(tool), manifest_of(back)
    own = tool.extensions.get(to, {})
    extra = after.get("extensions", {}).get(to)
    if extra is not None:
        kept = {key: value for key, value in extra.items() if key in own}
        after["extensions"] = {**after["extensions"], to: kept}
        if not kept:
            del after["extensions"][to]
        if not after["extensions"]:
            del after["extensions"]
    yield from _differences((), before, after)


def _differences(path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[Loss]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            yield from _differences((*path, key), before.get(key), after.get(key))
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield Loss(json_path(path), before, after)


def _unchanged(tool: Tool) -> bool:
    """Whether the tool still is what its source says, and its source says no other."""
    assert tool.source is not None
    try:
        made = entries(tool.source.path, tool.source.raw, tool.source.dialect)
    except ManifestError:
        return False
    only = made[0].tool if len(made) == 1 else None
    return only is not None and replace(only, source=None) == replace(tool, source=None)


def read_all(path: str, raw: bytes, dialect: str | None = None) -> Sequence[Tool]:
    """Every tool of a file, those switched off too. Raises ManifestError where one cannot be used."""
    tools: list[Tool] = []
    for entry in entries(path, raw, dialect):
        if entry.tool is None and not any(finding.is_error for finding in entry.found):
            continue
        if entry.tool is None:
            wrong = next((finding for finding in entry.found if finding.is_error), None)
            raise ManifestError(
                wrong.render() if wrong is not None else f"{path} holds a tool that cannot be used",
                details={"diagnostics": [finding.as_dict() for finding in entry.found]},
            )
        tools.append(entry.tool)
    return tools
