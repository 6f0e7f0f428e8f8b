"""Checks of command tools: shell lines, values that would be code, secrets, programs without a proxy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.executors.command.interpreters import INPUT, code_word, is_steering
from toolcrib.executors.command.shell_words import Command, Piece, marked
from toolcrib.manifest.lint.checks import tilde
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import CommandExec, Tool
from toolcrib.template import Namespaces, Reference, Text, TextTemplate, parse, parse_conditional
from toolcrib.template.tree import references_in

_COMMAND: KeyPath = ("exec", "command")
_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""The folders in which a confined command is searched."""
_CLOSED_TYPES = ("integer", "number", "boolean", "null")
_FIXED = ("version", "name", "slug")
"""Names of the context whose values no caller chooses."""
_CodeValue = tuple[tuple[Any, ...], Reference, str]
"""Keys below the block, the value, and the message."""
_DIRECT = frozenset((
    "ping", "ping6", "traceroute", "tracepath", "mtr", "nmap", "dig", "host", "nslookup", "drill",
    "whois", "ssh", "scp", "sftp", "ssh-keyscan", "ssh-copy-id", "mosh", "rsync", "telnet", "nc",
    "ncat", "netcat", "socat", "psql", "pg_dump", "pg_dumpall", "pg_restore", "pg_isready", "mysql",
    "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "mongosh", "mongodump", "mongorestore",
    "redis-cli", "valkey-cli", "sqlcmd", "sqlplus", "mosquitto_pub", "mosquitto_sub", "nats", "kcat",
    "ldapsearch", "snmpget", "snmpwalk", "smbclient", "ntpdate", "sendmail", "iperf3",
))  # fmt: skip
"""Programs with a protocol of their own, which ignore the variables that name a proxy."""


