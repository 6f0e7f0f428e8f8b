"""The words in which known programs take code or a command; the table of them is `programs.json`.

A value in such a word is reported by lint, and a person must approve each call. The table is no guarantee: a
program that is not in it can read any word as code; options of such a program that look alike are a warning.
Where it is unsure which word is the code, each value counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from toolcrib.spec.record import record
from toolcrib.template.tree import Reference

Piece = str | Reference
"""A piece of a word: text without its quotes, or a value."""
EXPANSION = "\1"
"""Stands in a word for text that only the shell knows."""
VALUE = "\0"
"""Stands in a word for a value."""

_STEERING = re.compile(
    r"PATH|IFS|ENV|BASH_\w*|LD_\w+|SHELLOPTS|PS4|PYTHON\w*|PERL5\w*|NODE_OPTIONS|GIT_\w+|RUBYOPT|RUBYLIB"
    r"|SHELL|\w*PAGER|EDITOR|VISUAL|BROWSER|LESSOPEN|LESSCLOSE|_JAVA_OPTIONS|J\w+_JAVA_OPTIONS|CLASSPATH"
    r"|JAVA_TOOL_OPTIONS|RSYNC_RSH|RSYNC_CONNECT_PROG|TAR_OPTIONS|MAKEFLAGS|MAKEFILES|\w+_ASKPASS|LUA_\w+"
    r"|NODE_PATH|AWKPATH|AWKLIBPATH|PROMPT_COMMAND|ZDOTDIR|VIMINIT|EXINIT|KUBECONFIG|DOCKER_(?:CONFIG|HOST)"
    r"|OPENSSL_(?:CONF|MODULES|ENGINES)|GOFLAGS|PYTEST_(?:ADDOPTS|PLUGINS)|PSQLRC|PHPRC|R_PROFILE\w*"
    r"|(?i:npm_config|pip|uv|cargo|rustc?)_\w+"
)
_SHAPE = re.compile(
    r"(-[ce]|--(?:eval|exec|expression|command|cmd|code|script|shell|run|query|rsh)[\w-]*)(=.*)?", re.DOTALL
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
_MOST_COMMANDS = 20
"""Commands that one command may start, as in `env nohup sh`; of more, each value counts as code."""
FINDERS = ("find", "fd", "fdfind")
FIND_COMMANDS = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")
"""Options of these after which a command begins."""


@dataclass(slots=True)
class Command:
    """One command with its words, and the values in it."""

    words: list[list[Piece]] = field(default_factory=list)
    values: list[Reference] = field(default_factory=list)
    """All values in its words, assignments and redirections."""
    fed: list[Reference] = field(default_factory=list)
    """Values that may reach its standard input."""


@record
class CodeWord:
    """A word with a value that a program takes as code, or may take so."""

    word: int
    """The position of the word in the command; -1: its standard input."""
    where: str
    """The program with its option, such as `sh -c`; "" where the value names the program to run."""
    known: bool = True
    """False for a program that is not in the table."""


@record
class Program:
    """The ways in which one program takes code; options are separated by spaces."""

    code: str = ""
    """Options with the code to run; then there is no operand `script`."""
    loads: str = ""
    """Further options whose argument is code or a command."""
    takes: str = ""
    """Other options that take an argument."""
    flags: str = ""
    """Letters of options without one; any other letter makes it unsure which operand is the code."""
    input: str = ""
    """Letters of options with which it reads code from standard input."""
    script: int | None = None
    """The position of the operand that is code."""
    rest: bool = False
    """The operands after that are code too: files as far as they end as the first one does."""
    command: int | None = None
    """The position of the operand at which another command begins."""
    stdin: bool = False
    """Without code among its words it reads code, or words of a command, from standard input."""
    every: bool = False
    """Any word may be code."""
    mixes: bool = False
    """Options may follow the operand `script`."""
    whole: bool = False
    """Options with one dash are long words."""
    subcommands: str = ""
    """Words after which any word may be code."""
    files: str = ""
    """Options whose argument is a file of code."""
    modules: str = ""
    """Options whose argument is a Python module."""
    module: bool = False
    """The operand `script` is a Python module."""
    lines: str = ""
    """Options whose argument is a command line."""
    line: str = ""
    """Letters of options that make the operand `script` a command line."""
    text: bool = False
    """The operand `script` is code itself, not a file."""
    joins: bool = False
    """All its operands together are a command line."""
    chdir: str = ""
    """Options whose argument becomes the working folder."""
    skips: str = ""
    """Words before the first operand."""
    default: str = ""
    """Files of code that it reads if none is named."""


@cache
def _programs() -> dict[str, Program]:
    import orjson

    table = orjson.loads((Path(__file__).parent / "programs.json").read_bytes())
    return {name: Program(**program) for names, program in table.items() for name in names.split()}


def known_program(name: str) -> Program | None:
    """Return the record of a program by its name; `python3.12` is `python`."""
    return _programs().get(name) or _programs().get(name.rstrip("0123456789."))


def module_program(name: str) -> Program | None:
    """Return the record of a Python module that runs code of others, as `python -m` starts it."""
    return _programs().get(f"-m{name}")


def is_steering(name: str) -> bool:
    """Return True for an environment variable that decides what is run."""
    return _STEERING.fullmatch(name) is not None


def base_name(text: str) -> str:
    """Return the name of a program without its folder."""
    return text.rpartition("/")[2]


def marked(parts: Sequence[Piece], is_free: Callable[[Reference], bool] | None = None) -> str:
    """Return a word as text, with a mark for each value; one that is not free counts as an expansion."""
    return "".join(
        part if isinstance(part, str) else VALUE if is_free is None or is_free(part) else EXPANSION
        for part in parts
    )


def code_word(command: Command, is_free: Callable[[Reference], bool]) -> CodeWord | None:
    """Return the first value of a command that is code to its program; known programs come first.

    `is_free` returns True for a value that may be any text.
    """
    words = [marked(pieces, is_free) for pieces in command.words]
    if not words or not (command.fed or any(VALUE in word for word in words)):
        return None
    found = list(_found(words, 0, set(), fed=any(map(is_free, command.fed))))
    return min(found, key=lambda one: not one.known, default=None)


def _found(words: list[str], first: int, seen: set[int], *, fed: bool) -> Iterator[CodeWord]:
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
        yield CodeWord(first, "")
    elif len(seen) > _MOST_COMMANDS:
        if len(seen) == _MOST_COMMANDS + 1:  # Once is enough: a hostile line has thousands of commands.
            yield from (CodeWord(at, name) for at, word in enumerate(words) if VALUE in word)
    elif program is None:
        yield from _unknown(name, words, first + 1, seen, fed=fed)
    elif name in FINDERS:
        starts = [at for at in range(first + 2, len(words)) if words[at - 1] in FIND_COMMANDS]
        for at in starts:
            yield from _found(words, at, seen, fed=False)
    else:
        yield from _Reading(name, program, words, first + 1, seen, fed=fed).found()


def _unknown(name: str, words: list[str], first: int, seen: set[int], *, fed: bool) -> Iterator[CodeWord]:
    """A program that is not in the table: a known one that it starts, and options that look like code."""
    for at in range(first, len(words)):
        following = words[at + 1] if at + 1 < len(words) else ""
        inner = known_program(base_name(words[at]))
        if inner is not None and (inner.script is not None or inner.every) and following.startswith("-"):
            yield from _found(words, at, seen, fed=fed)
        # Only a warning: such an option of a program that nobody knows may mean anything.
        shape = _SHAPE.fullmatch(words[at])
        if shape is not None and VALUE in (shape[2] or following):
            yield CodeWord(at if shape[2] else at + 1, f"{name} {shape[1]}", known=False)


class _Reading:
    """The words of one known program, read as it reads them itself."""

    def __init__(
        self, name: str, program: Program, words: list[str], at: int, seen: set[int], *, fed: bool
    ) -> None:
        self._name = name
        self._program = program
        self._words = words
        self._at = at
        self._seen = seen
        self._fed = fed
        self._code = program.code.split()
        self._takes = program.takes.split()
        self._loads = program.loads.split()
        self._option = ""
        """The last option that takes code."""
        self._given = False
        """The code is in a word without a value."""
        self._unsure = False
        """An unknown option may have taken the next word."""
        self._reads = False
        """An option says that it reads code from standard input."""

    def found(self) -> Iterator[CodeWord]:
        """Yield the values that are code."""
        start, program = self._at, self._program
        if program.every or not {*program.subcommands.split()}.isdisjoint(self._words[start:]):
            yield from (self._as_code(at) for at in range(start, len(self._words)) if self._is_value(at))
            if self._fed:
                yield CodeWord(-1, self._name)
        else:
            yield from self._read()

    def _is_value(self, at: int) -> bool:
        return at < len(self._words) and VALUE in self._words[at]

    def _as_code(self, at: int) -> CodeWord:
        return CodeWord(at, f"{self._name} {self._option}".rstrip())

    def _read(self) -> Iterator[CodeWord]:
        operands, ended, program = 0, False, self._program
        while self._at < len(self._words):
            word = self._words[self._at]
            assigned = _ASSIGNED.match(word) if self._name == "env" else None
            if not ended and len(word) > 1 and word[0] in "-+":
                ended = word == "--"
                yield from () if ended else self._options(word)
            elif assigned is not None:
                if is_steering(assigned[1]) and self._is_value(self._at):
                    yield self._as_code(self._at)
            elif operands == program.command:
                yield from _found(self._words, self._at, self._seen, fed=self._fed)
                break
            else:
                yield from self._operand(word, operands)
                operands += 1
                if self._given and not self._unsure and not program.mixes:
                    break
            self._at += 1
        # Nothing else was the code, so such a program reads it from its input.
        if self._fed and program.stdin and not self._given:
            yield CodeWord(-1, self._name)

    def _operand(self, word: str, position: int) -> Iterator[CodeWord]:
        program = self._program
        if program.script is None or position < program.script or (self._given and not program.rest):
            return
        if position > program.script and not (program.rest or self._unsure):
            return
        if VALUE in word:
            yield self._as_code(self._at)
        elif word not in ("-", "/dev/stdin") and not self._unsure:
            self._given = not self._reads

    def _options(self, word: str) -> Iterator[CodeWord]:
        """Read one word of options, with the word after it where that is the argument."""
        if not word.startswith("--") and not self._program.whole:
            yield from self._letters(word)
            return
        name, equals, attached = word.partition("=")
        known = (*self._code, *self._loads)
        # GNU programs take any beginning of a long option that only one option has.
        option = next((one for one in known if one == name or (len(name) > 4 and one.startswith(name))), None)
        if option is not None:
            yield from self._argument(option, attached if equals else None)
        elif VALUE in name:
            yield from self._any_option()
        elif name in self._takes:
            self._at += not equals
        # It may take the next word, so whichever operand has a value counts as the code.
        elif not equals and not self._program.whole:
            self._unsure = True

    def _letters(self, word: str) -> Iterator[CodeWord]:
        """Read a word of options with one letter each: `-xvf NAME`."""
        for at, letter in enumerate(word[1:], 2):
            option, attached = word[0] + letter, word[at:] or None
            if option in self._code or option in self._loads:
                yield from self._argument(option, attached)
                return
            if option in self._takes:
                self._at += attached is None
                return
            if letter == VALUE:
                yield from self._any_option()
                return
            self._unsure |= letter not in self._program.flags
            self._reads |= letter in self._program.input
            if self._program.input:
                self._option = word

    def _any_option(self) -> Iterator[CodeWord]:
        """A value that can be any option."""
        if self._code or self._loads or self._program.script is not None:
            yield self._as_code(self._at)

    def _argument(self, option: str, attached: str | None) -> Iterator[CodeWord]:
        self._option = option
        self._given |= option in self._code
        if attached is None:
            self._at += 1
        if VALUE in attached if attached is not None else self._is_value(self._at):
            yield self._as_code(self._at)
        elif option in self._program.modules.split() and self._at < len(self._words):
            name = attached or self._words[self._at]
            runner = module_program(name)
            if runner is not None:
                shown = f"{self._name} -m {name}"
                inner = _Reading(shown, runner, self._words, self._at + 1, self._seen, fed=self._fed)
                yield from inner.found()
                self._at = len(self._words)
