"""Lines for `/bin/sh -c` in which every value is a quoted variable, never as text of the line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from toolcrib.errors import InvalidInput, ManifestError
from toolcrib.executors.command.interpreters import is_steering
from toolcrib.executors.command.shell_grammar import ShellParser
from toolcrib.executors.command.shell_words import PREFIX, Command, Piece, mentioned
from toolcrib.spec.record import record
from toolcrib.template.parser import Namespaces, parse_conditional
from toolcrib.template.render import settled
from toolcrib.template.spellings import TemplateProblem
from toolcrib.template.tree import MOST_VARIANTS, Reference, Text, TextTemplate
from toolcrib.template.values import MISSING, Missing, Values, bad_value

_NAME = rf"{PREFIX}\d+"
_VALUE = re.compile(rf"(?:'')?\"\$\{{(?P<whole>{_NAME})\}}\"(?:'')?|\$\{{(?P<part>{_NAME})\}}")
"""A value in a line: in double quotes of its own, or a part of longer ones."""
MOST_BYTES = 131_072
"""The limit of one variable with its name: the kernel's MAX_ARG_STRLEN (execve(2))."""
MOST_IN_ALL = 1_000_000
MOST_CHARACTERS = 50_000
"""The limit of a line with placeholders, summed over all lines that its conditions can give."""
MOST_PASSES = 4
"""The line is parsed again after a variable was found that gets a value."""


