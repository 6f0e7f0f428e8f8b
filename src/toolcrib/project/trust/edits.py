"""Changes of trusted tools that need no person while `toolcrib serve --dev` runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from toolcrib.errors import ManifestError
from toolcrib.guard import Trusted, excess, opened
from toolcrib.manifest import kind_of, load, parse_tool
from toolcrib.project.trust.reasons import ATTEMPTS, DEFAULTS
from toolcrib.spec import Limits, Permissions, Tool


def widens_nothing(tool: Tool, last: Trusted, manifest: bytes, root: Path) -> bool:
    """Return True if a tool is confined to the project and may do no more than its version trusted `last`.

    `manifest` is the one of that version. False for every tool that has network, a secret or an environment
    variable, or that runs values of a call as code.
    """
    assert tool.source is not None
    kind = kind_of(tool)
    if tool.source.dialect != "native" or any(kind.touches(tool)) or any(kind.calls(tool.config)):
        return False
    try:
        before = parse_tool(load(manifest, tool.source.path))
    except ManifestError:
        return False
    if before.approval.required and not tool.approval.required:
        return False
    # Its own code is no grant, but must be in the project too.
    code = (os.path.realpath(root / path) for _, path in opened(tool, root))
    granted = last.shown["parts"]
    ceiling = Permissions(
        read=_inside((*_granted(granted, "read"), *code), root),
        write=_inside(_granted(granted, "write"), root),
    )
    return (
        not excess(tool, ceiling, root) and _attempts(tool) <= _attempts(before) and _is_limited(tool, before)
    )


def _granted(parts: Mapping[str, str], access: str) -> Iterator[str]:
    """Yield the real paths of the grants when a person saw them, without those that are now links."""
    for name, real in parts.items():
        if name.startswith(f"grants/{access}/") and os.path.realpath(real) == real:
            yield real


def _inside(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    return tuple(path for path in paths if Path(path).is_relative_to(root))


def _attempts(tool: Tool) -> int:
    return ATTEMPTS if tool.retry is None else max(ATTEMPTS, tool.retry.max_attempts)


def _is_limited(tool: Tool, before: Tool) -> bool:
    """Return True if no limit of a tool is above the one that it had before."""
    for one in fields(Limits):
        unset = 0 if one.name == "min_interval_ms" else DEFAULTS.get(one.name, math.inf)
        now, then = (getattr(limits, one.name) for limits in (tool.limits, before.limits))
        now, then = (unset if limit is None else limit for limit in (now, then))
        if now < then if one.name == "min_interval_ms" else now > then:
            return False
    return True
