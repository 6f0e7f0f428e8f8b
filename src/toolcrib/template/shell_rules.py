"""Which words of a shell command may hold a value: never those that are read as code, or name a program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from toolcrib.template.tree import LiteralText, Reference

__all__ = ["Command", "Fault", "Word", "command_fault", "is_steering"]

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh", "rbash"})
_LANGUAGES = frozenset(
    {"python", "perl", "ruby", "node", "nodejs", "php", "lua", "deno", "bun", "tclsh", "Rscript"}
)
_CODE_FLAGS = re.compile(r"-[A-Za-z]*[ceErp]|--(?:eval|print|run|execute|command)(?:=.*)?", re.DOTALL)
_SHELL_CODE = re.compile(r"-[A-Za-z]*c[A-Za-z]*|--command(?:=.*)?", re.DOTALL)
_CODE = frozenset({
    "eval", ".", "source", "trap", "alias", "unalias", "export", "readonly", "local", "declare", "typeset",
    "let", "read", "mapfile", "readarray", "unset", "set", "getopts", "hash", "wait", "builtin", "enable",
    "complete", "bind", "fc", "shopt", "ulimit", "ssh", "slogin", "mosh", "rsh", "su", "sudo", "doas",
    "xargs",
    "parallel", "watch", "script", "at", "batch", "nsenter", "unshare", "chroot", "flock", "strace",
    "busybox",
    "toybox", "setpriv", "runuser", "pkexec", "systemd-run", "ionice", "chrt", "taskset", "expect", "make",
    "vi",
    "vim", "ex", "ed", "gdb",
})  # fmt: skip
"""Commands whose words are code, name variables, or name another program after options of their own."""
_THROUGH = frozenset({"nohup", "exec", "command", "setsid", "nice"})
"""They run the command that follows."""
_FILTERS = frozenset({"jq", "yq"})
"""Their programs run nothing: a value may be a whole word of theirs, not a piece of one."""
_EDITORS = frozenset({"awk", "gawk", "mawk", "nawk", "sed", "gsed"})
_PROGRAM_FLAGS = frozenset({"-e", "-f", "--expression", "--file"})
_AWK_FLAGS = frozenset({"-F", "-v", "-i", "-l"})
"""Options of awk that take the next word."""
_READING = frozenset({"ssh", "xargs", "parallel", "source", ".", "at", "batch", "su", "sudo", "eval", "read"})
"""Commands that take code, or words to run, from their input."""
_FIND = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_STEERING = re.compile(
    r"PATH|IFS|ENV|BASH_\w*|LD_\w+|SHELLOPTS|PS4|PYTHON\w*|PERL5\w*|NODE_OPTIONS|GIT_\w+|RUBYOPT"
)
"""Variables that decide what is run."""


@dataclass(slots=True)
class Word:
    """One word as the shell will see it."""

    start: int
    """The place of its first sign."""
    text: str = ""
    """Quotes removed; `$` for what the shell itself puts in; nothing for values."""
    parts: list[LiteralText | Reference] = field(default_factory=list)
    quoted: bool = False
    dynamic: bool = False
    """The shell puts something in that is not known here."""
    nested: bool = False
    """A value stands in a command substitution in it."""
    braces: bool = False
    first_value: int | None = None
    """The place of its first value."""

    def literal(self, text: str) -> None:
        """Add text."""
        self.text += text
        self.parts.append(LiteralText(text))

    def value(self, reference: Reference, place: int) -> None:
        """Add a value."""
        self.parts.append(reference)
        if self.first_value is None:
            self.first_value = place

    @property
    def values(self) -> bool:
        """Whether any value is in it."""
        return self.first_value is not None

    @property
    def opens(self) -> bool:
        """Whether it begins with a value."""
        first = next((part for part in self.parts if isinstance(part, Reference) or part.text), None)
        return isinstance(first, Reference)

    @property
    def mixed(self) -> bool:
        """Whether text and values stand in it together."""
        return self.values and (bool(self.text) or len(self.parts) > 1)


@dataclass(slots=True)
class Command:
    """One simple command, and what flows into it."""

    words: list[Word] = field(default_factory=list)
    values: bool = False
    fed_values: bool = False
    """What it reads may hold a value."""
    grouped: bool = False
    """It holds further commands."""

    def add(self, word: Word) -> None:
        """Add a word."""
        self.words.append(word)
        self.values |= word.values

    @property
    def operands(self) -> list[Word]:
        """The words after the command's name."""
        return _after_assignments(self.words)[1:]


