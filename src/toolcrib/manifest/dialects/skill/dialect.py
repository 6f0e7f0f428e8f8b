"""Agent Skills: a folder with a `SKILL.md`, which becomes one tool that reads the files of the folder."""

from __future__ import annotations

from pathlib import Path

from toolcrib.manifest.dialects.base import finished
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.plugins import on_call

_FILE = "SKILL.md"
_READER = "toolcrib.manifest.dialects.skill.reader"


def _claims(raw: bytes, path: str) -> bool:
    return Path(path).name == _FILE or (raw[:4] in (b"---\n", b"---\r") and path.endswith(".md"))


DIALECT = Dialect(
    name="skill",
    meaning="a folder of Agent Skills, SKILL.md",
    load=on_call(f"{_READER}:load_skill"),
    entries=finished(on_call(f"{_READER}:drafts"), shared=False),
    claims=_claims,
    own_file=_FILE,
    endings=(_FILE,),
)
