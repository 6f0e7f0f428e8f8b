"""The values of a tool that its programs take as code: found once, when the tool is bound or checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.executors.command.programs import Command, Piece, code_word, is_steering
from toolcrib.spec import CommandExec, Tool
from toolcrib.spec.record import record
from toolcrib.template.parser import Namespaces, parse, parse_conditional
from toolcrib.template.tree import Reference, Text, TextTemplate, references_in

_CLOSED_TYPES = ("integer", "number", "boolean", "null")
_FIXED = frozenset({"version", "name", "slug"})


@record
class CodeValue:
    """A value that a program takes as code, or may take so."""

    path: tuple[str | int, ...]
    """Keys below the block of the kind: `("args", 1)`."""
    message: str
    needs_approval: bool
    """True where each call needs approval; False where it is only likely that the word is code."""


def code_reason(tool: Tool) -> str | None:
    """Return why each call of a tool needs approval: a value becomes code. None where none does."""
    return next((found.message for found in code_values(tool) if found.needs_approval), None)


def code_values(tool: Tool) -> list[CodeValue]:
    """Return the values that become code; none where the manifest allows it or cannot be parsed.

    A number, a truth value and one of listed values never count, and neither do secrets.
    """
    config = tool.config
    if not isinstance(config, CommandExec) or config.allow_code:
        return []
    try:
        return list(_found(tool, config, Namespaces.of(tool)))
    except ManifestError:
        return []


def _found(tool: Tool, config: CommandExec, names: Namespaces) -> Iterator[CodeValue]:
    def is_free(reference: Reference) -> bool:
        if reference.namespace == "argument":
            return not _is_closed(tool.input_schema, (reference.name, *reference.path))
        return reference.namespace is None or (
            reference.namespace == "context" and reference.name not in _FIXED
        )

    for path, command in _commands(config, names):
        found = code_word(command, is_free)
        if found is None:
            continue
        parts = command.fed if found.word < 0 else command.words[found.word]
        free = (part.name for part in parts if isinstance(part, Reference) and is_free(part))
        if (name := next(free, None)) is None:
            continue  # The mark of a value stands in the manifest itself: no program has a NUL in a word.
        verb = "becomes" if found.known else "may become"
        what = f"{verb} code of `{found.where}`" if found.where else "names the program that is run"
        place = path or (("args", found.word - 1) if found.word >= 0 else ("stdin",))
        yield CodeValue(place, f"the value of `{name}` {what}", found.known)
    for name, text in config.env.items():
        if is_steering(name) and any(map(is_free, references_in(parse(text, names)))):
            message = f"a value of the call goes into the variable {name}, which decides what is run"
            yield CodeValue(("env", name), message, True)


def _commands(config: CommandExec, names: Namespaces) -> Iterator[tuple[tuple[str | int, ...], Command]]:
    """The commands that a tool runs, each with its place where that is one text."""
    if config.shell is not None:
        from toolcrib.executors.command.shell import parse_shell, variables_with_values

        line = parse_shell(parse_conditional(config.shell, names), variables_with_values(config.env, names))
        for chosen in line.lines.values():
            yield from ((("shell",), command) for command in chosen.commands)
        return
    words: list[list[Piece]] = [[config.entrypoint]]
    words += (_parts(parse_conditional(word, names)) for word in config.args)
    yield (), Command(words, fed=list(references_in(parse(config.stdin, names))))


def _parts(text: Text) -> list[Piece]:
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
    kinds = schema.get("type", "string")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return "enum" in schema or "const" in schema or all(kind in _CLOSED_TYPES for kind in kinds)
