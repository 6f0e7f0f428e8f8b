"""The grammar of one shell line (POSIX XCU 2.9): its commands, and the places where no value is allowed.

A value is allowed in a word of a simple command. It is not allowed in the name of the program, in the words
of `for` and `case`, in arithmetic, in a here-document, or in a command that changes the shell itself. What
this grammar does not know is refused too.

A library does not help here: bashlex and tree-sitter-bash read all of bash, while `/bin/sh` may be dash, and
neither knows how to write a value at its place. Lines without values are not parsed at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolcrib.executors.command.interpreters import base_name, is_steering
from toolcrib.executors.command.shell_words import (
    AS_A_WORD,
    EXPANSION,
    Command,
    Piece,
    Word,
    WordReader,
    marked,
)
from toolcrib.template.tree import Reference, TextTemplate

_MAX_DEPTH = 30
_ENDS = frozenset("\n;&|)")
_REDIRECTION = re.compile(r"([0-9]*)([<>][>|&]?)")
_COMPOUND = ("{", "while", "until", "if", "for", "case")
_SHELL_STATE = re.compile(
    "export|readonly|local|declare|typeset|let|read|mapfile|readarray|unset|set|getopts|hash|wait|enable"
    "|complete|bind|fc|shopt|ulimit|alias|unalias"
)
"""Commands that change variables or rules of the shell itself, by which later words are read."""


class ShellParser(WordReader):
    """Parses one line without conditions; `variables` are those whose content is a value."""

    def __init__(self, template: TextTemplate, variables: frozenset[str]) -> None:
        super().__init__(template, variables)
        self.found: list[Command] = []
        self.openings: list[tuple[Piece, ...]] = []
        """The words that begin with a value, and so could be read as an option."""
        self.assigned: set[str] = set()
        """Variables to which the line itself gives a value of the call."""
        self._depth = 0

    def parse(self) -> None:
        """Read the whole line. Raises ManifestError at the first value in a place that is not allowed."""
        self.commands()
        if self.peek():
            raise self.unsafe("this `)` closes nothing")

    # -- commands ------------------------------------------------------------------------------

    def commands(self, *ends: str) -> None:
        """Read commands up to one of these reserved words, a `)`, a `;;` or the end."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.unsafe("the line is nested too deep")
        while True:
            self.blanks(lines=True)
            if self.peek() in ("", ")") or self.ahead(";;") or self.keyword() in ends:
                break
            self._pipeline()
            if self.ahead("&&") or self.ahead("||"):
                self.take(2)
            elif self.peek() in ("", ")") or self.ahead(";;"):
                break
            else:
                self.take()
        self._depth -= 1

    def _pipeline(self) -> None:
        """Read commands with `|` between them; the values of the earlier ones may reach each as its input."""
        flows: list[Reference] = []
        while True:
            first = len(self.found)
            self._command()
            for command in self.found[first:]:
                # Any of them may print what it was given, so its values can reach the next one.
                command.fed += flows
            flows += [value for command in self.found[first:] for value in command.values]
            if self.peek() != "|" or self.ahead("||"):
                return
            if self.ahead("|&"):
                raise self.unsafe("`|&` is not allowed in a line with placeholders", "write `2>&1 |`")
            self.take()
            self.blanks(lines=True)

    def _command(self) -> None:
        while (keyword := self.keyword()) == "!":
            self._expect("!")
            self.blanks()
        first = len(self.found)
        # dash reads two subshells here, bash arithmetic.
        if self.ahead("(("):
            raise self.unsafe("arithmetic `((…))` is not allowed in a line with placeholders")
        if self.peek() == "(":
            self.take()
            self.commands()
            self.close(")")
        elif not keyword:
            self._simple()
            return
        else:
            self._compound(keyword)
        self.blanks()
        outer = Command()
        while self.match(_REDIRECTION):
            self._redirect(outer)
            self.blanks()
        for command in self.found[first:]:
            command.values += outer.values
            command.fed += outer.fed
        if self.peek() and self.peek() not in _ENDS:
            raise self.unsafe("a command cannot begin here: a `;` is missing")

    def _expect(self, word: str) -> None:
        self.blanks(lines=True)
        if self.keyword() != word:
            raise self.unsafe(f"`{word}` is missing here")
        self.take(len(word))

    def _until(self, word: str) -> None:
        """Read commands, and the reserved word that ends them."""
        self.commands(word)
        self._expect(word)

    def _compound(self, keyword: str) -> None:
        if keyword not in _COMPOUND:
            raise self.unsafe(f"`{keyword}` is not allowed here in a line with placeholders")
        self._expect(keyword)
        if keyword == "{":
            self._until("}")
        elif keyword == "if":
            self._if()
        elif keyword == "case":
            self._case()
        else:
            if keyword == "for":
                self._for_words()
                self._expect("do")
            else:
                self._until("do")
            self._until("done")

    def _if(self) -> None:
        branch = "elif"
        while branch == "elif":
            self._until("then")
            self.commands("elif", "else", "fi")
            branch = self.keyword()
            self._expect(branch if branch in ("elif", "else") else "fi")
        if branch == "else":
            self._until("fi")

    def _for_words(self) -> None:
        self._plain_word("the variable of `for`")
        self.blanks(lines=True)
        if self.keyword() == "in":
            self._expect("in")
            self.blanks()
            while self.peek() not in ("", ";", "\n"):
                self._plain_word("the words of `for`")
                self.blanks()
        if self.peek() == ";":
            self.take()

    def _case(self) -> None:
        self._plain_word("the word of `case`")
        self._expect("in")
        self.blanks(lines=True)
        while self.keyword() != "esac":
            if self.peek() == "(":
                self.take()
            self._plain_word("a pattern of `case`")
            self.blanks()
            while self.peek() == "|":
                self.take()
                self._plain_word("a pattern of `case`")
                self.blanks()
            self.close(")")
            self.commands("esac")
            if self.ahead(";;"):
                self.take(2)
            self.blanks(lines=True)
        self._expect("esac")

    def _plain_word(self, where: str) -> None:
        """Read a word in which no value is allowed."""
        self.blanks()
        word = self.word()
        if word.values:
            raise self.unsafe(f"a placeholder is not allowed in {where}", AS_A_WORD, at=word.start)
        if not word.pieces:
            raise self.unsafe(f"{where} is missing here")

    def _simple(self) -> None:
        command, start, words = Command(), self.at, list[Word]()
        assignments: list[Word] = []
        self.found.append(command)
        while (sign := self.peek()) and sign not in _ENDS:
            if sign == "(":
                raise self.unsafe("a function or an array is not allowed in a line with placeholders")
            if self.match(_REDIRECTION):
                self._redirect(command)
            else:
                # Only before the name of the program: after it `a=b` is an argument.
                word = self.word(leads=not words)
                command.values += word.values
                if word.assigned is None:
                    words.append(word)
                else:
                    assignments.append(word)
            self.blanks()
        if self.at == start:
            raise self.unsafe("a command is missing here")
        command.words = [word.pieces for word in words]
        for word in assignments:
            self._assign(word, lasting=not words)
        if words:
            self._check(words)

    def _assign(self, word: Word, *, lasting: bool) -> None:
        """Note a variable that gets a value of the call, in the shell itself if `lasting`."""
        name = word.assigned or ""
        if not word.values:
            return
        if is_steering(name):
            raise self.unsafe(
                f"a placeholder is not allowed in the value of `{name}`: it decides what is run",
                at=word.start,
            )
        self.assigned.add(name)
        if lasting:
            # The first piece is all of the text before a quote, an expansion or a value.
            self._opens((word.bare[len(name) + 1 :], *word.pieces[1:]))

    def _check(self, words: Sequence[Word]) -> None:
        """Refuse a value in the name of the program, and in commands that change the shell itself."""
        if words[0].values:
            hint = "write the name of the program out"
            raise self.unsafe("a placeholder cannot be the program that is run", hint, at=words[0].start)
        first = next((word for word in words if word.values), None)
        if first is not None:
            name = base_name(marked(words[0].pieces))
            if EXPANSION in name:
                message = "a placeholder cannot be passed to a program whose name is not written out"
                raise self.unsafe(message, at=first.start)
            if _SHELL_STATE.fullmatch(name):
                message = f"a placeholder is not allowed in `{name}`, which changes the shell itself"
                raise self.unsafe(message, at=first.start)
        for word in words[1:]:
            # After it no word is an option, whatever it begins with.
            if marked(word.pieces) == "--":
                return
            self._opens(word.pieces)

    def _opens(self, word: Sequence[Piece]) -> None:
        """Note a word that begins with a value."""
        pieces = tuple(piece for piece in word if piece)
        if pieces and isinstance(pieces[0], Reference):
            self.openings.append(pieces)

    def _redirect(self, command: Command) -> None:
        """Read a redirection; a number may be its beginning."""
        found = _REDIRECTION.match(self._line, self.at)
        assert found is not None
        self.take(len(found[1]))
        if self.ahead("<<"):
            hint = "use `printf '%s' … |`"
            raise self.unsafe("a here-document is not allowed in a line with placeholders", hint)
        operator = self.take(len(found[2]))
        self.blanks()
        word = self.word()
        if not word.pieces:
            raise self.unsafe("the target of a redirection is missing here")
        if "&" in operator and word.values:
            raise self.unsafe(f"a placeholder is not allowed after `{operator}`", at=word.start)
        command.values += word.values
        if "<" in operator:
            command.fed += word.values
