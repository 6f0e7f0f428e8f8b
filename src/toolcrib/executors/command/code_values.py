"""The values of a tool that its programs take as code: found once, when the tool is bound or checked.

The table of `programs` is no guarantee: a program that is not in it can read any word as code. Options of
such a program that look alike are a warning. Where it is unsure which word is the code, each value counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from toolcrib.errors import ManifestError
from toolcrib.executors.command.programs import (
    FIND_COMMANDS,
    FINDERS,
    REMOTE,
    Program,
    base_name,
    is_steering,
    known_program,
    module_program,
)
from toolcrib.executors.command.reading import VALUE, CommandReading
from toolcrib.executors.command.shell_words import Command, Piece, marked
from toolcrib.spec import CommandExec, Tool
from toolcrib.spec.record import record
from toolcrib.template.parser import Namespaces, parse, parse_conditional
from toolcrib.template.tree import Reference, Text, TextTemplate, references_in

_CLOSED_TYPES = ("integer", "number", "boolean", "null")
_FIXED = frozenset({"version", "name", "slug"})
_SHAPE = re.compile(
    r"(-[ce]|--(?:eval|exec|expression|command|cmd|code|script|shell|run|query|rsh)[\w-]*)(=.*)?", re.DOTALL
)
_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
"""Names of the standard input."""
_is_flag = re.compile(
    r"--no-[\w-]+|-[Pq]|--(?:bare|debug|disable-pip-version-check|frozen|insecure-skip-tls-verify|locked|offline"
    r"|paginate|quiet|silent|verbose)"
).fullmatch  # Options before a subcommand that take no argument
_MOST_COMMANDS = 20
"""Commands that one command may start, as in `env nohup sh`; of more, each value counts as code."""


@record
class CodeValue:
    """A value that a program takes as code, or may take so."""

    path: tuple[str | int, ...]
    """Keys below the block of the kind: `("args", 1)`."""
    message: str
    needs_approval: bool
    """True where each call needs approval; False where it is only likely that the word is code."""


class _CodeWord(NamedTuple):
    """A word with a value that a program takes as code, or may take so."""

    word: int
    """The position of the word in the command; -1: its standard input."""
    where: str
    """The program with its option, such as `sh -c`; "" where the value names the program to run."""
    known: bool = True
    """False for a program that is not in the table."""


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
        found = _code_word(command, is_free)
        if found is None:
            continue
        parts = command.fed if found.word < 0 else command.words[found.word]
        free = (part.name for part in parts if isinstance(part, Reference) and is_free(part))
        if (name := next(free, None)) is None:
            continue  # The mark of a value is in the manifest itself: no program has a NUL in a word.
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


def _code_word(command: Command, is_free: Callable[[Reference], bool]) -> _CodeWord | None:
    """Return the first value of a command that is code to its program; known programs come first.

    `is_free` returns True for a value that may be any text.
    """
    words = [marked(pieces, is_free) for pieces in command.words]
    if not words or not (command.fed or any(VALUE in word for word in words)):
        return None
    found = _code_words(words, 0, set(), fed=any(map(is_free, command.fed)))
    return min(found, key=lambda one: not one.known, default=None)


def _code_words(words: list[str], first: int, seen: set[int], *, fed: bool) -> Iterator[_CodeWord]:
    """Yield the values that are code to the command that begins at position `first`.

    `seen` holds the positions of the commands read so far: each is read once, or `find -exec find -exec …`
    would take exponential time.
    """
    if first in seen:
        return
    seen.add(first)
    name = base_name(words[first])
    program = known_program(name)
    if VALUE in words[first]:
        yield _CodeWord(first, "")
    elif len(seen) > _MOST_COMMANDS:
        if len(seen) == _MOST_COMMANDS + 1:  # Once is enough: a hostile line has thousands of commands.
            yield from (_CodeWord(at, name) for at, word in enumerate(words) if VALUE in word)
    elif program is None:
        yield from _unknown(name, words, first + 1, seen, fed=fed)
    elif name in FINDERS:
        starts = [at for at in range(first + 2, len(words)) if words[at - 1] in FIND_COMMANDS]
        for at in starts:
            yield from _code_words(words, at, seen, fed=fed)
        yield from _after_dashes(name, words, first)
    else:
        yield from _of_program(name, program, words, first + 1, seen, fed=fed)


def _after_dashes(name: str, words: list[str], first: int) -> Iterator[_CodeWord]:
    """Values after the `--` of `find`, which ends no expression: each can be an action such as `-delete`."""
    if name == "find" and "--" in words[first:]:
        for at in range(words.index("--", first) + 1, len(words)):
            before = words[at - 1]
            if words[at].startswith(VALUE) and (before == "--" or before[:1] != "-"):
                yield _CodeWord(at, "find --")


def _unknown(name: str, words: list[str], first: int, seen: set[int], *, fed: bool) -> Iterator[_CodeWord]:
    """A program that is not in the table: a known one that it starts, and options that look like code."""
    for at in range(first, len(words)):
        following = words[at + 1] if at + 1 < len(words) else ""
        inner = known_program(base_name(words[at]))
        if inner is not None and (inner.script is not None or inner.every) and following.startswith("-"):
            yield from _code_words(words, at, seen, fed=fed)
        # Only a warning: such an option of a program that nobody knows may mean anything.
        shape = _SHAPE.fullmatch(words[at])
        if shape is not None and VALUE in (shape[2] or following):
            yield _CodeWord(at if shape[2] else at + 1, f"{name} {shape[1]}", known=False)


def _of_program(
    name: str, program: Program, words: list[str], first: int, seen: set[int], *, fed: bool
) -> Iterator[_CodeWord]:
    """A known program, whose words after its name begin at position `first`."""
    if _takes_any(program, words[first:]):
        yield from (_CodeWord(at, name) for at in range(first, len(words)) if VALUE in words[at])
        if fed:
            yield _CodeWord(-1, name)
        return
    reading = CommandReading(program, words, first)
    for role, text, option in reading.parts():
        if role == "command":
            yield from _code_words(words, reading.at, seen, fed=fed)
        elif option in program.modules and (runner := module_program(text)) is not None:
            yield from _of_program(f"{name} -m {text}", runner, words, reading.at + 1, seen, fed=fed)
            return
        elif VALUE in text:
            if _is_code(reading, role, text, option):
                yield _CodeWord(reading.at, f"{name} {reading.shown}".rstrip())
        elif fed and text in _INPUT and option in program.files and reading.takes_code(option):
            yield _CodeWord(-1, f"{name} {option}")
        elif role in ("script", "rest") and text not in (*_INPUT, ";") and not reading.unsure:
            yield from _remote(name, words, reading.at, seen) if fed and not reading.given else ()
            reading.given = not reading.reads_input
            if reading.given and not program.mixes:
                return
    # Nothing else was the code, so such a program reads it from its input.
    if fed and program.stdin and not reading.given:
        yield _CodeWord(-1, name)


def _remote(name: str, words: list[str], at: int, seen: set[int]) -> Iterator[_CodeWord]:
    """A command for a shell elsewhere, in one word or several, which gets the standard input."""
    if name in REMOTE:
        line = [*words[:at], *(words[at].split() or [""]), *words[at + 1 :]]
        yield from (found for found in _code_words(line, at, seen, fed=True) if found.word < 0)


def _takes_any(program: Program, words: list[str]) -> bool:
    """Return True if any word after a program's name may be code."""
    if program.every or not set(program.subcommands).isdisjoint(words):
        return True
    # The subcommand is the first word that is neither an option nor possibly the argument of one.
    pairs = pairwise(("", *words))
    operands = (
        word
        for before, word in pairs
        if word[:1] != "-" and (before[:1] != "-" or "=" in before or _is_flag(before))
    )
    return bool(program.subcommands) and program.script is None and VALUE in next(operands, "")


def _is_code(reading: CommandReading, role: str, text: str, option: str) -> bool:
    """Return True if the program takes a part with a value in it as code."""
    program = reading.program
    if role == "option":
        return reading.takes_code(option)
    if role == "any":
        return bool(program.code or program.loads) or program.script is not None
    if role == "variable":
        return is_steering(text.partition("=")[0])
    return role != "argument"


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
