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


def scan(text: str, found: list[TemplateProblem], spelling: Spelling = Spelling.DOLLAR_BRACE) -> list[Part]:
    """Return the parts of `text`; what cannot be read is added to `found`.

    A reference has the namespace `secret` (`${secret:NAME}`) or `argument` (`{{name}}`) where its spelling
    says so, else none yet.
    """
    if spelling is Spelling.DOLLAR_BRACE or "{{" not in text:
        return list(_dollars(text, 0, found))
    return _Braces(text, found).parts()


def directive(text: str) -> tuple[str, str] | None:
    """A text that is one control tag: (`if`, its test), (`else if`, its test), (`else`, ``), (`end`, ``)."""
    tag = text.strip()
    # `{{if a}}x{{end}}` begins and ends so too, but is a whole text.
    if not tag.startswith("{{") or not tag.endswith("}}") or tag.count("{{") != 1:
        return None
    return _control(tag[2:-2].strip())


def tested(test: str, offset: int, found: list[TemplateProblem]) -> Reference | None:
    """Return the argument that an `{{if …}}` names; None for what is no name."""
    return _named(test, offset, len(test), found)


def _dollars(text: str, base: int, found: list[TemplateProblem]) -> list[LiteralText | Reference]:
    """The parts of a text in the spelling `${name}`; `base` is where it begins in the whole."""
    parts: list[LiteralText | Reference] = []
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
            found.append(TemplateProblem("`${` is not closed by `}`", (), base + offset, 2, hint))
            continue
        if joined := "".join(literal):
            parts.append(LiteralText(joined, base + begin))
        literal.clear()
        begin = at = close + 1
        reference = _reference(inner, base + offset, at - offset, found)
        if reference is None:
            continue
        if reference.name:
            parts.append(reference)
        else:
            found.append(TemplateProblem(_NO_NAME, (), base + offset, at - offset))
    literal.append(text[at:])
    if joined := "".join(literal):
        parts.append(LiteralText(joined, base + begin))
    return parts


def _reference(inner: str, offset: int, length: int, found: list[TemplateProblem]) -> Reference | None:
    prefix, colon, rest = inner.partition(":")
    if colon and prefix.strip() == "secret":
        return Reference(rest.strip(), offset, length, "secret")
    name, bar, tail = inner.partition("|")
    if not bar:
        return Reference(inner, offset, length)
    default = _default(tail, offset, length, found)
    return None if default is None else Reference(name.strip(), offset, length, default=default)


def _default(text: str, offset: int, length: int, found: list[TemplateProblem]) -> Constant | None:
    """The value of the filter `default:VALUE`: JSON where it is a JSON scalar, else the text as it stands."""
    match = _FILTER.fullmatch(text)
    word, colon, value = match.groups() if match is not None else ("", "", "")
    if word != "default" or not colon:
        name = word or text.strip()
        message = f"`{name}` is not a filter" if word != "default" else "`default` needs a colon"
        hint = "there is one filter: `| default:value`"
        found.append(TemplateProblem(message, (), offset, length, hint))
        return None
    return Constant(_scalar(value.strip()))


def is_tag(name: str) -> bool:
    """Return True if `{{name}}` can name this argument."""
    return _NAME.fullmatch(name) is not None and _control(name) is None


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


@dataclass(slots=True)
class _Open:
    """An `{{if}}` that is not ended yet."""

    offset: int
    length: int
    branches: list[Branch] = field(default_factory=list)
    test: Reference | None = None
    parts: list[Part] = field(default_factory=list)
    last: bool = False
    """Its `{{else}}` has come."""

    def close(self) -> None:
        self.branches.append(Branch(self.test, text_of(self.parts)))
        self.parts = []


class _Braces:
    """A reader of one text with `{{name}}` placeholders."""

    def __init__(self, text: str, found: list[TemplateProblem]) -> None:
        self._text = text
        self._found = found
        self._parts: list[Part] = []
        self._open: list[_Open] = []

    def parts(self) -> list[Part]:
        text, at = self._text, 0
        while (start := text.find("{{", at)) >= 0:
            self._here.extend(_dollars(text[at:start], at, self._found))
            close = text.find("}}", start + 2)
            if close < 0:
                self._report("`{{` is not closed by `}}`", start, 2)
                at = start + 2
                break
            at = close + 2
            self._tag(text[start + 2 : close].strip(), start, at - start)
        self._here.extend(_dollars(text[at:], at, self._found))
        for left in self._open:
            self._report("`{{if}}` is not ended by `{{end}}`", left.offset, left.length)
        return self._parts

    @property
    def _here(self) -> list[Part]:
        return self._open[-1].parts if self._open else self._parts

    def _report(self, message: str, offset: int, length: int, hint: str | None = None) -> None:
        self._found.append(TemplateProblem(message, (), offset, length, hint))

    def _tag(self, inner: str, offset: int, length: int) -> None:
        control = _control(inner)
        if control is None:
            reference = _named(inner, offset, length, self._found)
            if reference is not None:
                self._here.append(reference)
            return
        word, test = control
        if word == "if":
            opened = _Open(offset, length, test=_named(test, offset, length, self._found))
            self._open.append(opened)
            return
        if not self._open:
            self._report(f"`{{{{{word}}}}}` without an `{{{{if}}}}` before it", offset, length)
            return
        top = self._open[-1]
        if word == "end":
            top.close()
            # Without an `{{else}}` the text is empty where no test is true.
            if not top.last:
                top.branches.append(Branch(None, TextTemplate(())))
            self._open.pop()
            self._here.append(ConditionNode(tuple(top.branches), top.offset))
            return
        if top.last:
            self._report(f"`{{{{{word}}}}}` after `{{{{else}}}}`", offset, length)
            return
        top.close()
        top.test = _named(test, offset, length, self._found) if word == "else if" else None
        top.last = word == "else"


def _control(inner: str) -> tuple[str, str] | None:
    words = inner.split(None, 2)
    if words == ["end"] or words == ["else"]:
        return inner, ""
    if words[:2] == ["else", "if"]:
        return "else if", inner.split(None, 1)[1][2:].strip()
    if words[:1] == ["if"]:
        return "if", inner[2:].strip()
    return None


def _named(inner: str, offset: int, length: int, found: list[TemplateProblem]) -> Reference | None:
    """The argument that a tag names; None, and a problem in `found`, for what is no name."""
    name, bar, tail = inner.partition("|")
    match = _NAME.fullmatch(name.strip())
    if match is None:
        message = f"`{inner[:60]}` is not supported: it is not the name of an argument"
        found.append(TemplateProblem(message if inner else _NO_NAME, (), offset, length, _HINT))
        return None
    if not bar:
        return Reference(match.group(1), offset, length, "argument")
    default = _default(tail, offset, length, found)
    return None if default is None else Reference(match.group(1), offset, length, "argument", default=default)
