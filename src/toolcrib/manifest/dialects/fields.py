"""The fields of other formats, each with what becomes of it: what a reader knows and what the docs tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Field", "Fields", "known"]


class Field(NamedTuple):
    """One key of a format."""

    type: str
    """In words: text, whole number, list of texts, …"""
    default: str
    """`required`, a value as it is written, or nothing."""
    means: str
    """Its meaning here, as Markdown: one sentence or more."""
    kept: bool = False
    """It has no word in a manifest; it stays under `extensions` and does nothing there."""


Fields = Mapping[str, Mapping[str, Field]]
"""By where a key stands (`impl`, `params[]`; `implementation (http)` where it depends), then by key."""


def known(fields: Mapping[str, Field], *, kept: bool | None = None) -> tuple[str, ...]:
    """The keys of one place: all, or those that are kept only, or the others."""
    return tuple(key for key, field in fields.items() if kept is None or field.kept is kept)