Fault = tuple[Word, str, str | None]
"""The word, what is wrong, and how to mend it."""


def is_steering(name: str) -> bool:
    """Whether an environment variable decides what is run."""
    return _STEERING.fullmatch(name) is not None


def command_fault(command: Command) -> Fault | None:
    """Why a value cannot stand where it stands in this command; None where it can."""
    if not command.values and not command.fed_values:
        return None
    for word in command.words[: len(command.words) - len(_after_assignments(command.words))]:
        fault = _assignment_fault(word, command)
        if fault is not None:
            return fault
    return _fault(_after_assignments(command.words), command)


def _after_assignments(words: list[Word]) -> list[Word]:
    at = 0
    while at < len(words) and _assigned(words[at]) is not None:
        at += 1
    return words[at:]


def _assigned(word: Word) -> str | None:
    """The variable that a word gives a value."""
    head = ""
    for part in word.parts:
        if isinstance(part, Reference):
            break
        head += part.text
    match = _ASSIGNMENT.match(head)
    return None if match is None else match.group(1)


def _assignment_fault(word: Word, command: Command) -> Fault | None:
    if not word.values:
        return None
    name = _assigned(word) or ""
    if is_steering(name):
        return word, f"a value cannot be put into `{name}`: it decides what is run", None
    if not _after_assignments(command.words):
        told = (
            f"a value cannot be kept in the shell variable `{name}`: where that is used it may stand unquoted"
        )
        return word, told, "write the placeholder where the value is needed"
    return None


def _fault(words: list[Word], command: Command) -> Fault | None:
    if not words:
        return None
    first = words[0]
    valued = [word for word in words if word.values]
    if first.values:
        return first, "a placeholder cannot be the program that is run", "write the program's name out"
    if valued and first.dynamic:
        return valued[0], "a placeholder cannot be handed to a program that the shell itself looks up", None
    name = first.text.rpartition("/")[2]
    rest = words[1:]
    if name in _THROUGH or name in ("env", "timeout"):
        return _through(name, rest, command)
    if not valued:
        return _fed_fault(name, words, command)
    if name in _CODE:
        told = f"a placeholder cannot stand in a command of `{name}`: its words are code or programs"
        return valued[0], told, "call the program itself"
    if name == "for":
        told = "a placeholder cannot stand in the words of `for`: the variable may be used unquoted"
        return valued[0], told, None
    return (
        _language_fault(name, rest)
        or _inner_fault(rest)
        or _operand_fault(name, rest)
        or _fed_fault(name, words, command)
    )


def _through(name: str, rest: list[Word], command: Command) -> Fault | None:
    """The command that one like `nohup` or `timeout 5` runs."""
    if name == "timeout":
        if rest and (rest[0].values or rest[0].text.startswith("-")):
            return rest[0], "options and a placeholder for the time of `timeout` cannot stand here", None
        rest = rest[1:]
    if name == "env":
        for word in rest[: len(rest) - len(_after_assignments(rest))]:
            fault = _assignment_fault(word, Command(rest))
            if fault is not None:
                return fault
        rest = _after_assignments(rest)
    if rest and rest[0].text.startswith("-"):
        told = f"options of `{name}` cannot stand in a line with placeholders"
        return rest[0], told, None
    return _fault(rest, command)


