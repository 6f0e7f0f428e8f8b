"""The words of a shell line (POSIX XCU 2.2 to 2.6), each value in them written as a quoted variable.

The quotes round a placeholder decide how its variable is written: `"${V}"` outside of quotes, `${V}` inside
double quotes, `'"${V}"'` inside single quotes. In each case it stays one piece of one word.

The input is a list of signs: single characters, and references where the values stand. Whatever is read is
copied to `out` as it is, only values are replaced. `shell_grammar` puts the words together.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from toolcrib.executors.command.programs import EXPANSION, Piece
from toolcrib.template.spellings import TemplateProblem
from toolcrib.template.tree import LiteralText, Reference, TextTemplate

PREFIX = "TOOLCRIB_"
"""The beginning of the variables for values; no line may name one itself."""
MOST_VALUES = 500
AS_A_WORD = "pass the value as a word of its own"
_BREAKS = " \t\n;&|()<>"
_IDENTIFIER = re.compile(r"\w+")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_NAME_SIGN = re.compile(r"\w", re.ASCII)
_ARITHMETIC = re.compile(r"[\w\s+\-*/%<>=!&|^~?:(),$]*")
_RESERVED = re.compile(
    r"if|then|elif|else|fi|while|until|do|done|for|in|case|esac|\{|\}|!|\[\[|function|select|coproc"
)


class Unsafe(Exception):
    """A value cannot stand at this place of the line."""

    def __init__(self, message: str, offset: int = 0, length: int = 0, hint: str | None = None) -> None:
        super().__init__(message)
        self.problem = TemplateProblem(message, (), offset, length, hint)


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
    braces: bool = False

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
        self._signs: list[tuple[str | Reference, int]] = []
        for part in template.parts:
            if isinstance(part, LiteralText):
                self._signs += [(sign, part.offset + at) for at, sign in enumerate(part.text)]
            else:
                self._signs.append((part, part.offset))

    @abstractmethod
    def commands(self, *ends: str) -> None:
        """Read the commands of a substitution, up to its `)`."""

    # -- signs ---------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> str | Reference | None:
        """Return the next sign, or one after it; None at the end."""
        at = self.at + ahead
        return self._signs[at][0] if at < len(self._signs) else None

    def ahead(self, text: str) -> bool:
        """Return True if this text comes next."""
        return all(self.peek(at) == sign for at, sign in enumerate(text))

    def take(self, count: int = 1) -> str:
        """Copy literal characters to the line."""
        taken = self._text(self.at, self.at + count)
        self.at += count
        self.out.append(taken)
        return taken

    def unsafe(self, message: str, hint: str | None = None, *, at: int | None = None) -> Unsafe:
        """Return the error for this place, or for the place `at`."""
        place = min(self.at if at is None else at, len(self._signs) - 1)
        sign, offset = self._signs[place]
        return Unsafe(message, offset, sign.length if isinstance(sign, Reference) else 1, hint)

    def keyword(self) -> str:
        """Return the reserved word that comes next, or ""."""
        text = ""
        while isinstance(sign := self.peek(len(text)), str) and sign not in _BREAKS:
            text += sign
        return text if _RESERVED.fullmatch(text) and not isinstance(sign, Reference) else ""

    def blanks(self, *, lines: bool = False) -> None:
        """Skip blanks, continued lines and comments; with `lines` also line ends."""
        while (sign := self.peek()) is not None:
            if sign == "#":
                while self.peek() not in (None, "\n"):
                    self._refuse_value("a comment")
                    self.take()
            elif self.ahead("\\\n"):
                self.take(2)
            elif sign in (" ", "\t") or (lines and sign == "\n"):
                self.take()
            else:
                return

    def close(self, sign: str) -> None:
        """Read a closing sign."""
        self.blanks(lines=True)
        if self.peek() != sign:
            raise self.unsafe(f"a `{sign}` is missing here")
        self.take()

    def _text(self, start: int, end: int) -> str:
        return "".join(sign for sign, _ in self._signs[start:end] if isinstance(sign, str))

    def _refuse_value(self, where: str) -> None:
        if isinstance(self.peek(), Reference):
            raise self.unsafe(f"a placeholder cannot stand in {where}", AS_A_WORD)

    # -- words ---------------------------------------------------------------------------------

    def word(self, *, leads: bool = False) -> Word:
        """Read one word; `leads`: it may be an assignment."""
        word = Word(self.at, leads)
        while (sign := self.peek()) is not None:
            if isinstance(sign, Reference):
                self._value(word, sign, '"${%s}"')
            elif sign in _BREAKS:
                break
            elif sign in "'\"":
                self._quoted(word, sign)
            elif sign in "`$":
                self._expansion(word, quoted=False)
            elif sign == "\\":
                self._escape(word)
            else:
                word.braces |= sign == "{"
                word.add(self.take(), bare=True)
        # bash expands `{a,b}` to two words before it looks at quotes, and dash does not: one value would be
        # in both.
        if word.braces and word.values:
            message = "a placeholder cannot stand in a word with an unquoted `{`"
            raise self.unsafe(message, "put the word in quotes", at=word.start)
        return word

    def _value(self, word: Word, reference: Reference, form: str) -> None:
        """Write a value as a variable; `form` has `%s` in place of its name."""
        name = f"{PREFIX}{len(self.slots) + 1}"
        self.slots.append((name, reference))
        self._place(word, reference, form % name)
        self.at += 1

    def _place(self, word: Word, reference: Reference, text: str) -> None:
        if len(self._seen) == MOST_VALUES:
            raise self.unsafe(f"more than {MOST_VALUES} values stand in the line", "move it to a script")
        # A value ends what may be a keyword or an assignment: the shell would not see one there either.
        word.closed = True
        word.pieces.append(reference)
        self._seen.append(reference)
        self.out.append(text)

    def _escape(self, word: Word, *, quoted: bool = False) -> None:
        following = self.peek(1)
        if not isinstance(following, str) or (following == "\n" and not quoted):
            raise self.unsafe("a backslash cannot stand directly before a placeholder or in a broken word")
        taken = self.take(2)
        word.add(taken if quoted and following not in '$`"\\\n' else following.replace("\n", ""))

    def _quoted(self, word: Word, quote: str) -> None:
        start, double = self.at, quote == '"'
        word.add(self.take()[1:])
        while (sign := self.peek()) != quote:
            if sign is None:
                raise self.unsafe("this quote is not closed", at=start)
            if isinstance(sign, Reference):
                self._value(word, sign, "${%s}" if double else "'\"${%s}\"'")
            elif double and sign in "`$":
                self._expansion(word, quoted=True)
            elif double and sign == "\\":
                self._escape(word, quoted=True)
            else:
                word.add(self.take())
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
            raise self.unsafe(f"`${self.peek(1)}` means different things in different shells")
        elif self._variable(word, quoted=quoted):
            return
        name = mentioned(self._text(start, self.at), self._variables)
        if name is not None:
            message = f"`{name}` has a value of the call in it, and cannot stand in an expansion of the shell"
            raise self.unsafe(message, at=start)
        word.add(EXPANSION)

    def _backticks(self) -> None:
        start = self.at
        self.take()
        while (sign := self.peek()) != "`":
            if sign is None:
                raise self.unsafe("this backtick is not closed", at=start)
            self._refuse_value("backticks")
            if sign == "\\":
                self.take()
                self._refuse_value("backticks")
            self.take()
        self.take()

    def _arithmetic(self) -> None:
        start, depth = self.at, 2
        self.take(3)
        while depth:
            sign = self.peek()
            self._refuse_value("arithmetic `$((…))`")
            if not isinstance(sign, str) or not _ARITHMETIC.fullmatch(sign):
                raise self.unsafe("this `$((` has more than arithmetic in it, or is not closed", at=start)
            depth += (sign == "(") - (sign == ")")
            self.take()

    def _variable(self, word: Word, *, quoted: bool) -> bool:
        """Read `$name` or `${…}`. Return True for a variable with a value in it, which is put in quotes."""
        start, brace = self.at, self.ahead("${")
        name = self._name(1 + brace)
        length = 1 + brace + len(name)
        if name in self._variables and (not brace or self.peek(length) == "}"):
            reference = Reference(name, self._signs[start][1], length + brace)
            self.at += length + brace
            self._place(word, reference, f"${{{name}}}" if quoted else f'"${{{name}}}"')
            return True
        self.take(length)
        if brace:
            self._rest_of_braces(start)
        elif length == 1 and isinstance(self.peek(), Reference):
            message = "a placeholder cannot stand directly after `$`"
            raise self.unsafe(message, "write `\\$` for a dollar sign")
        return False

    def _name(self, ahead: int) -> str:
        """The name of a variable that begins there, or ""."""
        name = ""
        while isinstance(sign := self.peek(ahead + len(name)), str) and _NAME_SIGN.fullmatch(sign):
            # `$12` is the first argument and a 2.
            if not name and sign.isdigit():
                break
            name += sign
        return name

    def _rest_of_braces(self, start: int) -> None:
        taken = ""
        while taken != "}":
            self._refuse_value("an expansion `${…}`")
            sign = self.peek()
            if not isinstance(sign, str) or sign in "'\"`\\(){\n" or self.ahead("${"):
                raise self.unsafe("this `${…}` is too complex for a line with placeholders", at=start)
            taken = self.take()

    def _substitution(self, word: Word, *, quoted: bool) -> None:
        start, before = self.at, len(self._seen)
        word.add(EXPANSION)
        self.take(2)
        self.commands()
        self.close(")")
        inside = self._seen[before:]
        word.pieces += inside
        if inside and not quoted and word.assigned is None:
            message = (
                "a `$(…)` with a placeholder in it must stand in double quotes, or it is split into words"
            )
            raise self.unsafe(message, 'write "$(…)"', at=start)
