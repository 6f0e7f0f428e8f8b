"""Read `SKILL.md` folders (Agent Skills): front matter that describes a skill, then Markdown instructions.

A skill becomes one tool that reads the files of its folder, the instructions first. It grants nothing else:
`allowed-tools` and scripts are listed, but not run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path as FilePath
from typing import Any

from toolcrib.manifest.dialects.base import Draft
from toolcrib.manifest.yaml.diagnostics import failure
from toolcrib.manifest.yaml.source import Document, decode, load
from toolcrib.spec.naming import HOMES

SKILL_FILE = "SKILL.md"
_FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_KEPT = ("license", "metadata", "compatibility", "allowed-tools", "version")


def load_skill(raw: bytes, path: str) -> Document:
    """Return the front matter as data with its positions. Raises ManifestError if there is none."""
    text = decode(raw, path)
    found = _FRONT.match(text)
    if found is None:
        document = Document(path, raw, text, None)
        message = "the file does not begin with front matter: `---`, keys, `---`"
        hint = "begin it with `---`, `name: …`, `description: …`, `---`"
        raise failure([document.diagnostic("dialect", message, at=(1, 1), hint=hint)])
    # The opening line becomes a comment of the same length, so that all positions stay the same.
    front = "#" * len("---") + text[3 : found.end(1)]
    document = load(front.encode(), path)
    document.raw = raw
    return document


def drafts(document: Document) -> list[Draft]:
    """Return the one tool of a skill."""
    draft = Draft(document, "skill")
    data = document.data
    if not isinstance(data, dict):
        draft.fault("the front matter must be a mapping with `name` and `description`")
        return [draft]
    name = data.get("name")
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name):
        hint = "1 to 64 characters: a-z, 0-9 and single dashes between them"
        draft.fault("`name` is not the name of a skill", ("name",), hint=hint)
    folder = FilePath(document.path).parent
    if folder.name not in ("", name):
        draft.fault(f"`name` differs from the folder's name, {folder.name}", ("name",), rule="name-folder")
    draft.put(("name",), name, ("name",))
    draft.put(("description",), data.get("description"), ("description",))
    draft.put(("version",), 1)
    draft.put(("kind",), "file")
    draft.put(("outputs",), {"format": "text"})
    place = _place(folder)
    draft.put(("inputs", "schema"), _schema(folder, place))
    draft.put(("exec", "file"), {"action": "read", "path": "${file}", "base": place})
    draft.put(("permissions", "fs"), {"read": [place]})
    draft.put(("annotations",), {"read_only": True})
    draft.put(("mcp",), {"prompt": True})
    draft.keep(data, ("name", "description"), _KEPT)
    return [draft]


def _schema(folder: FilePath, place: str) -> dict[str, Any]:
    about = f"File of the skill to read, from {place} (default {SKILL_FILE}: the instructions)."
    inside = _files(folder)
    if inside:
        about += f" Files: {', '.join(inside)}."
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {"file": {"type": "string", "description": about, "default": SKILL_FILE}},
    }


def _files(folder: FilePath, most: int = 20) -> list[str]:
    """Return the first files below a skill's folder, at most two levels deep."""
    found: list[str] = []
    try:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                with os.scandir(entry.path) as inside:
                    found += sorted(f"{entry.name}/{one.name}" for one in inside if one.is_file())
            elif entry.is_file(follow_symlinks=False) and entry.name != SKILL_FILE:
                found.append(entry.name)
    except OSError:
        return []
    return [name for name in found if name.isprintable() and "$" not in name][:most]


def _place(folder: FilePath) -> str:
    """Return the folder as a manifest of its project writes it."""
    absolute = FilePath(os.path.abspath(folder))
    for parent in absolute.parents:
        if any((parent / home).is_dir() for home in HOMES):
            return os.fspath(absolute.relative_to(parent))
    return os.fspath(absolute)