def _is_language(name: str) -> bool:
    return name.rstrip("0123456789.") in _LANGUAGES


def _language_fault(name: str, rest: list[Word]) -> Fault | None:
    """A value in the code that `sh -c`, `python -c` and their like are given."""
    shell = name in _SHELLS
    if not shell and not _is_language(name):
        return None
    flags = _SHELL_CODE if shell else _CODE_FLAGS
    code = False
    for word in rest:
        if code and not (word.text.startswith(("-", "+")) and not word.values):
            if word.values:
                told = f"a placeholder cannot stand in the code that `{name}` is given"
                return word, told, "hand the value over as an argument after the code"
            return None
        if word.values and (word.text.startswith("-") or (word.mixed and not word.text)):
            return word, f"a placeholder cannot stand in an option of `{name}`", None
        if word.values and word.opens:
            return word, f"a placeholder cannot be the program that `{name}` runs", None
        code = code or (not word.values and flags.fullmatch(word.text) is not None)
        if not code and not word.text.startswith("-"):
            return None
    return None


def _inner_fault(rest: list[Word]) -> Fault | None:
    """A value in the code of a shell that another program starts, as in `docker exec box sh -c '…'`."""
    for at, word in enumerate(rest):
        name = word.text.rpartition("/")[2]
        if word.values or not (name in _SHELLS or _is_language(name)):
            continue
        flags = _SHELL_CODE if name in _SHELLS else _CODE_FLAGS
        after = rest[at + 1 :]
        if any(flags.fullmatch(word.text) for word in after[:2]):
            return _language_fault(name, after)
    return None


def _operand_fault(name: str, rest: list[Word]) -> Fault | None:
    valued = [word for word in rest if word.values]
    if name in _FILTERS:
        for word in valued:
            if (word.mixed or word.nested) and not word.text.startswith("--"):
                told = f"a placeholder cannot be a piece of a word of `{name}`: that may be its program"
                return word, told, "hand it over as a word of its own, as in `jq --arg name {{value}} …`"
    if name in _EDITORS:
        return _program_fault(name, rest)
    if name == "find" and any(word.text in _FIND for word in rest):
        return valued[0], "a placeholder cannot stand in a `find` that runs programs", None
    if name == "printf" and rest[0].values:
        return rest[0], "a placeholder cannot be the format of `printf`", "write `printf '%s' …`"
    if name in ("[", "test") and any(word.text in ("-v", "-R") for word in rest):
        return valued[0], "a placeholder cannot stand beside `-v`: its value would name a variable", None
    return None


def _program_fault(name: str, rest: list[Word]) -> Fault | None:
    """A value in the program of awk or sed, which can run commands."""
    told = f"a placeholder cannot stand in the program of `{name}`, which can run commands"
    hint = "write the program out; with awk: `awk -v name={{value}} '…'`"
    written, flag = False, ""
    for word in rest:
        if flag:
            if word.values and flag in _PROGRAM_FLAGS:
                return word, told, hint
            written, flag = written or flag in _PROGRAM_FLAGS, ""
        elif not word.values and (word.text in _PROGRAM_FLAGS or (word.text in _AWK_FLAGS and "awk" in name)):
            flag = word.text
        elif word.text.startswith("-"):
            if word.values and not word.text.startswith(("-v", "-F")):
                return word, told, hint
        elif word.values and not written:
            return word, told, hint
        else:
            written = True
    return None


def _fed_fault(name: str, words: list[Word], command: Command) -> Fault | None:
    """A program that takes code from its input, and may be given a value there."""
    if not command.fed_values:
        return None
    shell = name in _SHELLS or name in _READING
    bare = all(word.text.startswith("-") for word in words[1:])
    if shell or (_is_language(name) and bare):
        told = f"`{name}` would read a value from its input as code or words"
        return words[0], told, "hand the value over as an argument of the program that needs it"
    return None
