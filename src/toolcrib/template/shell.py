"""A line for `/bin/sh -c` in which every value stands as a quoted variable, never as text of the line.

What stands round a placeholder decides how its variable is written: `"${V}"` outside of quotes, `${V}` inside
double quotes, `'"${V}"'` inside single quotes: in each case one piece of one word. Where no way of writing it
keeps a value from being read as code, as an option or as several words, the line is refused when it is bound.
The reader knows simple commands, pipelines, lists, groups, `if`, `while`, `until` and `for` (POSIX.1-2024,
XCU 2). A line without placeholders is given to the shell as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.errors import InvalidInput
from toolcrib.template.parser import Namespaces, parse_conditional
from toolcrib.template.render import settled
from toolcrib.template.shell_rules import Command, Word, command_fault, is_steering
from toolcrib.template.spellings import TemplateProblem
from toolcrib.template.tree import MOST_VARIANTS, LiteralText, Reference, Text, TextTemplate
from toolcrib.template.values import MISSING, Missing, Values, bad_value

__all__ = ["PREFIX", "ShellLine", "ShellTemplate", "held_variables", "parse_shell", "shell_problems"]

PREFIX = "TOOLCRIB_"
"""How the variables that hold values begin; no line may name one itself."""
MOST_BYTES = 131_072
"""Of one variable with its name: the kernel's MAX_ARG_STRLEN (execve(2))."""
MOST_IN_ALL = 1_000_000

_NAME = re.compile(r"[A-Za-z_]\w*")
_LOOPS = frozenset({"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!"})
_UNREAD = frozenset({"case", "esac", "select", "function", "coproc", "[[", "]]", "time"})
_ABSENT = "it is needed in the shell line and was not given"


