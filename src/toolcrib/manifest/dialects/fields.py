"""The fields of other formats, each with its meaning in a manifest, for the readers and for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Field(NamedTuple):
    """One key of a format."""

    type: str
    """The type in words: text, whole number, list of texts, …"""
    default: str
    """`required`, the default as it is written, or an empty text."""
    means: str
    """Its meaning here, as Markdown: one sentence or more."""
    kept: bool = False
    """True if a manifest has no such key: it stays under `extensions` and does nothing there."""


Fields = Mapping[str, Mapping[str, Field]]
"""Fields by the position of their block (`impl`, `params[]`, `implementation (http)`), then by key."""


def known(fields: Mapping[str, Field], *, kept: bool | None = None) -> tuple[str, ...]:
    """Return the keys of one block: all, or only those that are `kept` or not."""
    return tuple(key for key, field in fields.items() if kept is None or field.kept is kept)
