"""All built-in tools by name. Each is in a module of its own, which is imported when the tool is used."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.names import FOLDER_OF, NAMES
from toolcrib.builtin.site import BuiltinFunction, Site
from toolcrib.errors import ToolNotFound
from toolcrib.spec import Executor
from toolcrib.spec.naming import suggestion


@cache
def builtin(name: str) -> Builtin:
    """Return a built-in tool. Raises ToolNotFound with the nearest name."""
    if name not in FOLDER_OF:
        hint = suggestion(name, NAMES, f"Known: {', '.join(NAMES)}.")
        raise ToolNotFound(f"there is no built-in tool named {name!r}", hint=hint)
    found: Builtin = import_module(f"toolcrib.builtin.{FOLDER_OF[name]}.{name}").BUILTIN
    return found


def executor_of(site: Site) -> Executor:
    """Return the executor of the built-in tool of this site."""
    return BuiltinFunction(builtin(site.tool.name), site)