@record
class ShellLine:
    """One line, ready for the shell, and the values of its variables."""

    text: str
    slots: tuple[tuple[str, Reference], ...] = ()
    """Variable and reference."""
    openings: tuple[tuple[Piece, ...], ...] = ()
    """The words that begin with a value, and so could be read as an option."""
    commands: tuple[Command, ...] = ()
    """The commands of a line with values."""

    def environment(
        self, values: Values, allow_dash: Iterable[str] = (), env: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the variables of the line by name.

        `env` is the rest of the environment, `allow_dash` names arguments that may be options. Raises
        InvalidInput for a value that is absent, contains NUL, is too long or would be an option.
        """
        found: dict[str, str] = {}
        for name, reference in self.slots:
            text = values.text(reference)
            if text is MISSING:
                raise bad_value(reference, "it is needed in the shell line and was not given")
            if "\0" in text:
                raise bad_value(reference, "a shell line cannot contain NUL")
            if len(name) + len(text.encode()) + 2 > MOST_BYTES:
                message = f"it is longer than the {MOST_BYTES:,} bytes a program can be given"
                raise bad_value(reference, message)
            found[name] = text
        if sum(len(text.encode()) for text in found.values()) > MOST_IN_ALL:
            raise InvalidInput(f"the values of the shell line are longer than {MOST_IN_ALL:,} bytes together")
        # `--` guards no program that does not know it, so the value itself is checked.
        for word in self.openings:
            _refuse_option(word, values, frozenset(allow_dash), env or {})
        return found

    def shown(self, values: Mapping[str, str]) -> str:
        """Return the line with these values of its variables in it, each quoted for the shell."""

        def quoted(found: re.Match[str]) -> str:
            if found["whole"]:
                return shlex.quote(values[found["whole"]])
            return re.sub(r'[\\"$`]', r"\\\g<0>", values[found["part"]])

        return _VALUE.sub(quoted, self.text)


def _refuse_option(
    word: tuple[Piece, ...], values: Values, allowed: frozenset[str], env: Mapping[str, str]
) -> None:
    """Refuse a word that would come out with a leading `-`; a variable of the line counts as empty."""
    for part in word:
        if isinstance(part, str):
            text: str | Missing = part
        else:
            text = values.text(part) if part.namespace is not None else env.get(part.name, "")
            if part.name in allowed and text:
                return
        if text is MISSING or text == "":
            continue
        if text.startswith("-"):
            first = next(part for part in word if isinstance(part, Reference))
            message = "it begins with `-` and would be read as an option"
            if first.namespace is None:
                raise InvalidInput(f"the variable {first.name} cannot be used here: {message}")
            raise bad_value(first, message)
        return


@record
class ShellTemplate:
    """A shell line with its conditions; every line that they can give has been parsed."""

    text: Text
    lines: Mapping[TextTemplate, ShellLine] = field(default_factory=dict)

    def line(self, values: Values) -> ShellLine:
        """Return the line for these values."""
        chosen = settled(self.text, values)
        assert chosen is not MISSING
        return self.lines[chosen]


def variables_with_values(env: Mapping[str, Any], names: Namespaces) -> list[str]:
    """Return the variables of a tool's environment with values in them; its line must use them in quotes.

    Raises ManifestError (`details["path"]`: the variable) for one that decides what is run, or whose name is
    for the values of the line.
    """
    found: list[str] = []
    for name, text in env.items():
        if name.startswith(PREFIX):
            raise TemplateProblem(f"the variable {name} is for the values of the line", (name,)).error()
        if parse_conditional(text, names).literal is None:
            if is_steering(name):
                message = f"a placeholder is not allowed in the variable {name}: it decides what is run"
                raise TemplateProblem(message, (name,)).error()
            found.append(name)
    return found


def parse_shell(text: Text, variables: Iterable[str] = ()) -> ShellTemplate:
    """Parse a shell line; `variables` are those of its environment with values in them.

    Raises ManifestError (`details`: offset, length) for a value in a place that is not allowed.
    """
    names = frozenset(variables)
    return ShellTemplate(text, {variant: _parsed(variant, names) for variant in _variants(text, names)})


def shell_problems(text: Text, variables: Iterable[str] = ()) -> list[ManifestError]:
    """Return everything that `parse_shell` would refuse, in order of place."""
    names = frozenset(variables)
    found: dict[tuple[int, str], ManifestError] = {}
    try:
        for variant in _variants(text, names):
            try:
                _parsed(variant, names)
            except ManifestError as error:
                found.setdefault((error.details["offset"], error.message), error)
    except ManifestError as error:
        return [error]
    return [found[key] for key in sorted(found)]


def _variants(text: Text, names: frozenset[str]) -> list[TextTemplate]:
    """Return the lines that the conditions give. Raises ManifestError for more than can be parsed at once."""
    variants = [text] if isinstance(text, TextTemplate) else text.variants()
    if len(variants) > MOST_VARIANTS:
        raise _unusable(f"has too many conditions: they give more than {MOST_VARIANTS} different lines")
    length = sum(len(variant.literals) for variant in variants)
    if length > MOST_CHARACTERS and (names or text.literal is None):
        raise _unusable(
            f"has placeholders and is longer than {MOST_CHARACTERS:,} characters in all its variants",
            "move the long part to a script, and pass it the values as arguments",
        )
    return variants


def _unusable(reason: str, hint: str | None = None) -> ManifestError:
    return TemplateProblem(f"the line {reason}", hint=hint).error()


def _parsed(variant: TextTemplate, variables: frozenset[str]) -> ShellLine:
    literal = variant.literals
    if "\0" in literal:
        raise _unusable("contains NUL, which is not allowed in a shell line")
    # No value in it: the line is the author's own, in whatever shell it is written.
    if not variant.references and mentioned(literal, variables) is None:
        return ShellLine(literal)
    if PREFIX in literal:
        raise _unusable(f"uses a name that begins with `{PREFIX}`, as those for its values do")
    # `a={{x}}; b=$a; c=$b`: only when a is known to hold a value does the next pass see that b does.
    for _ in range(MOST_PASSES):
        parser = ShellParser(variant, variables)
        parser.parse()
        if parser.assigned <= variables:
            break
        variables |= parser.assigned  # A variable that the line gives a value is quoted wherever it is used.
    else:
        raise _unusable("has variables that get values from one another in too long a chain")
    return ShellLine("".join(parser.out), tuple(parser.slots), tuple(parser.openings), tuple(parser.found))
