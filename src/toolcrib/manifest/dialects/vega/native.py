"""Express the tools of Vega's definitions in native terms, and refuse what only Vega has."""

from __future__ import annotations

from dataclasses import replace

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.base import respelled
from toolcrib.spec import BuiltinExec, CommandExec, Tool
from toolcrib.template import Namespaces, parse_conditional
from toolcrib.template.respelling import respell, spell


def native_terms(tool: Tool) -> Tool:
    """Return a tool of a definition in the terms of a native manifest.

    Raises ManifestError for features that only Vega has: conditions, values in a shell line, `builtin`.
    """
    try:
        if isinstance(tool.config, CommandExec):
            made = replace(tool, config=_command(tool.config, Namespaces.of(tool)))
        elif isinstance(tool.config, BuiltinExec):
            raise ManifestError("it calls another tool as `builtin`, which only Vega has")
        else:
            made = respelled(tool)
    except ManifestError as error:
        message = f"{tool.name} cannot be written in another format than vega: {error}"
        raise ManifestError(message, hint=error.hint) from None
    return replace(made, source=None)


def _command(config: CommandExec, names: Namespaces) -> CommandExec:
    line = parse_conditional(config.shell or "", names)
    if line.literal is None:
        raise ManifestError(
            "its shell line contains values",
            hint="write the program and its arguments as a manifest of kind command",
        )
    args = ("-c", spell(line.parts))
    return replace(config, args=args, env=respell(config.env, names), shell=None, allow_dash=())
