"""The form in which a kind says what `toolcrib new` asks, and makes the first manifest of a tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from toolcrib.spec.record import record

_PLACEHOLDER = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"


@record
class Answers:
    """The choices of a person who makes a new tool."""

    name: str
    description: str
    runs: str = ""
    """The answer to the main question; empty for a kind that has none."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Name to JSON type."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Name of an argument to its description."""
    optional: frozenset[str] = frozenset()
    """The arguments that a call may leave out."""
    read: tuple[str, ...] = ()
    """Paths."""
    write: tuple[str, ...] = ()


@record
class Made:
    """The parts of a manifest that depend on its kind."""

    block: dict[str, Any]
    """The block `exec.<kind>`."""
    permissions: Mapping[str, Any] | None = field(default_factory=dict)
    """Replaces parts of the usual permissions: the paths, and no network. None: it needs no block."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The files beside the manifest, name to text."""
    properties: Mapping[str, Mapping[str, Any]] | None = None
    """The schema of each argument; None: the arguments as they were given."""
    sample: Mapping[str, str] = field(default_factory=dict)
    """Argument to the text that stands for its value in the example of a call."""


@record
class Starter:
    """The questions of `toolcrib new` about a tool of one kind, and what it makes of the answers."""

    make: Callable[[Answers], Made]
    """Raises UsageError for an answer that the kind cannot use."""
    runs: str = ""
    """The main question, also the option `--run`; empty to ask nothing."""
    reads: str = ""
    """The question for paths that it may read."""
    writes: str = ""
    """The question for paths that it may write."""
    arguments: bool = True
    """Arguments beside the placeholders of the main answer are asked for."""
    format: Literal["json", "text"] = "json"
    """The way in which its output is read."""


def placeholders(text: str) -> list[str]:
    """Return the names of the placeholders in a text, in order."""
    return re.findall(_PLACEHOLDER, text)


def replaced(text: str, by: str) -> str:
    """Return a text with each placeholder replaced."""
    return re.sub(_PLACEHOLDER, by, text)
