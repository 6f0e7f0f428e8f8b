"""The words of a command that its program takes as code, and the variables that steer what is loaded.

The table is no guarantee: a program that is not in it can read any word as code. Where it is unsure which
word is the code, more words count.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from toolcrib.spec.record import record

VALUE = "\0"
"""Stands in a word for a value of a call."""
INPUT = -1
"""The position of the standard input among the words of a command."""
_STEERING = re.compile(
    r"PATH|IFS|ENV|BASH_\w*|SHELL|SHELLOPTS|PS4|PROMPT_COMMAND|ZDOTDIR|LD_\w+|GCONV_PATH|PYTHON\w*|PERL5\w*"
    r"|PERLLIB|RUBYOPT|RUBYLIB|NODE_OPTIONS|NODE_PATH|PHPRC|PHP_INI_SCAN_DIR|AWKPATH|AWKLIBPATH|PSQLRC|LUA_\w+"
    r"|CLASSPATH|\w*JAVA_OPTIONS|DOTNET_STARTUP_HOOKS|OPENSSL_(?:CONF|MODULES|ENGINES)|LESSOPEN|LESSCLOSE"
    r"|GIT_(?:SSH|CONFIG|EXTERNAL|EXEC|TEMPLATE|PROXY)\w*|\w*PAGER|\w*EDITOR|VISUAL|BROWSER|\w+_ASKPASS"
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
_INPUT_NAMES = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_FINDERS = ("find", "fd", "fdfind")
_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")
"""Options of these after which a command begins."""
_RUNNERS = ("cProfile", "code", "pdb", "profile", "runpy", "timeit", "trace")
"""Modules of Python that run code."""
_TAKES_CODE = re.compile(r"-\w*[ceEr]|--(?:command|eval|execute|expression)(?:=.*)?", re.DOTALL)
"""An option after which an interpreter counts even behind a program that is not in the table."""
_MOST_COMMANDS = 20
"""Commands that one command may start, as in `env nohup sh`; of more, each value counts."""


class CodeWord(NamedTuple):
    """A word with a value that a program takes as code."""

    at: int
    """The position in the command, or `INPUT`."""
    program: str
    """The program; "" where the value names the program to run."""


@record
class _Program:
    """The words in which a program takes code; options are separated by spaces."""

    code: str = ""
    """Options whose argument is code, in place of the operand `script`."""
    loads: str = ""
    """Further options whose argument is code."""
    takes: str = ""
    """Other options with an argument."""
    script: int | None = None
    """The position of the operand that is code."""
    rest: bool = False
    """All words after that are code too."""
    mixes: bool = False
    """Options may follow it."""
    command: int | None = None
    """The position of the operand at which another command begins; its variables may precede it."""
    whole: bool = False
    """Options with one dash are long words."""
    stdin: str | None = None
    """Options for code from standard input, which it also reads without any code among its words."""


_TABLE = {
    "sh bash dash ash ksh mksh zsh fish csh tcsh rbash rksh":
        _Program(loads="--rcfile --init-file --command", takes="-o +o -O +O", script=0, stdin="-s"),
    "pwsh powershell": _Program(code="-File -f", script=0, rest=True, whole=True, stdin=""),
    "python pypy": _Program("-c -m", takes="-W -X --check-hash-based-pycs", script=0, stdin=""),
    "perl": _Program("-e -E", "-M -m -I", script=0, stdin=""),
    "ruby": _Program("-e", "-r -I", "-C -E", script=0, stdin=""),
    "node nodejs": _Program(
        "-e -p -pe --eval --print", "-r --require --import --loader --experimental-loader",
        "-C --conditions --input-type --env-file", script=0, whole=True, stdin=""),
    "php": _Program("-r -R -f", "-B -E -F -c -d -z", "-t -S", script=0, stdin=""),
    "awk gawk mawk nawk": _Program(
        "-f -e -E --file --source --exec", "-i -l --include --load",
        "-F -v --assign --field-separator", script=0),
    "sed gsed": _Program("-e -f --expression --file", takes="-l --line-length", script=0, mixes=True),
    "psql": _Program(
        "-c -f --command --file", "-o --output", "-d -h -p -U -F -R -T -P -L -v", stdin=""),
    "mysql mariadb": _Program("-e --execute", "--init-command --pager", "-h -u -P -S -D", stdin=""),
    "sqlite3 sqlite duckdb": _Program(
        "-c -s -f", "-cmd -init", "-separator -nullvalue -newline -vfs", script=1, rest=True, whole=True,
        stdin=""),
    "clickhouse-client cockroach mycli pgcli sqlcmd sqlplus usql": _Program(
        "-c --command -e -f -q -Q -i --execute --file --query --queries-file",
        takes="-u -p -h -d -U -P -S", stdin=""),
    "ssh slogin": _Program(
        loads="-o -F -I", takes="-b -B -c -D -E -e -i -J -L -l -m -O -p -P -Q -R -S -W -w", script=1,
        rest=True, stdin=""),
    "eval trap": _Program(script=0, rest=True),
    ". source": _Program(script=0),
    "test [ printf": _Program(loads="-v", whole=True),  # bash runs `a[$(…)]` there
    "su runuser": _Program(loads="-c --command"),
    "env": _Program(loads="-S --split-string", takes="-u -C --unset --chdir", command=0),
    "sudo doas": _Program(takes="-u -g -h -p -C -D -R -T -U -r -t --user --group", command=0),
    "timeout": _Program(takes="-s -k --signal --kill-after", command=1),
    "nice ionice": _Program(takes="-n -c -p --adjustment", command=0),
    "time stdbuf": _Program(takes="-f -i -o -e", command=0),
    "nohup setsid builtin command exec busybox toybox": _Program(takes="-a -v -V", command=0),
    "xargs": _Program(takes="-I -n -P -L -d -E -s -a --max-args --max-procs", command=0),
}  # fmt: skip
_PROGRAMS = {name: program for names, program in _TABLE.items() for name in names.split()}

_Words = Sequence[tuple[str, int]]
"""Words with their positions in the whole command."""


def base_name(text: str) -> str:
    """Return the name of a program without its folder."""
    return text.rpartition("/")[2]


def is_steering(name: str) -> bool:
    """Return True for an environment variable that decides what is loaded or run."""
    return _STEERING.fullmatch(name) is not None


def code_word(words: Sequence[str], *, fed: bool) -> CodeWord | None:
    """Return the first value of a command that is code to its program, or names that; None without one.

    `words` hold VALUE for each value. `fed`: a value may reach the standard input.
    """
    return next(_code_words([(word, at) for at, word in enumerate(words)], fed=fed), None)


def interpreter(word: str) -> _Program | None:
    """Return the record of an interpreter, or of a program that starts one; `python3.12` is `python`."""
    name = base_name(word)
    return _PROGRAMS.get(name) or _PROGRAMS.get(name.rstrip("0123456789."))


def _code_words(words: _Words, *, fed: bool) -> Iterator[CodeWord]:
    name = ""
    for _ in range(_MOST_COMMANDS):
        if not words:
            return
        name, program = base_name(words[0][0]), interpreter(words[0][0])
        if VALUE in words[0][0]:
            yield CodeWord(words[0][1], "")
            return
        if name in _FINDERS:
            starts = [at + 1 for at, (word, _) in enumerate(words) if word in _ACTIONS]
            for begin, end in pairwise([*starts, len(words)]):
                command = list(takewhile(lambda word: word[0] != ";", words[begin:end]))
                yield from _code_words(command, fed=fed)
            yield from _expression(words) if name == "find" else ()
            return
        if program is None:
            words = _inner(words)
        else:
            words, fed = yield from _of_program(name, program, words[1:], fed=fed)
    yield from _values(words, name)


def _expression(words: _Words) -> Iterator[CodeWord]:
    """Yield values after a `--` of `find`, which ends no expression: they can be actions (`-delete`)."""
    texts = [word for word, _ in words]
    start = texts.index("--") if "--" in texts else len(texts)
    for (before, _), (word, at) in pairwise(words[start:]):
        if word.startswith(VALUE) and (before == "--" or not before.startswith("-")):
            yield CodeWord(at, "find")


def _inner(words: _Words) -> _Words:
    """Return the command of an interpreter that an unknown program starts; nothing where none shows."""
    for at, ((word, _), (option, _)) in enumerate(pairwise(words)):
        if at and _TAKES_CODE.fullmatch(option) and (inner := interpreter(word)) and inner.command is None:
            return words[at:]
    return ()


def _values(words: _Words, name: str) -> Iterator[CodeWord]:
    return (CodeWord(at, name) for word, at in words if VALUE in word)


def _of_program(
    name: str, program: _Program, words: _Words, *, fed: bool
) -> Generator[CodeWord, None, tuple[_Words, bool]]:
    """Yield the values that are code to one program; return the command it starts, and `fed` for that."""
    if fed and program.command is None:
        names = (*_INPUT_NAMES, *(program.stdin or "").split())
        words = [(VALUE, INPUT) if word in names else (word, at) for word, at in words]
    operands, given, mark = 0, False, ""
    for option, at in _parts(program, words):
        here = words[at : at + 1]
        if option:
            if VALUE in option or option in f"{program.code} {program.loads}".split():
                yield from _values(here, name)
            if option == "-m" and here and here[0][0].removeprefix("-m") in _RUNNERS:
                yield from _values(words[at:], name)
                return (), False
            mark = here[0][0].removeprefix("-I") if option == "-I" and here else mark
            given |= option in program.code.split()
        elif program.command is not None and (assigned := _ASSIGNED.match(here[0][0])):
            yield from _values(here if is_steering(assigned[1]) else (), name)
        elif operands == program.command:
            return _started(name, words[at:], mark, fed=fed)
        elif operands == program.script and program.rest and not given:
            yield from _values(words[at:], name)
            remote = " ".join(word for word, _ in words[at:]).split() if name in ("ssh", "slogin") else ()
            return [(word, INPUT) for word in remote], fed
        else:
            yield from _values(here if operands == program.script and not given else (), name)
            given |= operands == program.script
            if given and program.script is not None and not program.mixes:
                return (), False
            operands += 1
    if fed and program.stdin is not None and not given:
        yield CodeWord(INPUT, name)
    return (), False


def _started(name: str, words: _Words, mark: str, *, fed: bool) -> tuple[_Words, bool]:
    """Return the command that a program starts; that of `xargs` with the words from its input."""
    if name != "xargs" or not fed:
        return words, fed
    if not mark:
        return [*words, (VALUE, INPUT)], False
    return [(word.replace(mark, VALUE), INPUT if mark in word else at) for word, at in words], False


def _parts(program: _Program, words: _Words) -> Iterator[tuple[str, int]]:
    """Yield each option with the position of its argument or its own, and "" with that of each operand."""
    options = f"{program.code} {program.loads} {program.takes}".split()
    at, ended = 0, False
    while at < len(words):
        word = words[at][0]
        if ended or len(word) < 2 or word[0] not in "-+":
            yield "", at
        elif word == "--":
            ended = True
        else:
            option, attached = word, True
            if word.startswith("--") or program.whole:
                option, equals, _ = word.partition("=")
                attached = bool(equals)
            else:
                letters = enumerate(word[1:], 2)
                found = next((end for end, one in letters if word[0] + one in options or one == VALUE), 0)
                if found:
                    option, attached = word[0] + word[found - 1], found < len(word)
            at += option in options and not attached
            yield option, at
        at += 1
