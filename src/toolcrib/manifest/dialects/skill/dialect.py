"""Agent Skills: a folder with a `SKILL.md`, which becomes one tool that reads the files of the folder."""

from __future__ import annotations

from pathlib import Path

from toolcrib.manifest.dialects.base import Entry, finish
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.dialects.fields import Fields
from toolcrib.manifest.yaml.source import Document

__all__ = ["DIALECT"]

_FILE = "SKILL.md"


def _claims(raw: bytes, path: str) -> bool:
    return Path(path).name == _FILE or (raw[:4] in (b"---\n", b"---\r") and path.endswith(".md"))


def _load(raw: bytes, path: str) -> Document:
    from toolcrib.manifest.dialects.skill.reader import load_skill

    return load_skill(raw, path)


def _entries(document: Document) -> list[Entry]:
    from toolcrib.manifest.dialects.skill.reader import drafts

    return [finish(draft, shared=False) for draft in drafts(document)]


def _fields() -> Fields:
    from toolcrib.manifest.dialects.skill.reader import FIELDS

    return FIELDS


DIALECT = Dialect(
    name="skill",
    meaning="a folder of Agent Skills, SKILL.md",
    load=_load,
    entries=_entries,
    fields=_fields,
    claims=_claims,
    own_file=_FILE,
    endings=(_FILE,),
)