@dataclass(frozen=True, slots=True)
class ShellLine:
    """One line, ready for the shell, and which values its variables hold."""

    text: str
    slots: tuple[tuple[str, Reference], ...] = ()
    """Variable and reference."""
    openings: tuple[tuple[LiteralText | Reference, ...], ...] = ()
    """The words that begin with a value, and so could become an option."""

    def environment(
        self, values: Values, allow_dash: Iterable[str] = (), env: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The variables. A value that is absent, has NUL, is too large or would be an option is refused.

        `env` is the rest of the environment, `allow_dash` names arguments that may be options.
        """
        others = env or {}
        found: dict[str, str] = {}
        for name, reference in self.slots:
            text = values.text(reference)
            if text is MISSING:
                raise bad_value(reference, _ABSENT)
            if "\0" in text:
                raise bad_value(reference, "a shell line cannot hold NUL")
            if len(name) + len(text.encode()) + 2 > MOST_BYTES:
                raise bad_value(
                    reference, f"it is longer than the {MOST_BYTES:,} bytes a program can be given"
                )
            found[name] = text
        if sum(len(text.encode()) for text in found.values()) > MOST_IN_ALL:
            raise InvalidInput(f"the values of the shell line are longer than {MOST_IN_ALL:,} bytes together")
        for word in self.openings:
            self._refuse_option(word, values, frozenset(allow_dash), others)
        return found

    @staticmethod
    def _refuse_option(
        word: tuple[LiteralText | Reference, ...],
        values: Values,
        allowed: frozenset[str],
        env: Mapping[str, str],
    ) -> None:
        for part in word:
            if isinstance(part, LiteralText):
                text: str | Missing = part.text
            else:
                text = env.get(part.name, "") if part.namespace == "env" else values.text(part)
            if text is MISSING or text == "":
                continue
            if isinstance(part, Reference) and part.name in allowed:
                return
            if text.startswith("-"):
                first = next(part for part in word if isinstance(part, Reference))
                told = "it begins with `-` and would be read as an option"
                if first.namespace == "env":
                    raise InvalidInput(f"the variable {first.name} cannot be used here: {told}")
                raise bad_value(first, told)
            return


@dataclass(frozen=True, slots=True)
class ShellTemplate:
    """A shell line with its conditions; every line that they can give has been looked at."""

    text: Text
    lines: Mapping[TextTemplate, ShellLine] = field(default_factory=dict)

    def line(self, values: Values) -> ShellLine:
        """The line for these values."""
        chosen = settled(self.text, values)
        assert chosen is not MISSING
        return self.lines[chosen]


def held_variables(env: Mapping[str, Any], names: Namespaces) -> list[str]:
    """The variables of a tool's environment that hold values, so that its line cannot use them unquoted.

    ManifestError (`details["path"]`: the variable) for one that is the line's own, or decides what is run.
    """
    held: list[str] = []
    for name, text in env.items():
        if name.startswith(PREFIX):
            raise TemplateProblem(f"the variable {name} is for the values of the line", (name,)).error()
        if parse_conditional(text, names).literal is None:
            if is_steering(name):
                told = f"a placeholder cannot stand in {name}: it decides what is run"
                raise TemplateProblem(told, (name,)).error()
            held.append(name)
    return held


def parse_shell(text: Text, tainted: Iterable[str] = ()) -> ShellTemplate:
    """Bind a shell line; ManifestError (`details`: offset, length) for a placeholder in an unsafe place.

    `tainted` are environment variables that hold values too: what the line says of them is held to the same.
    """
    names = frozenset(tainted)
    return ShellTemplate(text, {variant: _bound(variant, names) for variant in _variants(text)})


def shell_problems(text: Text, tainted: Iterable[str] = ()) -> list[TemplateProblem]:
    """Everything that `parse_shell` would refuse, in order of place."""
    names = frozenset(tainted)
    found: dict[tuple[int, str], TemplateProblem] = {}
    try:
        variants = _variants(text)
    except _Unsafe as unsafe:
        return [unsafe.problem]
    for variant in variants:
        try:
            _Reader(variant, names).line()
        except _Unsafe as unsafe:
            found.setdefault((unsafe.problem.offset, unsafe.problem.message), unsafe.problem)
    return [found[key] for key in sorted(found)]


def _variants(text: Text) -> list[TextTemplate]:
    if isinstance(text, TextTemplate):
        return [text]
    variants = text.variants()
    if len(variants) > MOST_VARIANTS:
        raise _Unsafe("the line has too many conditions to look at every one it can become")
    return variants


def _bound(variant: TextTemplate, tainted: frozenset[str]) -> ShellLine:
    try:
        return _Reader(variant, tainted).line()
    except _Unsafe as unsafe:
        raise unsafe.problem.error() from None


class _Unsafe(Exception):
    def __init__(self, message: str, offset: int = 0, length: int = 0, hint: str | None = None) -> None:
        super().__init__(message)
        self.problem = TemplateProblem(message, (), offset, length, hint)


class _Reader:
    """Reads one line without conditions, sign by sign, and writes it anew."""

    def __init__(self, template: TextTemplate, tainted: frozenset[str]) -> None:
        self._signs: list[tuple[str | Reference, int]] = []
        for part in template.parts:
            if isinstance(part, Reference):
                self._signs.append((part, part.offset))
            else:
                self._signs += [(sign, part.offset + at) for at, sign in enumerate(part.text)]
        self._template = template
        self._tainted = tainted
        self._at = 0
        self._out: list[str] = []
        self._slots: list[tuple[str, Reference]] = []
        self._openings: list[tuple[LiteralText | Reference, ...]] = []
        self._depth = 0
        self._fed = False
        """A compound command is fed a value, so that any command in it may read it."""
        self._lone_dollar = -1
        """The place after a `$` that no name follows."""

    def line(self) -> ShellLine:
        """The line. `_Unsafe` for what cannot be kept apart from a value."""
        literal = "".join(part.text for part in self._template.parts if isinstance(part, LiteralText))
        if "\0" in literal:
            raise _Unsafe("a shell line cannot hold NUL")
        mentioned = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", literal) for name in self._tainted)
        if not self._template.references and not mentioned:
            return ShellLine(literal)
        if PREFIX in literal:
            raise _Unsafe(f"names that begin with `{PREFIX}` are for the values of the line")
        self._commands(None)
        return ShellLine("".join(self._out), tuple(self._slots), tuple(self._openings))

    # -- signs ---------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str | Reference | None:
        at = self._at + ahead
        return self._signs[at][0] if at < len(self._signs) else None

    def _ahead(self, text: str) -> bool:
        return all(self._peek(at) == sign for at, sign in enumerate(text))

    def _take(self, count: int = 1) -> str:
        """Copy literal signs to the line."""
        taken = ""
        for _ in range(count):
            sign = self._peek()
            if isinstance(sign, str):
                taken += sign
            self._at += 1
        self._out.append(taken)
        return taken

    def _unsafe(self, message: str, hint: str | None = None, *, at: int | None = None) -> _Unsafe:
        place = self._at if at is None else at
        if place >= len(self._signs):
            return _Unsafe(message, self._signs[-1][1] if self._signs else 0, 1, hint)
        sign, offset = self._signs[place]
        return _Unsafe(message, offset, sign.length if isinstance(sign, Reference) else 1, hint)

    def _refuse_value(self, where: str) -> None:
        """At a place where neither a placeholder nor a variable that holds a value can stand."""
        if isinstance(self._peek(), Reference):
            raise self._unsafe(
                f"a placeholder cannot stand in {where}: the shell would read its value as code",
                "hand the value over as a word of its own",
            )

    def _refuse_inside(self, start: int, where: str) -> None:
        inside = "".join(sign if isinstance(sign, str) else " " for sign, _ in self._signs[start : self._at])
        for name in self._tainted:
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", inside):
                raise self._unsafe(f"`{name}` holds a value, and cannot stand in {where}", at=start)

    # -- commands ------------------------------------------------------------------------------

    def _commands(self, until: str | None) -> bool:
        """Read commands up to the sign that ends them; whether a value stands in any of them."""
        self._depth += 1
        if self._depth > 30:
            raise self._unsafe("the line is nested too deep")
        command, any_value = Command(fed_values=self._fed), False
        while (sign := self._peek()) is not None:
            if sign == until:
                break
            if sign in (" ", "\t"):
                self._take()
            elif sign == "#":
                self._comment()
            elif sign in ("\n", ";", "&", "|"):
                any_value |= self._finish(command)
                command = self._next(command)
            elif sign == "(":
                if self._ahead("((") or command.words:
                    what = "arithmetic `((…))`" if self._ahead("((") else "a function or an array"
                    raise self._unsafe(f"{what} cannot stand in a line with placeholders")
                self._take()
                self._fed |= command.fed_values
                any_value |= self._commands(")")
                command.grouped = True
                self._close(")")
            elif sign == ")":
                raise self._unsafe("this `)` closes nothing")
            elif sign in ("<", ">"):
                self._redirect(command)
            else:
                self._word(command)
        any_value |= self._finish(command)
        self._depth -= 1
        return any_value

    def _close(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._unsafe(f"a `{sign}` is missing at the end")
        self._take()

    def _next(self, command: Command) -> Command:
        """The command after the operator reached; it knows what flows into it."""
        following = Command(fed_values=self._fed)
        if self._ahead(";;"):
            raise self._unsafe("`case` cannot stand in a line with placeholders")
        if self._ahead("||") or self._ahead("&&"):
            self._take(2)
            return following
        if self._peek() == "|":
            following.fed_values |= command.values or command.fed_values or command.grouped
        self._take()
        return following

    def _comment(self) -> None:
        while (sign := self._peek()) not in (None, "\n"):
            if isinstance(sign, Reference):
                self._at += 1
            else:
                self._take()

    def _redirect(self, command: Command) -> None:
        if self._ahead("<<"):
            raise self._unsafe(
                "a here-document cannot stand in a line with placeholders", "use `printf '%s'`"
            )
        if self._ahead("<(") or self._ahead(">("):
            raise self._unsafe("a process substitution cannot stand in a line with placeholders")
        operator = self._take(2 if self._peek(1) in (">", "|", "&") or self._ahead("<>") else 1)
        while self._peek() in (" ", "\t"):
            self._take()
        word = self._read_word()
        if "&" in operator and word.values:
            raise self._unsafe("a placeholder cannot stand after `>&` or `<&`", at=word.start)
        if not word.text and not word.values:
            raise self._unsafe("a redirection leads nowhere")
        command.values |= word.values
        command.fed_values |= word.values and "<" in operator

    def _finish(self, command: Command) -> bool:
        """Hold a whole command to the rules."""
        fault = command_fault(command)
        if fault is not None:
            word, message, hint = fault
            raise self._unsafe(
                message, hint, at=word.first_value if word.first_value is not None else word.start
            )
        ended = False
        for word in command.operands:
            ended = ended or word.text == "--"
            if word.opens and not ended:
                self._openings.append(tuple(word.parts))
        return command.values

    # -- words ---------------------------------------------------------------------------------

    def _word(self, command: Command) -> None:
        word = self._read_word()
        if not word.quoted and not word.values and not command.words:
            if word.text in _LOOPS:
                self._fed |= command.fed_values
                command.grouped = True
                return
            if word.text in _UNREAD:
                what = f"`{word.text}` cannot stand in a line with placeholders"
                raise self._unsafe(what, at=word.start)
        if word.text.isdigit() and not word.values and self._peek() in ("<", ">"):
            return
        command.add(word)

    def _read_word(self) -> Word:
        word = Word(self._at)
        while (sign := self._peek()) is not None:
            if isinstance(sign, Reference):
                self._value(word, sign, '"${%s}"')
            elif sign in " \t\n;&|()<>":
                break
            elif sign == "'":
                self._single(word)
            elif sign == '"':
                self._double(word)
            elif sign == "`":
                self._backticks(word)
            elif sign == "$":
                self._dollar(word, quoted=False)
            elif sign == "\\":
                self._escape(word)
            else:
                word.braces |= sign == "{"
                word.literal(self._take())
        if word.braces and word.values and word.text not in ("{", "}"):
            raise self._unsafe("a placeholder cannot stand in a word with an unquoted `{`", at=word.start)
        return word

    def _value(self, word: Word, reference: Reference, form: str) -> None:
        if self._at == self._lone_dollar:
            raise self._unsafe(
                "a placeholder cannot stand directly after `$`", "write `\\$` for a dollar sign"
            )
        name = f"{PREFIX}{len(self._slots) + 1}"
        self._slots.append((name, reference))
        word.value(reference, self._at)
        self._out.append(form % name)
        self._at += 1

    def _escape(self, word: Word) -> None:
        if not isinstance(self._peek(1), str):
            raise self._unsafe("a backslash cannot stand directly before a placeholder or at the end")
        word.quoted = True
        word.literal(self._take(2)[1:])

    def _single(self, word: Word) -> None:
        start = self._at
        word.quoted = True
        self._take()
        while (sign := self._peek()) != "'":
            if sign is None:
                raise self._unsafe("this quote is not closed", at=start)
            if isinstance(sign, Reference):
                self._value(word, sign, "'\"${%s}\"'")
            else:
                word.literal(self._take())
        self._take()

    def _double(self, word: Word) -> None:
        start = self._at
        word.quoted = True
        self._take()
        while (sign := self._peek()) != '"':
            if sign is None:
                raise self._unsafe("this quote is not closed", at=start)
            if isinstance(sign, Reference):
                self._value(word, sign, "${%s}")
            elif sign == "`":
                self._backticks(word)
            elif sign == "$":
                self._dollar(word, quoted=True)
            elif sign == "\\":
                self._escape(word)
            else:
                word.literal(self._take())
        self._take()

    def _backticks(self, word: Word) -> None:
        start = self._at
        self._take()
        while (sign := self._peek()) != "`":
            if sign is None:
                raise self._unsafe("this backtick is not closed", at=start)
            self._refuse_value("backticks")
            if sign == "\\":
                self._take()
                self._refuse_value("backticks")
            self._take()
        self._take()
        self._refuse_inside(start, "backticks")
        word.dynamic = True
        word.literal("$")

    def _dollar(self, word: Word, *, quoted: bool) -> None:
        if self._ahead("$(("):
            self._balanced("$((", "(", ")", "arithmetic `$((…))`")
        elif self._ahead("$("):
            self._substitution(word, quoted=quoted)
            return
        elif self._ahead("${"):
            self._parameter(word, quoted=quoted)
            return
        elif self._ahead("$["):
            raise self._unsafe("`$[…]` cannot stand in a line with placeholders")
        elif not quoted and (self._ahead("$'") or self._ahead('$"')):
            raise self._unsafe("`$'…'` and `$\"…\"` mean different things in different shells")
        else:
            name = self._variable(1)
            if name in self._tainted:
                self._tainted_value(word, name, 1 + len(name), quoted=quoted)
                return
            self._take(1 + len(name))
            if not name:
                self._lone_dollar = self._at
        word.dynamic = True
        word.literal("$")

    def _variable(self, ahead: int) -> str:
        name = ""
        while isinstance(sign := self._peek(ahead + len(name)), str) and _NAME.fullmatch(name + sign):
            name += sign
        return name

    def _tainted_value(self, word: Word, name: str, signs: int, *, quoted: bool) -> None:
        """A variable of the environment that holds a value: written so that it stays one piece."""
        reference = Reference(name, self._signs[self._at][1], signs, "env")
        word.value(reference, self._at)
        self._out.append(f"${{{name}}}" if quoted else f'"${{{name}}}"')
        self._at += signs

    def _parameter(self, word: Word, *, quoted: bool) -> None:
        name = self._variable(2)
        if name in self._tainted and self._peek(2 + len(name)) == "}":
            self._tainted_value(word, name, len(name) + 3, quoted=quoted)
        else:
            self._balanced("${", "{", "}", "an expansion `${…}`")
            word.dynamic = True
            word.literal("$")

    def _balanced(self, opening: str, left: str, right: str, where: str) -> None:
        start = self._at
        depth = opening.count(left)
        self._take(len(opening))
        while depth:
            sign = self._peek()
            if sign is None:
                raise self._unsafe(f"this `{opening}` is not closed", at=start)
            self._refuse_value(where)
            if sign in ("'", '"', "`", "\\"):
                raise self._unsafe(f"quotes inside {where} cannot stand in a line with placeholders")
            depth += (sign == left) - (sign == right)
            self._take()
        self._refuse_inside(start, where)

    def _substitution(self, word: Word, *, quoted: bool) -> None:
        start = self._at
        self._take(2)
        inside = self._commands(")")
        self._close(")")
        word.dynamic = True
        word.literal("$")
        if not inside:
            return
        if not quoted:
            raise self._unsafe(
                "a `$(…)` with a placeholder in it must stand in double quotes, or it becomes several words",
                'write "$(…)"',
                at=start,
            )
        word.nested = True
        word.first_value = start if word.first_value is None else word.first_value
