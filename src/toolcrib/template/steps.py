"""The names for templates of a composite tool beside its arguments: `steps`, in a loop `item` and `index`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolcrib.spec import Tool
from toolcrib.template.parser import Namespaces, parse
from toolcrib.template.tree import references_in

STEPS_NAME = "steps"
"""`${steps.ID.value}` is the result of a step; `status` and `error.code` in its place say how it ended."""
LOOP_NAMES = ("item", "index")
"""The item of a `foreach`, and its place from 0."""


def step_namespaces(tool: Tool, *, loop: bool = False) -> Namespaces:
    """Return the names for the templates of a step; with `loop` also those inside a `foreach`.

    A composite tool has no secrets: each step's tool has its own.
    """
    own = Namespaces.of(tool).arguments
    return Namespaces(arguments=own | {STEPS_NAME, *(LOOP_NAMES if loop else ())})


def steps_used(value: Any, names: Namespaces) -> Iterator[str]:
    """Yield the ids of the steps whose results a template needs; empty for `${steps}` itself."""
    for reference in references_in(parse(value, names)):
        if reference.namespace == "argument" and reference.name == STEPS_NAME:
            yield str(reference.path[0]) if reference.path else ""
