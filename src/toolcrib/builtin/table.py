"""All built-in tools by name, and for a toolset without a project.

Each is in a module of its own, which is imported when the tool is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.names import FOLDER_OF, NAMES, READER
from toolcrib.builtin.settings import BuiltinSettings, root_folders
from toolcrib.builtin.site import Site
from toolcrib.errors import ToolNotFound, UsageError
from toolcrib.executors.directory import WithSecrets, host_of
from toolcrib.spec import Call, CallContext, Catalog, Executor, Outcome, Tool
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


_ALONE = tuple(name for name in NAMES if name != READER)
"""The tools that are useful without a project."""

Roots = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]


def open_builtins(
    catalog: Catalog,
    names: Collection[str],
    roots: Roots | None,
    read_only: Collection[str],
    options: Mapping[str, Mapping[str, Any]] | None,
) -> list[tuple[Tool, Callable[[], Executor]]]:
    """Return built-in tools, each with the function that makes its executor. No names: all of them.

    Raises ToolNotFound for an unknown name, UsageError for an option that does not exist or does not fit.
    """
    for name, given in (options or {}).items():
        for path, message in builtin(name).option_faults(given):
            raise UsageError(f"options of {name}: {path} {message}")
    settings = BuiltinSettings(root_folders(roots, read_only), options or {})
    host = host_of(os.path.realpath(settings.roots[0].path), catalog)

    def make(tool: Tool) -> Executor:
        return WithSecrets(tool, BuiltinFunction(Site(tool, host, settings)))

    tools = [builtin(name).tool(settings) for name in names or _ALONE]
    return [(tool, partial(make, tool)) for tool in tools]
