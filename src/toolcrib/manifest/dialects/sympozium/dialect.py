"""Sympozium's SkillPack: the tools of its sidecar."""

from __future__ import annotations

from typing import Any

from toolcrib.manifest.dialects.base import finished
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.plugins import on_call

_FOLDER = "toolcrib.manifest.dialects.sympozium"


def _detect(data: Any) -> bool:
    """Recognise a SkillPack, or its sidecar alone."""
    if not isinstance(data, dict):
        return False
    sidecar = data.get("sidecar")
    return data.get("kind") == "SkillPack" or (isinstance(sidecar, dict) and "tools" in sidecar)


DIALECT = Dialect(
    name="sympozium",
    meaning="Sympozium's SkillPack, its sidecar's tools",
    entries=finished(on_call(f"{_FOLDER}.reader:drafts"), shared=True),
    detect=_detect,
    endings=(".yaml", ".yml"),
    several=True,
    write=on_call(f"{_FOLDER}.writer:write_pack"),
    file_name="{name}.skillpack.yaml",
    terms=on_call("toolcrib.manifest.dialects.base:respelled"),
)
