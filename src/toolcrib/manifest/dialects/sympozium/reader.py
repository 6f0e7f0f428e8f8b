"""Read the tools of the sidecar of a Sympozium SkillPack (`spec.sidecar.tools[]`).

A sidecar's tool is a command with a JSON Schema of its parameters: a program in `exec` that gets some of them
as words and the others as JSON on its standard input, or a `command` with placeholders. The skills of a pack
are Markdown for an agent, not tools, and are ignored.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from toolcrib.manifest.dialects.base import Draft, arguments_of, milliseconds
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.schema import SchemaCheck
from toolcrib.template import escape

_TEXT = {"type": "string"}
_FORM = SchemaCheck({
    "type": "object",
    "required": ["name", "description"],
    "oneOf": [{"required": ["exec"]}, {"required": ["command"]}],
    "properties": {
        **dict.fromkeys(("name", "description", "workdir", "workDir"), _TEXT),
        "parameters": {"type": "object"},
        "inputSchema": {"type": "object"},
        "command": {"type": ["string", "array"], "items": _TEXT, "minItems": 1, "minLength": 1},
        "args": {"type": "array", "items": _TEXT},
        "exec": {"type": "array", "items": _TEXT, "minItems": 1},
        "subcommand": _TEXT,
        "inputMode": {"enum": ["args", "stdin"]},
        "positionalArgs": {"type": "array", "items": _TEXT},
        "env": {"type": ["array", "object"], "items": {"type": "object", "required": ["name"],
                "properties": {"name": _TEXT, "value": _TEXT}}, "additionalProperties": _TEXT},
        "timeout": {"type": ["number", "string"]},
        "timeoutSeconds": {"type": "number"},
    },
})  # fmt: skip
_TYPED_MS = 120_000
"""The limit of a tool with `exec` that states none."""
_SPELLING = re.compile(r"\{\{\s*\.?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_SHELL = re.compile(r"[|&;<>()`*?\[\]~#!\n]|\$(?!\{)")


def drafts(document: Document) -> list[Draft]:
    """Return every tool of the sidecar."""
    spec, start = _spec(document.data)
    sidecar = spec.get("sidecar")
    tools = sidecar.get("tools") if isinstance(sidecar, dict) else None
    if tools is None:
        return []
    made: list[Draft] = []
    for number, tool in enumerate(tools if isinstance(tools, list) else [tools]):
        draft = Draft(document, "sympozium", (*start, "sidecar", "tools", number))
        made.append(draft)
        if draft.fits(tool, _FORM):
            _tool(draft, tool)
    return made


def _spec(data: Any) -> tuple[dict[str, Any], KeyPath]:
    spec = data.get("spec") if isinstance(data, dict) else None
    if isinstance(spec, dict):
        return spec, ("spec",)
    return (data, ()) if isinstance(data, dict) else ({}, ())


def _tool(draft: Draft, tool: dict[str, Any]) -> None:
    at: KeyPath = ("exec", "command")
    written = "exec" if "exec" in tool else "command"
    draft.put(("name",), tool.get("name"), ("name",))
    draft.put(("description",), tool.get("description"), ("description",))
    draft.put(("kind",), "command", (written,))
    draft.put(("version",), 1)
    key = "parameters" if "parameters" in tool else "inputSchema"
    schema = tool.get(key) or {"type": "object", "properties": {}}
    draft.put(("inputs", "schema"), schema, (key,))
    draft.put(("outputs",), {"format": "text"})
    if written == "exec":
        words, given = _typed(draft, tool, arguments_of(schema))
        draft.put((*at, "timeout_ms"), _TYPED_MS)
        if given:
            draft.put((*at, "stdin"), given, ("inputMode",))
    else:
        words = _words(draft, tool)
    if words:
        draft.put((*at, "entrypoint"), words[0], (written,))
        draft.put((*at, "args"), words[1:], (written,))
    folder = tool.get("workdir") or tool.get("workDir")
    if folder and folder != "/workspace":
        draft.put((*at, "cwd"), folder, ("workdir",))
    for name in ("timeout", "timeoutSeconds"):
        limit = _timeout(tool.get(name))
        if limit is not None:
            draft.put((*at, "timeout_ms"), limit, (name,))
    env = tool.get("env")
    if isinstance(env, list):
        env = {one["name"]: one.get("value", "") for one in env}
    if env:
        draft.put((*at, "env"), env, ("env",))
    draft.grant_secrets(draft.manifest.get("exec", {}), arguments_of(schema), (written,))
    draft.put(("permissions", "fs"), {"read": ["."]})
    draft.keep(tool, _FORM.schema["properties"])


def _typed(draft: Draft, tool: dict[str, Any], names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words of a tool with `exec`, and the arguments that its standard input gets."""
    positional = tool.get("positionalArgs", [])
    for number, name in enumerate(positional):
        if name not in names:
            draft.fault(f"there is no parameter {name!r}", ("positionalArgs", number))
    program, *words = tool["exec"]
    if tool.get("subcommand"):
        words.append(tool["subcommand"])
    # These are no templates, and a value after `--` is no option.
    fixed = [program, *map(escape, words), *(["--"] if positional else [])]
    rest = [name for name in names if name not in positional] if tool.get("inputMode") == "stdin" else []
    return [*fixed, *(f"${{{name}}}" for name in positional)], {name: f"${{{name}}}" for name in rest}


def _words(draft: Draft, tool: dict[str, Any]) -> list[str]:
    """Return the program and its arguments; a line that needs a shell is refused."""
    command, more = tool["command"], tool.get("args", [])
    if isinstance(command, list):
        words = [*command, *more]
    else:
        line = _SPELLING.sub(r"${\1}", command)
        if _SHELL.search(line):
            message = "this command line needs a shell, in which a value could run other commands"
            draft.fault(message, ("command",), hint="write the program and its arguments as a list")
            return []
        try:
            # Split before values are filled in, so a value stays one word.
            words = [*shlex.split(line), *more]
        except ValueError as error:
            draft.fault(f"the command line cannot be read: {error}", ("command",))
            return []
    return [_SPELLING.sub(r"${\1}", word) for word in words]


def _timeout(value: Any) -> int | None:
    """Return the limit in ms: below 1 s it is 30 s, above 120 s it is 120 s, as in Sympozium."""
    found = milliseconds(value)
    if found is None:
        return None
    return 30_000 if found < 1000 else min(found, 120_000)
