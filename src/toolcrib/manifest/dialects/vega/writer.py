"""Write tools as Vega's definitions, and refuse tools that Vega cannot run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.base import respelled
from toolcrib.manifest.dialects.vega.form import PASSED, TYPES
from toolcrib.manifest.requests import with_auth_written
from toolcrib.manifest.yaml.source import dump, flow
from toolcrib.spec import ABSENT, BuiltinExec, Choice, CommandExec, FileExec, HttpExec, Source, Spelling, Tool
from toolcrib.template import LiteralText, Namespaces, Reference, parse_conditional, respell, spell

_KNOWN = "http, exec (a command), file_read, file_write and builtin"
_WORD = re.compile(r"[\w./=:@%+,-]+", re.ASCII)
_HERE = Source("vega", "", b"", "", spelling=Spelling.DOUBLE_BRACE)


def as_vega(tool: Tool) -> Tool:
    """Return the tool in Vega's terms: its placeholders, a command as a shell line, `auth` as entries.

    Raises ManifestError for a kind that Vega does not have, and for values that Vega cannot express.
    """
    if tool.source is not None and tool.source.dialect == "vega":
        return tool
    try:
        return replace(_in_terms(tool, Namespaces.of(tool)), source=_HERE)
    except ManifestError as error:
        raise ManifestError(f"{tool.name} cannot be written as vega: {error}", hint=error.hint) from None


def native_terms(tool: Tool) -> Tool:
    """Return a tool of a definition in the terms of a native manifest.

    Raises ManifestError for features that only Vega has: conditions, values in a shell line, `builtin`.
    """
    try:
        if isinstance(tool.config, CommandExec):
            made = replace(tool, config=_native_command(tool.config, Namespaces.of(tool)))
        elif isinstance(tool.config, BuiltinExec):
            raise ManifestError("it calls another tool as `builtin`, which only Vega has")
        else:
            made = respelled(tool)
    except ManifestError as error:
        message = f"{tool.name} cannot be written in another format than vega: {error}"
        raise ManifestError(message, hint=error.hint) from None
    return replace(made, source=None)


def _native_command(config: CommandExec, names: Namespaces) -> CommandExec:
    line = parse_conditional(config.shell or "", names)
    if line.literal is None:
        raise ManifestError(
            "its shell line contains values",
            hint="write the program and its arguments as a manifest of kind command",
        )
    args = ("-c", spell(line.parts, Spelling.DOLLAR_BRACE))
    env = respell(config.env, names, Spelling.DOLLAR_BRACE)
    return replace(config, args=args, env=env, shell=None, allow_dash=())


def _in_terms(tool: Tool, names: Namespaces) -> Tool:
    config = tool.config
    if isinstance(config, HttpExec):
        return respelled(with_auth_written(tool, config), Spelling.DOUBLE_BRACE)
    if isinstance(config, FileExec):
        return respelled(tool, Spelling.DOUBLE_BRACE)
    if isinstance(config, CommandExec):
        env = respell(config.env, names, Spelling.DOUBLE_BRACE)
        stdout = config.stdout_format or ("text" if tool.output.format == "text" else "json")
        made = replace(config, shell=_line(tool, config, names), env=env, stdout_format=stdout)
        return replace(tool, config=replace(made, entrypoint="/bin/sh", args=()))
    raise ManifestError(f"it is of kind {tool.kind}; Vega only has {_KNOWN}")


def write_vega(tool: Tool) -> bytes:
    """Return the file of a tool that `as_vega` returned."""
    return ("\n".join(_written(definition_of(tool))) + "\n").encode()


def definition_of(tool: Tool) -> dict[str, Any]:
    """Return the definition of a tool that `as_vega` returned, without the parts that Vega does not have."""
    schema = tool.input_schema
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    return {
        "name": tool.name,
        "description": tool.description,
        "params": [
            {"name": name, **_param(tool, name, rule, required=name in required)}
            for name, rule in properties.items()
        ],
        "implementation": _implementation(tool),
    }


def _line(tool: Tool, config: CommandExec, names: Namespaces) -> str:
    """Return a command as a line with one word per argument: `exec 'program' 'argument' '{{value}}'`.

    `exec` makes the shell run the program, even if the shell has a command of that name.
    """
    shell = config.entrypoint == "/bin/sh" and config.args[:1] == ("-c",) and len(config.args) == 2
    if shell and parse_conditional(config.args[1], names).literal is not None:
        return str(respell(config.args[1], names, Spelling.DOUBLE_BRACE))
    words = [_quoted(LiteralText(config.entrypoint))]
    given = set(tool.input_schema.get("required", ()))
    for text in config.args:
        respell(text, names, Spelling.DOUBLE_BRACE)  # raises if Vega cannot express it
        template = parse_conditional(text, names)
        lone = template.lone
        if lone is not None and not _is_there(tool, lone, given):
            raise ManifestError(
                f"its argument {text} is left out when `{lone.name}` is not given, which a line of "
                "Vega cannot express",
                hint=f"Make `{lone.name}` required, or give it a default.",
            )
        words.append(_quoted(*(part for part in template.parts if isinstance(part, LiteralText | Reference))))
    return " ".join(("exec", *words))


def _is_there(tool: Tool, reference: Reference, given: set[Any]) -> bool:
    """Return True if every call has this value."""
    if reference.default is not None:
        return reference.default.value is not None
    if reference.namespace == "context":
        return reference.name in ("name", "version")
    if reference.namespace == "argument":
        rule = tool.input_schema.get("properties", {}).get(reference.name)
        return not reference.path and (
            reference.name in given or (isinstance(rule, dict) and "default" in rule)
        )
    return any(secret.name == reference.name and secret.required for secret in tool.permissions.secrets)


def _quoted(*parts: LiteralText | Reference) -> str:
    """Return one word of a shell line, quoted if the shell would change it."""
    if len(parts) == 1 and isinstance(parts[0], LiteralText) and _WORD.fullmatch(parts[0].text):
        return parts[0].text
    inner = [
        LiteralText(part.text.replace("'", "'\\''")) if isinstance(part, LiteralText) else part
        for part in parts
    ]
    return f"'{spell(inner, Spelling.DOUBLE_BRACE)}'"


def _param(tool: Tool, name: str, rule: Any, *, required: bool) -> dict[str, Any]:
    """Return one parameter, or a part of one. Vega needs exactly one type for each."""
    if not isinstance(rule, dict) or rule.get("type") not in TYPES:
        raise ManifestError(
            f"{tool.name} cannot be written as vega: `{name}` does not have exactly one type",
            hint=f"Give it one of {', '.join(TYPES)} in inputs.schema.",
        )
    param: dict[str, Any] = {"type": rule["type"]}
    param |= {key: rule[key] for key in ("description", *PASSED) if key in rule}
    if required:
        param["required"] = True
    if isinstance(rule.get("items"), dict):
        param["items"] = _param(tool, f"{name}[]", rule["items"], required=False)
    inner = rule.get("properties")
    if isinstance(inner, dict) and inner:
        needed = rule.get("required", [])
        param["properties"] = {
            key: _param(tool, f"{name}.{key}", entry, required=key in needed) for key, entry in inner.items()
        }
    return param


def _implementation(tool: Tool) -> dict[str, Any]:
    config = tool.config
    if isinstance(config, HttpExec):
        block: dict[str, Any] = {"type": "http", "method": config.method, "url": config.url}
        block |= {key: getattr(config, key) for key in ("headers", "query") if getattr(config, key)}
        if config.body is not None:
            block["body"] = config.body
    elif isinstance(config, CommandExec):
        block = {"type": "exec", "command": config.shell}
        if config.env:
            block["env"] = config.env
        if config.allow_dash:
            block["allow_dash"] = list(config.allow_dash)
        if config.allow_code:
            block["allow_code"] = True
    elif isinstance(config, FileExec):
        block = _file(config)
    else:
        assert isinstance(config, BuiltinExec)
        block = {"type": "builtin", "function": config.function}
    times = [time for time in (getattr(config, "timeout_ms", None), tool.limits.timeout_ms) if time]
    if times:
        block["timeout"] = _duration(min(times))
    if tool.retry is not None:
        backoff = tool.retry.backoff_ms
        block["retry"] = {"attempts": tool.retry.max_attempts}
        block["retry"] |= {} if backoff is None else {"backoff": _duration(backoff)}
    return block


def _file(config: FileExec) -> dict[str, Any]:
    block: dict[str, Any] = {"type": f"file_{config.action}", "path": config.path}
    if config.action == "write":
        block["content"] = config.content
    if config.encoding != "utf-8":
        block["encoding"] = config.encoding
    if config.action == "write":
        block["mode"] = Bare(f"{config.mode:04o}")
        if config.mkdir:
            block["mkdir"] = True
    return block


_KEEP = re.compile(r"\|\d?\+$", re.MULTILINE)
"""The head of a block of lines that keeps empty lines at its end."""


def _duration(milliseconds: int) -> str:
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


class Bare(str):
    """Text that is written without quotes: quoted, it would have another meaning to other programs."""

    __slots__ = ()


def _written(data: Any) -> Iterator[str]:
    """Yield the lines of a mapping or a list that contains a `Choice` or a `Bare` text."""
    if isinstance(data, dict):
        for key, item in data.items():
            head = dump(key).rstrip()
            if "\n" in head:  # A key is one line.
                head = flow(key)
            yield from _entry(f"{head}:", item)
    else:
        for item in data:
            yield from _entry("-", item)


def _entry(head: str, item: Any) -> Iterator[str]:
    """Yield one entry of a mapping or a list: `head` is its key, or its dash."""
    if isinstance(item, Choice):
        for at, (test, value) in enumerate(item.branches):
            word = "else" if test is None else f"if {test}" if at == 0 else f"else if {test}"
            yield f"{{{{{word}}}}}"
            if value is not ABSENT:
                yield from _entry(head, value)
        yield "{{end}}"
    elif _is_special(item) and not isinstance(item, Bare):
        yield head
        yield from (f"  {line}" for line in _written(item))
    else:
        text = item if isinstance(item, Bare) else dump(item)
        if _KEEP.search(text):
            # A control line below is read as an empty line, which such a block would take in.
            text = flow(item)
        first, *rest = text.splitlines()
        below = isinstance(item, dict | list) and item
        yield head if below else f"{head} {first}"
        yield from (f"  {line}" for line in ([first, *rest] if below else rest))


def _is_special(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_is_special, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Choice | Bare)
