"""Tools with their placeholders written in another spelling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolcrib.manifest.kinds import kind_of
from toolcrib.spec import Spelling, Tool
from toolcrib.template import Namespaces, respell


def respelled(tool: Tool, spelling: Spelling = Spelling.DOLLAR_BRACE) -> Tool:
    """Return the tool with every template in this spelling, in which a secret is `${NAME}`.

    Raises ManifestError for what cannot be said in it.
    """
    names = Namespaces.of(tool)
    changed: dict[str, Any] = {
        key: respell(getattr(tool.config, key), names, spelling) for key in kind_of(tool).templated
    }
    return replace(tool, config=replace(tool.config, **changed))