def check(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Run all checks of command tools."""
    checks = (_words, _shell_line, _code_words, _secret_arguments, _direct_programs)
    return chain.from_iterable(one(tool, document) for one in checks)


def absent(tool: Tool, document: Document, root: str) -> Iterator[Diagnostic]:
    """Report a program that is not on this machine."""
    config = tool.config
    assert isinstance(config, CommandExec)
    name = config.entrypoint
    if "/" in name:
        places, hint = [Path(root, name)], "create it, or fix the path: it starts at the project root"
    else:
        places = [Path(folder, name) for folder in _PROGRAM_FOLDERS]
        hint = "install it for the whole machine, or write its path"
    if not name.startswith("~") and len(name.split()) == 1 and not any(map(os.path.exists, places)):
        message = f"the program {quoted(name)} is not here"
        yield document.diagnostic("program", message, (*_COMMAND, "entrypoint"), hint=hint)


def _words(tool: Tool, document: Document) -> Iterator[Diagnostic]:  # noqa: ARG001 - called as the others
    """Check for what a shell would read otherwise: no shell reads the words of a command."""
    block = document.data["exec"]["command"]
    entrypoint = block.get("entrypoint")
    if isinstance(entrypoint, str) and re.search(r"\S\s+\S", entrypoint) and not os.path.exists(entrypoint):
        message = "`entrypoint` is one program, and this is taken for its whole name"
        hint = f"write `entrypoint: {entrypoint.split()[0]}`, and the rest into `args`"
        yield document.diagnostic("command-words", message, (*_COMMAND, "entrypoint"), hint=hint)
    args = block.get("args")
    words = [((*_COMMAND, "entrypoint"), entrypoint)]
    if isinstance(args, list):
        words += [((*_COMMAND, "args", number), word) for number, word in enumerate(args)]
    for at, word in words:
        if isinstance(word, str) and word.startswith("~/"):
            yield tilde(document, at)
        elif isinstance(word, str) and (found := re.search(r"\{\{\s*\.?(\w+)\s*\}\}", word)):
            message = f"`{found[0]}` is not filled in here"
            yield document.diagnostic("command-words", message, at, hint=f"write `${{{found[1]}}}`")


def _shell_line(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that each placeholder of a shell line is where a value is allowed."""
    config = tool.config
    assert isinstance(config, CommandExec)
    if config.shell is None:
        return
    from toolcrib.executors.command.shell import shell_problems, variables_with_values

    names = Namespaces.of(tool)
    try:
        line = parse_conditional(config.shell, names)
        variables = variables_with_values(config.env, names)
    except ManifestError as error:
        if error.details.get("path"):
            path: KeyPath = (*_COMMAND, "env", *error.details["path"])
            yield document.diagnostic("shell", error.message, path, key=True)
        return
    for unknown in set(config.allow_dash) - names.arguments:
        message = f"{quoted(unknown)} is not a parameter"
        yield document.diagnostic("shell", message, (*_COMMAND, "allow_dash"))
    place = (*_COMMAND, "shell")
    for problem in shell_problems(line, variables):
        offset = problem.details["offset"]
        literal = config.shell[offset : offset + max(1, problem.details["length"])]
        at = document.locate_text(place, literal, config.shell.count(literal, 0, offset))
        yield document.diagnostic("shell", problem.message, place, hint=problem.hint, at=at)


def _code_words(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Refuse values of a call that would be code, or decide what is run."""
    config = tool.config
    for path, value, message in code_values(tool):
        text: Any = getattr(config, path[0])
        text = text[path[1]] if len(path) > 1 else text
        literal = text[value.offset : value.offset + value.length] if isinstance(text, str) else ""
        place = (*_COMMAND, *path)
        before = text.count(literal, 0, value.offset) if literal else 0
        at = document.locate_text(place, literal, before) if literal else document.locate(place)
        shown = literal if literal.endswith("}") else f"${{{value.name}}}"
        hint = (
            f"pass it as an argument of its own, as in `sh -c 'ls \"$1\"' sh {shown}`; or write"
            " `allow_code: true`, which `toolcrib trust` shows"
        )
        yield document.diagnostic("code", message, place, hint=hint, at=at)


def code_values(tool: Tool) -> list[_CodeValue]:
    """Return the values of a tool's calls that would be code; none with `allow_code` or in a bad template.

    A number, a truth value, one of listed values and a secret never count.
    """
    config = tool.config
    if not isinstance(config, CommandExec) or config.allow_code:
        return []
    try:
        return list(dict.fromkeys(_code_values(tool, config, Namespaces.of(tool))))
    except ManifestError:
        return []


def _code_values(tool: Tool, config: CommandExec, names: Namespaces) -> Iterator[_CodeValue]:
    def is_free(value: Reference) -> bool:
        if value.namespace == "argument":
            return not _is_closed(tool.input_schema, (value.name, *value.path))
        return value.namespace is None or (value.namespace == "context" and value.name not in _FIXED)

    for line, command in _commands(config, names):
        words = [marked(pieces, is_free) for pieces in command.words]
        found = code_word(words, fed=any(map(is_free, command.fed)))
        parts = () if found is None else command.fed if found.at == INPUT else command.words[found.at]
        free = (part for part in parts if isinstance(part, Reference) and is_free(part))
        # The mark of a value may be in the manifest itself: no program has a NUL in a word.
        if found is None or (value := next(free, None)) is None:
            continue
        what = f"would be code of `{found.program}`" if found.program else "would name the program to run"
        path = line or (("stdin",) if found.at == INPUT else ("args", found.at - 1))
        yield path, value, f"the value of `{value.name}` {what}"
    for name, text in config.env.items():
        value = next(filter(is_free, references_in(parse(text, names))), None)
        if value is not None and is_steering(name):
            what = f"would go into the variable {name}, which decides what is loaded or run"
            yield ("env", name), value, f"the value of `{value.name}` {what}"


def _commands(config: CommandExec, names: Namespaces) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Yield the commands that a tool runs, those of a line with its key."""
    if config.shell is not None:
        from toolcrib.executors.command.shell import parse_shell, variables_with_values

        line = parse_shell(parse_conditional(config.shell, names), variables_with_values(config.env, names))
        for chosen in line.lines.values():
            yield from ((("shell",), command) for command in chosen.commands)
        return
    words: list[list[Piece]] = [[config.entrypoint]]
    words += (_pieces(parse_conditional(word, names)) for word in config.args)
    yield (), Command(words, fed=list(references_in(parse(config.stdin, names))))


def _pieces(text: Text) -> list[Piece]:
    if isinstance(text, TextTemplate):
        return [part if isinstance(part, Reference) else part.text for part in text.parts]
    return list(text.references)


def _is_closed(schema: Any, path: tuple[str | int, ...]) -> bool:
    """Return True where a schema allows only numbers, truth values, null or listed values at this path."""
    for step in path:
        word = "items" if isinstance(step, int) else "properties"
        schema = schema.get(word) if isinstance(schema, dict) else None
        if not isinstance(step, int):
            schema = schema.get(step) if isinstance(schema, dict) else None
    if not isinstance(schema, dict):
        return False
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return all(_is_closed(one, ()) for one in choices)
    kinds = schema.get("type", "string")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return "enum" in schema or "const" in schema or all(kind in _CLOSED_TYPES for kind in kinds)


def _secret_arguments(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that no secret is an argument of the program."""
    assert isinstance(tool.config, CommandExec)
    secrets = {secret.name for secret in tool.permissions.secrets}
    for number, element in enumerate(tool.config.args):
        if any(f"${{{mark}{name}}}" in element for name in secrets for mark in ("", "secret:")):
            message = "a secret cannot be an argument: any user of the machine can read arguments"
            hint = "the program finds it in its environment; or pass it by `stdin`"
            yield document.diagnostic("secret-argument", message, (*_COMMAND, "args", number), hint=hint)


def _direct_programs(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that a program with granted hosts can use the proxy that leads to them."""
    assert isinstance(tool.config, CommandExec)
    program = Path(tool.config.entrypoint).name
    if tool.permissions.network.mode in ("any", "hosts") and program in _DIRECT:
        message = f"{quoted(program)} speaks neither HTTP nor SOCKS, so it cannot reach the granted hosts"
        hint = "write `network: host`: this machine's own network, which a person must approve"
        yield document.diagnostic("program-network", message, ("permissions", "network"), key=True, hint=hint)
