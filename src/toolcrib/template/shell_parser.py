"""A parser for one line of POSIX shell (XCU 2) that writes each value as a quoted variable.

A value may stand in a word of a simple command, but not in the word that names the program, in the target of
a redirection and in the value of an assignment. Everything else that this grammar does not read is refused,
so a value never stands in a place that the parser does not understand. A library does not help here: bashlex
and tree-sitter-bash read all of bash, while `/bin/sh` may be dash, and neither tells how to write a value at
a place. Lines without values are not parsed at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from toolcrib.template.code_words import EXPANSION, Command, Part, base_name, is_steering, marked
from toolcrib.template.spellings import TemplateProblem
from toolcrib.template.tree import LiteralText, Reference, TextTemplate

__all__ = ["PREFIX", "ShellParser", "Unsafe", "mentions"]

PREFIX = "TOOLCRIB_"
"""The beginning of the variables that hold values; no line may name one itself."""
_MAX_DEPTH = 30
_BREAKS = " \t\n;&|()<>"
_ENDS = frozenset("\n;&|)")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_ARITHMETIC = re.compile(r"[\w\s+\-*/%<>=!&|^~?:(),$]*")
_RESERVED = re.compile(
    r"if|then|elif|else|fi|while|until|do|done|for|in|case|esac|\{|\}|!|\[\[|function|select|coproc"
)
_SHELL_STATE = re.compile(
    "export|readonly|local|declare|typeset|let|read|mapfile|readarray|unset|set|getopts|hash|wait|enable"
    "|complete|bind|fc|shopt|ulimit|alias|unalias"
)
"""Commands that change variables or rules of the shell itself, by which later words are read."""
_AS_A_WORD = "pass the value as a word of its own"


class Unsafe(Exception):
    """A value cannot stand where the line has it."""

    def __init__(self, message: str, offset: int = 0, length: int = 0, hint: str | None = None) -> None:
        super().__init__(message)
        self.problem = TemplateProblem(message, (), offset, length, hint)


@dataclass(slots=True)
class _Word:
    """One word as the shell sees it, quotes removed."""

    start: int
    leads: bool = False
    """It may be an assignment."""
    parts: list[Part] = field(default_factory=list)
    bare: str = ""
    """The text before any quote, expansion or value."""
    closed: bool = False
    """`bare` has ended."""
    braces: bool = False

    def add(self, text: str, *, bare: bool = False) -> None:
        self.closed |= not bare
        if not self.closed:
            self.bare += text
        self.parts.append(text)

    @property
    def values(self) -> list[Reference]:
        return [part for part in self.parts if isinstance(part, Reference)]

    @property
    def assigned(self) -> str | None:
        """The variable that it gives a value."""
        found = _ASSIGNMENT.match(self.bare) if self.leads else None
        return None if found is None else found.group(1)


def mentions(text: str, names: frozenset[str]) -> str | None:
    """Return the first of these variables that stands in a text of the line."""
    return next((name for name in sorted(names) if re.search(rf"(?<!\w){name}(?!\w)", text)), None)


class ShellParser:
    """Parses one line without conditions; `variables` are those of its environment that hold values."""

    def __init__(self, template: TextTemplate, variables: frozenset[str]) -> None:
        self.out: list[str] = []
        self.slots: list[tuple[str, Reference]] = []
        self.openings: list[tuple[Part, ...]] = []
        """The words that begin with a value, and so could be read as an option."""
        self.commands: list[Command] = []
        self.assigned: set[str] = set()
        """Variables that the line itself gives a value."""
        self._variables = variables
        self._signs: list[tuple[str | Reference, int]] = []
        for part in template.parts:
            if isinstance(part, LiteralText):
                self._signs += [(sign, part.offset + at) for at, sign in enumerate(part.text)]
            else:
                self._signs.append((part, part.offset))
        self._at = 0
        self._depth = 0
        self._seen: list[Reference] = []

    def parse(self) -> None:
        """Read the whole line. Raises `Unsafe` at the first value in a place that is not allowed."""
        self._list()
        if self._peek() is not None:
            raise self._unsafe("this `)` closes nothing")

    # -- characters ----------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str | Reference | None:
        at = self._at + ahead
        return self._signs[at][0] if at < len(self._signs) else None

    def _ahead(self, text: str) -> bool:
        return all(self._peek(at) == sign for at, sign in enumerate(text))

    def _take(self, count: int = 1) -> str:
        """Copy literal characters to the line."""
        taken = "".join(sign for sign, _ in self._signs[self._at : self._at + count] if isinstance(sign, str))
        self._at += count
        self.out.append(taken)
        return taken

    def _unsafe(self, message: str, hint: str | None = None, *, at: int | None = None) -> Unsafe:
        place = min(self._at if at is None else at, len(self._signs) - 1)
        sign, offset = self._signs[place]
        return Unsafe(message, offset, sign.length if isinstance(sign, Reference) else 1, hint)

    def _refuse_value(self, where: str) -> None:
        if isinstance(self._peek(), Reference):
            raise self._unsafe(f"a placeholder cannot stand in {where}", _AS_A_WORD)

    def _refuse_variables(self, start: int, where: str) -> None:
        text = "".join(sign for sign, _ in self._signs[start : self._at] if isinstance(sign, str))
        name = mentions(text, self._variables)
        if name is not None:
            raise self._unsafe(f"`{name}` holds a value, and cannot stand in {where}", at=start)

    def _blanks(self, *, lines: bool = False) -> None:
        """Skip blanks, continued lines and comments; with `lines` also line ends."""
        while (sign := self._peek()) is not None:
            if sign == "#":
                while self._peek() not in (None, "\n"):
                    self._refuse_value("a comment")
                    self._take()
            elif self._ahead("\\\n"):
                self._take(2)
            elif sign in (" ", "\t") or (lines and sign == "\n"):
                self._take()
            else:
                return

    # -- commands ------------------------------------------------------------------------------

    def _keyword(self) -> str:
        """The reserved word at this place, or ""."""
        text = ""
        while isinstance(sign := self._peek(len(text)), str) and sign not in _BREAKS:
            text += sign
        return text if _RESERVED.fullmatch(text) and not isinstance(sign, Reference) else ""

    def _expect(self, word: str) -> None:
        self._blanks(lines=True)
        if self._keyword() != word:
            raise self._unsafe(f"`{word}` is missing here")
        self._take(len(word))

    def _close(self, sign: str) -> None:
        self._blanks(lines=True)
        if self._peek() != sign:
            raise self._unsafe(f"a `{sign}` is missing here")
        self._take()

    def _list(self, *ends: str) -> None:
        """Commands up to one of these reserved words, a `)`, a `;;` or the end."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._unsafe("the line is nested too deep")
        while True:
            self._blanks(lines=True)
            if self._peek() in (None, ")") or self._ahead(";;") or self._keyword() in ends:
                break
            self._pipeline()
            if self._ahead("&&") or self._ahead("||"):
                self._take(2)
            elif self._peek() in (None, ")") or self._ahead(";;"):
                break
            else:
                self._take()
        self._depth -= 1

    def _pipeline(self) -> None:
        """Commands with `|` between them; each is fed what the earlier ones hold."""
        flows: list[Reference] = []
        while True:
            first = len(self.commands)
            self._command()
            for command in self.commands[first:]:
                command.fed += flows
            flows += [value for command in self.commands[first:] for value in command.values]
            if self._peek() != "|" or self._ahead("||"):
                return
            if self._ahead("|&"):
                raise self._unsafe("`|&` cannot stand in a line with placeholders", "write `2>&1 |`")
            self._take()
            self._blanks(lines=True)

    def _command(self) -> None:
        first, keyword = len(self.commands), self._keyword()
        if keyword == "!":
            self._expect("!")
            self._blanks()
            self._command()
            return
        if self._ahead("(("):
            raise self._unsafe("arithmetic `((…))` cannot stand in a line with placeholders")
        if self._peek() == "(":
            self._take()
            self._list()
            self._close(")")
        elif not keyword:
            self._simple()
            return
        else:
            self._compound(keyword)
        self._blanks()
        outer = Command()
        while self._redirects():
            self._redirect(outer)
            self._blanks()
        for command in self.commands[first:]:
            command.values += outer.values
            command.fed += outer.fed
        if self._peek() is not None and self._peek() not in _ENDS:
            raise self._unsafe("a command cannot begin here: a `;` is missing")

    def _compound(self, keyword: str) -> None:
        if keyword == "{":
            self._expect("{")
            self._list("}")
            self._expect("}")
        elif keyword in ("while", "until"):
            self._expect(keyword)
            self._list("do")
            self._body()
        elif keyword == "if":
            self._if()
        elif keyword == "for":
            self._for()
        elif keyword == "case":
            self._case()
        else:
            raise self._unsafe(f"`{keyword}` cannot stand here in a line with placeholders")

    def _body(self) -> None:
        self._expect("do")
        self._list("done")
        self._expect("done")

    def _if(self) -> None:
        branch = "if"
        while branch in ("if", "elif"):
            self._expect(branch)
            self._list("then")
            self._expect("then")
            self._list("elif", "else", "fi")
            branch = self._keyword()
        if branch == "else":
            self._expect("else")
            self._list("fi")
        self._expect("fi")

    def _for(self) -> None:
        self._expect("for")
        self._plain_word("the variable of `for`")
        self._blanks(lines=True)
        if self._keyword() == "in":
            self._expect("in")
            self._blanks()
            while self._peek() not in (None, ";", "\n"):
                self._plain_word("the words of `for`")
                self._blanks()
        if self._peek() == ";":
            self._take()
        self._body()

    def _case(self) -> None:
        self._expect("case")
        self._plain_word("the word of `case`")
        self._expect("in")
        self._blanks(lines=True)
        while self._keyword() != "esac":
            if self._peek() == "(":
                self._take()
            self._plain_word("a pattern of `case`")
            self._blanks()
            while self._peek() == "|":
                self._take()
                self._plain_word("a pattern of `case`")
                self._blanks()
            self._close(")")
            self._list("esac")
            if self._ahead(";;"):
                self._take(2)
            self._blanks(lines=True)
        self._expect("esac")

    def _plain_word(self, where: str) -> None:
        """A word in which no value can stand."""
        self._blanks()
        word = self._word()
        if word.values:
            raise self._unsafe(f"a placeholder cannot stand in {where}", _AS_A_WORD, at=word.start)
        if not word.closed and not word.bare:
            raise self._unsafe(f"{where} is missing here")

    def _simple(self) -> None:
        command, start, words = Command(), self._at, list[_Word]()
        assignments: list[_Word] = []
        self.commands.append(command)
        while (sign := self._peek()) is not None and sign not in _ENDS:
            if sign == "(":
                raise self._unsafe("a function or an array cannot stand in a line with placeholders")
            if self._redirects():
                self._redirect(command)
            else:
                word = self._word(leads=not words)
                command.values += word.values
                if word.assigned is None:
                    words.append(word)
                else:
                    assignments.append(word)
            self._blanks()
        if self._at == start:
            raise self._unsafe("a command is missing here")
        command.words = [word.parts for word in words]
        for word in assignments:
            self._assign(word, kept=not words)
        if words:
            self._check(words)

    def _assign(self, word: _Word, *, kept: bool) -> None:
        """Note a variable that holds a value from here on; `kept` in the shell itself."""
        name = word.assigned or ""
        if not word.values:
            return
        if is_steering(name):
            raise self._unsafe(
                f"a placeholder cannot stand in the value of `{name}`: it decides what is run", at=word.start
            )
        self.assigned.add(name)
        if kept:
            self._opens(word.parts[len(name) + 1 :])

    def _check(self, words: Sequence[_Word]) -> None:
        """Refuse a value in the name of the program, and in commands that change the shell itself."""
        if words[0].values:
            hint = "write the name of the program out"
            raise self._unsafe("a placeholder cannot be the program that is run", hint, at=words[0].start)
        first = next((word for word in words if word.values), None)
        if first is not None:
            name = base_name(marked(words[0].parts))
            if EXPANSION in name:
                message = "a placeholder cannot be passed to a program whose name is not written out"
                raise self._unsafe(message, at=first.start)
            if _SHELL_STATE.fullmatch(name):
                message = f"a placeholder cannot stand in `{name}`, which changes the shell itself"
                raise self._unsafe(message, at=first.start)
        for word in words[1:]:
            if marked(word.parts) == "--":
                return
            self._opens(word.parts)

    def _opens(self, parts: Sequence[Part]) -> None:
        kept = tuple(part for part in parts if part)
        if kept and isinstance(kept[0], Reference):
            self.openings.append(kept)

    # -- redirections --------------------------------------------------------------------------

    def _redirects(self) -> bool:
        """Return True where a redirection begins, its number included."""
        ahead = 0
        while isinstance(sign := self._peek(ahead), str) and sign.isdigit():
            ahead += 1
        return sign in ("<", ">")

    def _redirect(self, command: Command) -> None:
        while self._peek() not in ("<", ">"):
            self._take()
        if self._ahead("<<"):
            hint = "use `printf '%s' … |`"
            raise self._unsafe("a here-document cannot stand in a line with placeholders", hint)
        operator = self._take(2 if self._peek(1) in (">", "|", "&") else 1)
        self._blanks()
        word = self._word()
        if not word.parts and not word.closed:
            raise self._unsafe("the target of a redirection is missing here")
        if "&" in operator and word.values:
            raise self._unsafe(f"a placeholder cannot stand after `{operator}`", at=word.start)
        command.values += word.values
        if "<" in operator:
            command.fed += word.values

    # -- words ---------------------------------------------------------------------------------

    def _word(self, *, leads: bool = False) -> _Word:
        word = _Word(self._at, leads)
        while (sign := self._peek()) is not None:
            if isinstance(sign, Reference):
                self._value(word, sign, '"${%s}"')
            elif sign in _BREAKS:
                break
            elif sign == "'":
                self._single(word)
            elif sign == '"':
                self._double(word)
            elif sign in "`$":
                self._expansion(word, quoted=False)
            elif sign == "\\":
                self._escape(word)
            else:
                word.braces |= sign == "{"
                word.add(self._take(), bare=True)
        if word.braces and word.values:
            message = "a placeholder cannot stand in a word with an unquoted `{`"
            raise self._unsafe(message, "put the word in quotes", at=word.start)
        return word

    def _value(self, word: _Word, reference: Reference, form: str) -> None:
        name = f"{PREFIX}{len(self.slots) + 1}"
        self.slots.append((name, reference))
        self._place(word, reference, form % name)
        self._at += 1

    def _place(self, word: _Word, reference: Reference, text: str) -> None:
        word.closed = True
        word.parts.append(reference)
        self._seen.append(reference)
        self.out.append(text)

    def _escape(self, word: _Word, *, quoted: bool = False) -> None:
        following = self._peek(1)
        if not isinstance(following, str) or (following == "\n" and not quoted):
            raise self._unsafe("a backslash cannot stand directly before a placeholder or in a broken word")
        taken = self._take(2)
        word.add(taken if quoted and following not in '$`"\\\n' else following.replace("\n", ""))

    def _single(self, word: _Word) -> None:
        start = self._at
        word.add(self._take()[1:])
        while (sign := self._peek()) != "'":
            if sign is None:
                raise self._unsafe("this quote is not closed", at=start)
            if isinstance(sign, Reference):
                self._value(word, sign, "'\"${%s}\"'")
            else:
                word.add(self._take())
        self._take()

    def _double(self, word: _Word) -> None:
        start = self._at
        word.add(self._take()[1:])
        while (sign := self._peek()) != '"':
            if sign is None:
                raise self._unsafe("this quote is not closed", at=start)
            if isinstance(sign, Reference):
                self._value(word, sign, "${%s}")
            elif sign in "`$":
                self._expansion(word, quoted=True)
            elif sign == "\\":
                self._escape(word, quoted=True)
            else:
                word.add(self._take())
        self._take()

    def _expansion(self, word: _Word, *, quoted: bool) -> None:
        """An expansion of the shell itself at a `$` or a backtick."""
        start = self._at
        if self._ahead("`"):
            self._backticks()
        elif self._ahead("$(("):
            self._arithmetic()
        elif self._ahead("$("):
            self._substitution(word, quoted=quoted)
            return
        elif self._ahead("$[") or (not quoted and (self._ahead("$'") or self._ahead('$"'))):
            raise self._unsafe(f"`${self._peek(1)}` means different things in different shells")
        elif self._variable(word, quoted=quoted):
            return
        self._refuse_variables(start, "an expansion of the shell")
        word.add(EXPANSION)

    def _backticks(self) -> None:
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

    def _arithmetic(self) -> None:
        start, depth = self._at, 2
        self._take(3)
        while depth:
            sign = self._peek()
            self._refuse_value("arithmetic `$((…))`")
            if not isinstance(sign, str) or not _ARITHMETIC.fullmatch(sign):
                raise self._unsafe("this `$((` holds more than arithmetic, or is not closed", at=start)
            depth += (sign == "(") - (sign == ")")
            self._take()

    def _variable(self, word: _Word, *, quoted: bool) -> bool:
        """Read `$name` or `${…}`. Return True for a variable that holds a value: it is put in quotes."""
        start, brace = self._at, self._ahead("${")
        name = ""
        while isinstance(sign := self._peek(1 + brace + len(name)), str) and _NAME.fullmatch(name + sign):
            name += sign
        length = 1 + brace + len(name)
        if name in self._variables and (not brace or self._peek(length) == "}"):
            reference = Reference(name, self._signs[start][1], length + brace)
            self._at += length + brace
            self._place(word, reference, f"${{{name}}}" if quoted else f'"${{{name}}}"')
            return True
        self._take(length)
        while brace:
            self._refuse_value("an expansion `${…}`")
            sign = self._peek()
            if not isinstance(sign, str) or sign in "'\"`\\(){\n" or self._ahead("${"):
                raise self._unsafe("this `${…}` is too complex for a line with placeholders", at=start)
            brace = self._take() != "}"
        if length == 1 and isinstance(self._peek(), Reference):
            message = "a placeholder cannot stand directly after `$`"
            raise self._unsafe(message, "write `\\$` for a dollar sign")
        return False

    def _substitution(self, word: _Word, *, quoted: bool) -> None:
        start, before = self._at, len(self._seen)
        word.add(EXPANSION)
        self._take(2)
        self._list()
        self._close(")")
        inside = self._seen[before:]
        word.parts += inside
        if inside and not quoted and word.assigned is None:
            message = (
                "a `$(…)` with a placeholder in it must stand in double quotes, or it is split into words"
            )
            raise self._unsafe(message, 'write "$(…)"', at=start)
