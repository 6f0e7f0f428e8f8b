"""The spellings of a placeholder, read to parts whose names are not resolved yet.

- `DOLLAR_BRACE`: `${name}` and `${secret:NAME}`. Directly before `{`, each `$$` is one literal `$`.
  `{{` is text.
- `DOUBLE_BRACE`: as `DOLLAR_BRACE`, and also `{{name}}` or `{{.name}}`, which is always an argument, and
  `{{if name}} … {{else if name}} … {{else}} … {{end}}`. Every other construct of Go's templates is refused.

Both take one filter: `${count | default:10}`, `{{count | default:10}}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.spec import Spelling
from toolcrib.spec.record import record
from toolcrib.template.tree import (
    Branch,
    ConditionNode,
    Constant,
    LiteralText,
    Reference,
    TextTemplate,
    text_of,
)

Part = LiteralText | Reference | ConditionNode

_OPEN = re.compile(r"(\$+)\{")
_FILTER = re.compile(r"\s*(\w*)\s*(:?)(.*)", re.DOTALL)
_NAME = re.compile(r"\.?([^\W\d][\w-]*(?:\.[\w-]+|\[\d{1,9}\])*)")
_DEEPEST = 50
"""Conditions in one another. What reads their tree calls itself, so a deeper one would exhaust the stack."""
_NO_NAME = "the placeholder has no name"
_HINT = "use {{name}}, {{name | default:value}} and {{if name}} … {{else}} … {{end}}"


@record
class TemplateProblem:
    """One thing wrong with a template, and where."""

    message: str
    path: tuple[str | int, ...] = ()
    """Keys and positions from the parsed value down to the string that holds it."""
    offset: int = 0
    """First character, counted in that string."""
    length: int = 0
    hint: str | None = None

    def error(self) -> ManifestError:
        """The problem as an exception; `details` holds path, offset and length."""
        details = {"path": list(self.path), "offset": self.offset, "length": self.length}
        return ManifestError(self.message, hint=self.hint, details=details)


def directive(text: str) -> tuple[str, str] | None:
    """A text that is one control tag: (`if`, its test), (`else if`, its test), (`else`, ``), (`end`, ``)."""
    tag = text.strip()
    # `{{if a}}x{{end}}` begins and ends so too, but is a whole text.
    if not tag.startswith("{{") or not tag.endswith("}}") or tag.count("{{") != 1:
        return None
    return _control(tag[2:-2].strip())


@dataclass(slots=True)
class _Open:
    """The whole text, or an `{{if}}` in it that is not ended yet."""

    offset: int = 0
    length: int = 0
    test: Reference | None = None
    parts: list[Part] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    last: bool = False
    """Its `{{else}}` has come."""


class Scanner:
    """Reads texts to parts. What cannot be read or resolved is added to `found`.

    `resolve` is called with each reference, which has the namespace `secret` (`${secret:NAME}`) or `argument`
    (`{{name}}`) where its spelling says so, else none yet.
    """

    def __init__(
        self,
        spelling: Spelling = Spelling.DOLLAR_BRACE,
        resolve: Callable[[Reference], Reference | TemplateProblem] = lambda reference: reference,
    ) -> None:
        self.found: list[TemplateProblem] = []
        self._spelling = spelling
        self._resolve = resolve

    def parts(self, text: str) -> list[Part]:
        """Return the parts of a text."""
        if self._spelling is Spelling.DOLLAR_BRACE or "{{" not in text:
            return self._dollars(text, 0)
        return self._braces(text)

    def test(self, name: str) -> Reference | None:
        """Return the argument that an `{{if …}}` names; None for what is not a name."""
        return self._named(name, 0, len(name))

    def _report(self, message: str, offset: int, length: int, hint: str | None = None) -> None:
        self.found.append(TemplateProblem(message, (), offset, length, hint))

    def _resolved(self, reference: Reference) -> Reference | None:
        found = self._resolve(reference)
        if isinstance(found, Reference):
            return found
        self.found.append(found)
        return None

    # -- `${name}` -----------------------------------------------------------------------------

    def _dollars(self, text: str, base: int) -> list[Part]:
        """The parts of a text in the spelling `${name}`; `base` is where it begins in the whole."""
        parts: list[Part] = []
        literal: list[str] = []
        begin = at = 0
        while (match := _OPEN.search(text, at)) is not None:
            # `$$` is one `$`, so an even number of them leaves no dollar for the brace.
            dollars = len(match.group(1))
            literal.append(text[at : match.start()] + "$" * (dollars // 2))
            at = match.end()
            if dollars % 2 == 0:
                literal.append("{")
                continue
            offset = at - 2
            close = text.find("}", at)
            inner = text[at:close].strip()
            # In `${a ${b}` the first is not closed; without this test it would take the brace of the second.
            if close < 0 or "${" in inner:
                hint = "write `$${` for the two characters themselves"
                self._report("`${` is not closed by `}`", base + offset, 2, hint)
                continue
            if joined := "".join(literal):
                parts.append(LiteralText(joined, base + begin))
            literal.clear()
            begin = at = close + 1
            if (reference := self._reference(inner, base + offset, at - offset)) is not None:
                parts.append(reference)
        literal.append(text[at:])
        if joined := "".join(literal):
            parts.append(LiteralText(joined, base + begin))
        return parts

    def _reference(self, inner: str, offset: int, length: int) -> Reference | None:
        prefix, colon, rest = inner.partition(":")
        if colon and prefix.strip() == "secret":
            reference = Reference(rest.strip(), offset, length, "secret")
        else:
            name, bar, tail = inner.partition("|")
            default = self._default(tail, offset, length) if bar else None
            if bar and default is None:
                return None
            reference = Reference(name.strip(), offset, length, default=default)
        if reference.name:
            return self._resolved(reference)
        self._report(_NO_NAME, offset, length)
        return None

    def _default(self, text: str, offset: int, length: int) -> Constant | None:
        """The value of the filter `default:VALUE`: a JSON scalar, or else the text as it is."""
        match = _FILTER.fullmatch(text)
        word, colon, value = match.groups() if match is not None else ("", "", "")
        if word == "default" and colon:
            return Constant(_scalar(value.strip()))
        name = word or text.strip()
        message = f"`{name}` is not a filter" if word != "default" else "`default` needs a colon"
        self._report(message, offset, length, "there is one filter: `| default:value`")
        return None

    # -- `{{name}}` ----------------------------------------------------------------------------

    def _braces(self, text: str) -> list[Part]:
        """The parts of a text that has `{{name}}` and conditions too."""
        opened, at = [_Open()], 0
        while (start := text.find("{{", at)) >= 0:
            opened[-1].parts += self._dollars(text[at:start], at)
            close = text.find("}}", start + 2)
            if close < 0:
                self._report("`{{` is not closed by `}}`", start, 2)
                at = start + 2
                break
            at = close + 2
            inner = text[start + 2 : close].strip()
            if (control := _control(inner)) is not None:
                self._condition(*control, opened, start, at - start)
                if len(opened) > _DEEPEST + 1:
                    self._report(f"the conditions are nested more than {_DEEPEST} deep", start, at - start)
                    return opened[0].parts
            elif (reference := self._named(inner, start, at - start)) is not None:
                opened[-1].parts.append(reference)
        opened[-1].parts += self._dollars(text[at:], at)
        for left in opened[1:]:
            self._report("`{{if}}` is not ended by `{{end}}`", left.offset, left.length)
        return opened[0].parts

    def _condition(self, word: str, test: str, opened: list[_Open], offset: int, length: int) -> None:
        """Read one tag of a condition."""
        if word == "if":
            opened.append(_Open(offset, length, self._named(test, offset, length)))
            return
        top = opened[-1]
        if len(opened) == 1:
            self._report(f"`{{{{{word}}}}}` without an `{{{{if}}}}` before it", offset, length)
            return
        if top.last and word != "end":
            self._report(f"`{{{{{word}}}}}` after `{{{{else}}}}`", offset, length)
            return
        top.branches.append(Branch(top.test, text_of(top.parts)))
        top.parts = []
        if word == "end":
            # Without an `{{else}}` the text is empty where no test is true.
            last = () if top.last else (Branch(None, TextTemplate(())),)
            opened.pop()
            opened[-1].parts.append(ConditionNode((*top.branches, *last), top.offset))
            return
        top.test = self._named(test, offset, length) if word == "else if" else None
        top.last = word == "else"

    def _named(self, inner: str, offset: int, length: int) -> Reference | None:
        """The argument that a tag names; None for what is not a name."""
        name, bar, tail = inner.partition("|")
        match = _NAME.fullmatch(name.strip())
        if match is None:
            message = f"`{inner[:60]}` is not supported: it is not the name of an argument"
            self._report(message if inner else _NO_NAME, offset, length, _HINT)
            return None
        default = self._default(tail, offset, length) if bar else None
        if bar and default is None:
            return None
        return self._resolved(Reference(match.group(1), offset, length, "argument", default=default))


def default_text(value: Any) -> str:
    """Return a value as it is written after `default:`; a text that would read back otherwise is quoted."""
    if not isinstance(value, str):
        return json.dumps(value)
    return value if value and value == value.strip() and _scalar(value) == value else f"'{value}'"


def _scalar(text: str) -> Any:
    import orjson

    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        value = orjson.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, dict | list) else value


def _control(inner: str) -> tuple[str, str] | None:
    words = inner.split(None, 2)
    if words == ["end"] or words == ["else"]:
        return inner, ""
    if words[:2] == ["else", "if"]:
        return "else if", inner.split(None, 1)[1][2:].strip()
    if words[:1] == ["if"]:
        return "if", inner[2:].strip()
    return None
