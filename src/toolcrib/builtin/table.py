"""All built-in tools by name. Each is in a module of its own, which is imported when the tool is used."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.names import FOLDER_OF, NAMES
from toolcrib.builtin.site import Site
from toolcrib.errors import ToolNotFound
from toolcrib.spec import Call, CallContext, Outcome
from toolcrib.spec.naming import suggestion


@cache
def builtin(name: str) -> Builtin:
    """Return a built-in tool. Raises ToolNotFound with the nearest name."""
    if name not in FOLDER_OF:
        hint = suggestion(name, NAMES, f"Known: {', '.join(NAMES)}.")
        raise ToolNotFound(f"there is no built-in tool named {name!r}", hint=hint)
    found: Builtin = import_module(f"toolcrib.builtin.{FOLDER_OF[name]}.{name}").BUILTIN
    return found


class BuiltinFunction:
    """Calls the function of the built-in tool of a site, or of another definition."""

    def __init__(self, site: Site, definition: Builtin | None = None) -> None:
        self._builtin = definition or builtin(site.tool.name)
        self._site = site
        self.grace_s = self._builtin.grace_s

    async def run(self, call: Call, ctx: CallContext) -> Outcome | Any:
        """Run one attempt."""
        assert isinstance(call.arguments, dict)
        return await self._builtin.run(self._site, ctx, **call.arguments)
