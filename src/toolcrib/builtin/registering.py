"""Built-in tools for a toolset without a project."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from toolcrib.builtin.names import NAMES, READER
from toolcrib.builtin.settings import BuiltinSettings, root_folders
from toolcrib.builtin.site import Site
from toolcrib.builtin.table import BuiltinFunction, builtin
from toolcrib.errors import UsageError
from toolcrib.executors.directory import WithSecrets, host_of
from toolcrib.spec import Catalog, Executor, Tool

_ALONE = tuple(name for name in NAMES if name != READER)
"""The tools that are useful without a project."""

Roots = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]


def open_builtins(
    catalog: Catalog,
    names: Collection[str] = (),
    roots: Roots | None = None,
    read_only: Collection[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
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
