"""A first manifest of a tool, for a person to continue: it has no error and no warning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolcrib.errors import ConflictError, UsageError
from toolcrib.manifest import FILE_NAME, KINDS, dump
from toolcrib.manifest.kinds import startable
from toolcrib.manifest.native.schema import tool_schema
from toolcrib.manifest.starter import Answers, Made, Starter, placeholders
from toolcrib.project.root import Place, require_inside
from toolcrib.spec.naming import did_you_mean
from toolcrib.spec.record import record
from toolcrib.state.private import written

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_HEAD = "# yaml-language-server: $schema=../../schemas/tool.schema.json\n"


def starter_of(kind: str) -> Starter:
    """Return the questions of a kind. Raises UsageError if there is no such kind, or it has none."""
    known = startable()
    found = KINDS[kind].starter if kind in known else None
    if found is None:
        hint = did_you_mean(kind, known) or f"The kinds of new tools: {', '.join(known)}."
        raise UsageError(f"a new tool cannot be of kind {kind!r}", hint=hint)
    return found


@record
class Scaffold:
    """A new tool: its manifest, and the files beside it."""

    manifest: dict[str, Any]
    files: dict[str, str]
    """Name to text, the manifest among them."""
    example: str
    """The arguments of a first call, with `…` for each value."""

    @property
    def name(self) -> str:
        """The name of the tool and of its folder."""
        return str(self.manifest["name"])


def begin(kind: str, answers: Answers) -> Scaffold:
    """Return a new tool. Raises UsageError for an answer that its kind cannot use."""
    starter = starter_of(kind)
    arguments = dict.fromkeys(placeholders(answers.runs), "string") | dict(answers.arguments)
    for name, of in arguments.items():
        check_argument(name, of)
    # Where they are passed by position, those that may be missing come last.
    arguments = dict(sorted(arguments.items(), key=lambda one: one[0] in answers.optional))
    made = starter.make(replace(answers, arguments=arguments))
    properties = made.properties
    if properties is None:
        properties = {
            name: {"type": of, "description": answers.about.get(name) or f"The {name.replace('_', ' ')}"}
            for name, of in arguments.items()
        }
    manifest = _manifest(kind, starter, answers, made, dict(properties))
    files = {FILE_NAME: _HEAD + dump(manifest), **made.files}
    needed = manifest["inputs"]["schema"].get("required", ())
    return Scaffold(manifest, files, " ".join(f"{one}={made.sample.get(one, '…')}" for one in needed))


def _manifest(
    kind: str, starter: Starter, answers: Answers, made: Made, properties: dict[str, Any]
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    if required := [name for name in properties if name not in answers.optional]:
        schema["required"] = required
    schema["properties"] = properties
    manifest = {
        "name": answers.name,
        "description": answers.description,
        "kind": kind,
        "version": 1,
        "inputs": {"schema": schema},
        "outputs": {"format": starter.format},
        "exec": {kind: made.block},
    }
    if made.permissions is not None:
        paths = {"read": [*answers.read], "write": [*answers.write]}
        manifest["permissions"] = {"network": False, "fs": paths, **made.permissions}
    return manifest


def check_name(name: str) -> None:
    """Raise UsageError for what no tool can be named."""
    rule = tool_schema()["properties"]["name"]
    if re.search(rule["pattern"], name) is None or not name.isprintable():
        raise UsageError(f"{name!r} is not the name of a tool", hint=f"It {rule['patternErrorMessage']}.")


def check_argument(name: str, of: str) -> None:
    """Raise UsageError for what is not a name of an argument, or no JSON type."""
    if not _NAME.fullmatch(name) or of not in _TYPES:
        raise UsageError(
            f"{name}:{of} is not an argument", hint=f"Write NAME or NAME:TYPE; types: {', '.join(_TYPES)}"
        )


def require_free(place: Place, name: str, files: Iterable[str] = (FILE_NAME,)) -> None:
    """Raise ConflictError if one of these files of a tool is there already."""
    if taken := [str(path) for file in files if (path := place.tools / name / file).exists()]:
        raise ConflictError(f"these files exist already: {', '.join(taken)}", hint="Give another name.")


def write(place: Place, tool: Scaffold) -> list[Path]:
    """Write the manifest and its code; return their paths. Raises ConflictError if one is there already."""
    files = {place.tools / tool.name / name: text for name, text in tool.files.items()}
    require_free(place, tool.name, tool.files)
    require_inside(place.root, place.tools / tool.name)
    for path, text in files.items():
        with written(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    return list(files)
