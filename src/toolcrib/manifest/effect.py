"""Compare what calls of two tools send, run and return, however their files write it.

Limits, approvals and permissions are not part of that.
"""

from __future__ import annotations

from dataclasses import replace

from toolcrib.errors import ManifestError
from toolcrib.manifest.kinds import LIMITS, Effect, kind_of, plain_effect
from toolcrib.spec import Tool
from toolcrib.template import Namespaces, untied

_CALLS = ("exec", "auth", "outputs.format")
"""The places of a manifest that decide what a call does."""


def differences(one: Tool, other: Tool) -> tuple[str, ...]:
    """Return the places of a manifest (`exec.http.url`) where calls of two tools differ."""
    here, there = _effect(one), _effect(other)
    if here.keys() != there.keys():
        return _CALLS
    return tuple(place for places in here if here[places] != there[places] for place in places)


def is_about_calls(path: str, places: tuple[str, ...] = _CALLS) -> bool:
    """Return True if a place of a manifest is in one of these, and is no limit."""
    inside = any(path == place or path.startswith((f"{place}.", f"{place}[")) for place in places)
    return inside and not path.endswith(tuple(f".{name}" for name in LIMITS))


def parts_of(tool: Tool) -> set[str]:
    """Return the blocks of its `exec` block whose keys are compared one by one (`response`)."""
    places = (place.split(".") for places in _effect(tool) for place in places)
    return {steps[2] for steps in places if len(steps) > 3}


def _effect(tool: Tool) -> Effect:
    names = Namespaces.of(tool)
    # An environment name and a secret of that name have the same value.
    names = replace(names, secrets=names.secrets | names.env, env=frozenset())
    try:
        found = kind_of(tool).effect(tool, names)
    except ManifestError:  # a bad template: its texts are compared
        found = plain_effect(tool, names)
    return {places: untied(value) for places, value in found.items()}
