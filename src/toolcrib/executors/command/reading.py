"""The words of one command, read as its program reads them: options with their arguments, and operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from toolcrib.executors.command.programs import ASSIGNED, Program

VALUE = "\0"
"""Stands in a word for a value of a call."""


class CommandPart(NamedTuple):
    """One part of a command, as its program reads it."""

    role: Literal["option", "any", "variable", "command", "script", "rest", "argument"]
    """`any`: a value that can be any option. `command`: another command begins here. `script` and `rest`:
    an operand that is code. `argument`: one that is not."""
    text: str
    """The operand, or the argument of the option."""
    option: str = ""


class CommandReading:
    """The words of one command of a known program, read as the program reads them.

    Whoever goes through `parts` sets `given` once the operand `script` is known to be the code.
    """

    def __init__(self, program: Program, words: Sequence[str], at: int) -> None:
        self.program = program
        self.words = words
        self.at = at
        """The position of the present part."""
        self.shown = ""
        """The last option that takes code."""
        self.given = False
        """The code is known."""
        self.unsure = False
        """An unknown option may have taken the word after it, so any operand may be the code."""
        self.reads_input = False
        """An option says that the code comes from standard input."""
        self.is_line = False
        """An option makes the operand `script` a command line."""

    def parts(self) -> Iterator[CommandPart]:
        """Yield each part up to the code, except for options without an argument."""
        program, operands, ended = self.program, 0, False
        while self.at < len(self.words):
            word = self.words[self.at]
            if not ended and len(word) > 1 and word[0] in "-+":
                ended = word == "--"
                yield from () if ended else self._option(word)
            elif program.variables and ASSIGNED.match(word):
                yield CommandPart("variable", word)
            elif operands or word not in program.skips:
                role = self._role(operands)
                yield CommandPart(role, word)
                operands += 1
                # After the code there are only its arguments.
                over = self.given and not (program.mixes or program.rest or self.unsure)
                if over or (role == "command" and program.script is None):
                    return
            self.at += 1

    def _role(self, position: int) -> Literal["command", "script", "rest", "argument"]:
        script = self.program.script
        if position == self.program.command:
            return "command"
        if script is None or position < script or (self.given and not self.program.rest):
            return "argument"
        if position == script or self.unsure:
            return "script"
        return "rest" if self.program.rest else "argument"

    def _option(self, word: str) -> Iterator[CommandPart]:
        """Read one word of options, with the word after it where that is the argument."""
        program = self.program
        with_code = (*program.code, *program.loads)
        known = (*with_code, *program.takes, *program.files, *program.modules, *program.lines, *program.chdir)
        if word.startswith("--") or program.whole:
            name, equals, attached = word.partition("=")
            # GNU programs take any beginning of a long option that only one option has.
            begun = (one for one in with_code if len(name) > 4 and one.startswith(name))
            option = name if name in known else next(begun, None)
            if option is not None:
                yield self._argument(option, attached if equals else None)
            elif VALUE in name:
                yield CommandPart("any", word)
            # It may take the next word, so whichever operand has a value counts as the code.
            elif not equals:
                self.unsure |= not program.whole
            return
        for at, letter in enumerate(word[1:], 2):
            if (option := word[0] + letter) in known:
                yield self._argument(option, word[at:] or None)
                return
            if letter == VALUE:
                yield CommandPart("any", word)
                return
            self.unsure |= letter not in program.flags + program.line
            self.reads_input |= letter in program.input
            self.is_line |= letter in program.line
            if program.input:
                self.shown = word

    def _argument(self, option: str, attached: str | None) -> CommandPart:
        if attached is None:
            self.at += 1
            attached = self.words[self.at] if self.at < len(self.words) else ""
        if self.takes_code(option):
            self.shown = option
        self.given |= option in self.program.code
        return CommandPart("option", attached, option)

    def takes_code(self, option: str) -> bool:
        """Return True if the argument of an option is code, or a command."""
        return option in self.program.code or option in self.program.loads
