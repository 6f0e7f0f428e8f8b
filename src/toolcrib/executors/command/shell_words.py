"""The words of a shell line (POSIX XCU 2.2 to 2.6), each value in them written as a quoted variable.

The quotes round a placeholder decide how its variable is written: `"${V}"` outside of quotes, `${V}` inside
double quotes, `'"${V}"'` inside single quotes. In each case it stays one piece of one word.

The line is read as text with a NUL for each value. Whatever is read is copied to `out` as it is, only values
are replaced. `shell_grammar` puts the words together.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from toolcrib.errors import ManifestError
from toolcrib.executors.command.interpreters import VALUE
from toolcrib.template.spellings import TemplateProblem
from toolcrib.template.tree import Reference, TextTemplate

Piece = str | Reference
"""A piece of a word: text without its quotes, or a value."""
EXPANSION = "\1"
"""Stands in a word for text that only the shell knows."""
PREFIX = "TOOLCRIB_"
"""The beginning of the variables for values; no line may name one itself."""
MOST_VALUES = 500
AS_A_WORD = "pass the value as a word of its own"
_BREAKS = frozenset(" \t\n;&|()<>")
_BARE = re.compile(r"[^ \t\n;&|()<>'\"`$\\\0]+")
_IN_SINGLE_QUOTES = re.compile(r"[^'\0]+")
_IN_DOUBLE_QUOTES = re.compile(r'[^"`$\\\0]+')
_BLANKS = re.compile(r"(?:[ \t]|\\\n|(#[^\n\0]*))*")
_BLANKS_AND_LINES = re.compile(r"(?:[ \t\n]|\\\n|(#[^\n\0]*))*")
_IDENTIFIER = re.compile(r"\w+")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
# `$12` is the first argument and a 2.
_VARIABLE = re.compile(r"\$(\{?)((?:[A-Za-z_]\w*)?)", re.ASCII)
_BACKTICKS = re.compile(r"`(?:[^`\\\0]|\\[^\0])*")
_ARITHMETIC = re.compile(r"[\w\s+\-*/%<>=!&|^~?:(),$]")
_IN_BRACES = re.compile(r"(?:\$(?!\{)|[^$'\"`\\(){}\n\0])*")
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|while|until|do|done|for|in|case|esac|\{|\}|!|\[\[|function|select|coproc)"
    r"(?=[ \t\n;&|()<>]|\Z)"
)


@dataclass(slots=True)
class Command:
    """One command with its words, and the values in it."""

    words: list[list[Piece]] = field(default_factory=list)
    values: list[Reference] = field(default_factory=list)
    """All values in its words, assignments and redirections."""
    fed: list[Reference] = field(default_factory=list)
    """Values that may reach its standard input."""


def marked(parts: Sequence[Piece], is_free: Callable[[Reference], bool] | None = None) -> str:
    """Return a word as text, with a mark for each value; one that is not free counts as an expansion."""
    return "".join(
        part if isinstance(part, str) else VALUE if is_free is None or is_free(part) else EXPANSION
        for part in parts
    )


def mentioned(text: str, names: frozenset[str]) -> str | None:
    """Return the first of these variables, by name, that a text names."""
    return min(names.intersection(_IDENTIFIER.findall(text)), default=None)


@dataclass(slots=True)
class Word:
    """One word as the shell sees it, quotes removed."""

    start: int
    leads: bool = False
    """It may be an assignment."""
    pieces: list[Piece] = field(default_factory=list)
    bare: str = ""
    """The text before any quote, expansion or value."""
    closed: bool = False
    """`bare` has ended."""

    def add(self, text: str, *, bare: bool = False) -> None:
        """Add text; `bare` text is not quoted."""
        self.closed |= not bare
        if not self.closed:
            self.bare += text
        self.pieces.append(text)

    @property
    def values(self) -> list[Reference]:
        """The values in it."""
        return [piece for piece in self.pieces if isinstance(piece, Reference)]

    @property
    def assigned(self) -> str | None:
        """The variable that the word gives a value."""
        found = _ASSIGNMENT.match(self.bare) if self.leads else None
        return None if found is None else found.group(1)


class WordReader(ABC):
    """Reads the words of one line without conditions; `variables` are those whose content is a value."""

    def __init__(self, template: TextTemplate, variables: frozenset[str]) -> None:
        self.out: list[str] = []
        self.slots: list[tuple[str, Reference]] = []
        """The variables for values, in order."""
        self.at = 0
        self._variables = variables
        self._seen: list[Reference] = []
        self._line = "".join(VALUE if isinstance(one, Reference) else one.text for one in template.parts)
        self._values: dict[int, Reference] = {}
        """The values by their place in the line."""
        self._offsets: list[int] = []
        """The place in the manifest's text for each character of the line."""
        for part in template.parts:
            if isinstance(part, Reference):
                self._values[len(self._offsets)] = part
                self._offsets.append(part.offset)
            else:
                self._offsets += range(part.offset, part.offset + len(part.text))

    @abstractmethod
    def commands(self, *ends: str) -> None:
        """Read the commands of a substitution, up to its `)`."""

    # -- characters ----------------------------------------------------------------------------

    def peek(self) -> str:
        """Return the next character; VALUE for a value, "" at the end."""
        return self._line[self.at : self.at + 1]

    def ahead(self, text: str) -> bool:
        """Return True if this text comes next."""
        return self._line.startswith(text, self.at)

    def match(self, pattern: re.Pattern[str]) -> str:
        """Return what comes next, as far as it matches."""
        found = pattern.match(self._line, self.at)
        return "" if found is None else found[0]

    def take(self, count: int = 1) -> str:
        """Copy characters, none of them a value, to the line."""
        taken = self._line[self.at : self.at + count]
        self.at += count
        self.out.append(taken)
        return taken

    def unsafe(self, message: str, hint: str | None = None, *, at: int | None = None) -> ManifestError:
        """Return the error for a value or a character at this place, or at the place `at`."""
        place = min(self.at if at is None else at, len(self._line) - 1)
        length = self._values[place].length if place in self._values else 1
        return TemplateProblem(message, (), self._offsets[place], length, hint).error()

    def keyword(self) -> str:
        """Return the reserved word that comes next, or ""."""
        return self.match(_RESERVED)

    def blanks(self, *, lines: bool = False) -> None:
        """Skip blanks, continued lines and comments; with `lines` also line ends."""
        found = (_BLANKS_AND_LINES if lines else _BLANKS).match(self._line, self.at)
        assert found is not None
        self.take(found.end() - self.at)
        if found.end(1) == self.at:
            self._refuse_value("a comment")

    def close(self, sign: str) -> None:
        """Read a closing sign."""
        self.blanks(lines=True)
        if self.peek() != sign:
            raise self.unsafe(f"a `{sign}` is missing here")
        self.take()

    def _refuse_value(self, where: str) -> None:
        if self.peek() == VALUE:
            raise self.unsafe(f"a placeholder is not allowed in {where}", AS_A_WORD)

    # -- words ---------------------------------------------------------------------------------

    def word(self, *, leads: bool = False) -> Word:
        """Read one word; `leads`: it may be an assignment."""
        word, braces = Word(self.at, leads), False
        while (sign := self.peek()) and sign not in _BREAKS:
            if sign == VALUE:
                self._value(word, '"${%s}"')
            elif sign in "'\"":
                self._quoted(word, sign)
            elif sign in "`$":
                self._expansion(word, quoted=False)
            elif sign == "\\":
                self._escape(word)
            else:
                word.add(text := self.take(len(self.match(_BARE))), bare=True)
                braces |= "{" in text
        # bash expands `{a,b}` to two words before it looks at quotes, and dash does not: one value would be
        # in both.
        if braces and word.values:
            message = "a placeholder is not allowed in a word with an unquoted `{`"
            raise self.unsafe(message, "put the word in quotes", at=word.start)
        return word

    def _value(self, word: Word, form: str) -> None:
        """Write a value as a variable; `form` has `%s` in place of its name."""
        name, reference = f"{PREFIX}{len(self.slots) + 1}", self._values[self.at]
        self.slots.append((name, reference))
        self._place(word, reference, form % name)
        self.at += 1

    def _place(self, word: Word, reference: Reference, text: str) -> None:
        if len(self._seen) == MOST_VALUES:
            raise self.unsafe(f"the line has more than {MOST_VALUES} values", "move it to a script")
        # A value ends what may be a keyword or an assignment: the shell would not see one there either.
        word.closed = True
        word.pieces.append(reference)
        self._seen.append(reference)
        self.out.append(text)

    def _escape(self, word: Word, *, quoted: bool = False) -> None:
        following = self._line[self.at + 1 : self.at + 2]
        if following in ("", VALUE) or (following == "\n" and not quoted):
            raise self.unsafe("a backslash is not allowed directly before a placeholder or in a broken word")
        taken = self.take(2)
        word.add(taken if quoted and following not in '$`"\\\n' else following.replace("\n", ""))

    def _quoted(self, word: Word, quote: str) -> None:
        start, double = self.at, quote == '"'
        word.add(self.take()[1:])
        while (sign := self.peek()) != quote:
            if not sign:
                raise self.unsafe("this quote is not closed", at=start)
            if sign == VALUE:
                self._value(word, "${%s}" if double else "'\"${%s}\"'")
            elif double and sign in "`$":
                self._expansion(word, quoted=True)
            elif double and sign == "\\":
                self._escape(word, quoted=True)
            else:
                word.add(self.take(len(self.match(_IN_DOUBLE_QUOTES if double else _IN_SINGLE_QUOTES))))
        self.take()

    # -- expansions ----------------------------------------------------------------------------

    def _expansion(self, word: Word, *, quoted: bool) -> None:
        """Read an expansion of the shell itself at a `$` or a backtick."""
        start = self.at
        if self.ahead("`"):
            self._backticks()
        elif self.ahead("$(("):
            self._arithmetic()
        elif self.ahead("$("):
            self._substitution(word, quoted=quoted)
            return
        elif self.ahead("$[") or (not quoted and (self.ahead("$'") or self.ahead('$"'))):
            raise self.unsafe(f"`{self._line[start : start + 2]}` means different things in different shells")
        elif self._variable(word, quoted=quoted):
            return
        name = mentioned(self._line[start : self.at], self._variables)
        if name is not None:
            message = (
                f"`{name}` has a value of the call in it, and is not allowed in an expansion of the shell"
            )
            raise self.unsafe(message, at=start)
        word.add(EXPANSION)

    def _backticks(self) -> None:
        start = self.at
        self.take(len(self.match(_BACKTICKS)))
        if self.ahead("\\"):
            self.take()
        self._refuse_value("backticks")
        if not self.ahead("`"):
            raise self.unsafe("this backtick is not closed", at=start)
        self.take()

    def _arithmetic(self) -> None:
        start, depth = self.at, 2
        self.take(3)
        while depth:
            sign = self.peek()
            self._refuse_value("arithmetic `$((…))`")
            if not _ARITHMETIC.fullmatch(sign):
                raise self.unsafe("this `$((` has more than arithmetic in it, or is not closed", at=start)
            depth += (sign == "(") - (sign == ")")
            self.take()

    def _variable(self, word: Word, *, quoted: bool) -> bool:
        """Read `$name` or `${…}`. Return True for a variable with a value in it, which is put in quotes."""
        start = self.at
        found = _VARIABLE.match(self._line, start)
        assert found is not None
        brace, name = found.groups()
        if name in self._variables and (not brace or self._line[found.end() : found.end() + 1] == "}"):
            length = len(found[0]) + len(brace)
            self.at += length
            reference = Reference(name, self._offsets[start], length)
            self._place(word, reference, f"${{{name}}}" if quoted else f'"${{{name}}}"')
            return True
        self.take(len(found[0]))
        if brace:
            self.take(len(self.match(_IN_BRACES)))
            self._refuse_value("an expansion `${…}`")
            if not self.ahead("}"):
                raise self.unsafe("this `${…}` is too complex for a line with placeholders", at=start)
            self.take()
        elif not name and self.peek() == VALUE:
            message = "a placeholder is not allowed directly after `$`"
            raise self.unsafe(message, "write `\\$` for a dollar sign")
        return False

    def _substitution(self, word: Word, *, quoted: bool) -> None:
        start, before = self.at, len(self._seen)
        word.add(EXPANSION)
        self.take(2)
        self.commands()
        self.close(")")
        inside = self._seen[before:]
        word.pieces += inside
        if inside and not quoted and word.assigned is None:
            message = "a `$(…)` with a placeholder in it must be in double quotes, or it is split into words"
            raise self.unsafe(message, 'write "$(…)"', at=start)
