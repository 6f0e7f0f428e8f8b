"""The tree a template is parsed to when its tool is bound: literals, references, and the JSON around them.

All spellings give the same tree; rendering knows nothing of spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from toolcrib.spec.record import record

Namespace = Literal["argument", "secret", "env", "context"]


@record
class LiteralText:
    """Text that is kept as written (escapes already resolved)."""

    text: str
    offset: int = 0
    """The place in the source string where it begins, in characters."""


@record
class Constant:
    """A JSON value without any reference in it."""

    value: Any


@record
class Reference:
    """One placeholder. Its namespace is fixed when the template is parsed, never at a call."""

    name: str
    """The name; before it is resolved, everything as written between the braces."""
    offset: int = 0
    """The place in the source string where the placeholder begins, in characters."""
    length: int = 0
    """Length of the whole placeholder, braces included, in characters."""
    namespace: Namespace | None = None
    """`None` only before it is resolved; `secret` there for `${secret:NAME}`, `argument` for `{{name}}`."""
    path: tuple[str | int, ...] = ()
    """Keys and list positions inside an argument's value: `${a.b[0]}` is `("b", 0)`."""
    default: Constant | None = None
    """The value to use where the value is absent or null (`| default:10`)."""

    @property
    def json_path(self) -> str:
        """The place of the value in the arguments, as violations name it (`$.items[0].id`)."""
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return f"$.{self.name}{steps}"


@record
class TextTemplate:
    """A string: literal parts and references in order."""

    parts: tuple[LiteralText | Reference, ...]

    @property
    def lone(self) -> Reference | None:
        """The reference, when it is the whole string; such a value keeps its JSON type in JSON positions."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Reference):
            return self.parts[0]
        return None

    @property
    def literal(self) -> str | None:
        """The text, when there is no reference in it."""
        return None if self.references else self.literals

    @property
    def literals(self) -> str:
        """All literal text, without the values."""
        return "".join(part.text for part in self.parts if isinstance(part, LiteralText))

    @property
    def references(self) -> tuple[Reference, ...]:
        """The references in order."""
        return tuple(part for part in self.parts if isinstance(part, Reference))

    def cut(self, marks: str) -> tuple[TextTemplate, str, TextTemplate]:
        """Split at the first literal character that is in `marks`: before, that character or "", after."""
        for at, part in enumerate(self.parts):
            if isinstance(part, Reference):
                continue
            here = next((here for here, char in enumerate(part.text) if char in marks), -1)
            if here >= 0:
                before = (*self.parts[:at], LiteralText(part.text[:here], part.offset))
                after = (LiteralText(part.text[here + 1 :], part.offset + here + 1), *self.parts[at + 1 :])
                return _joined(before), part.text[here], _joined(after)
        return self, "", TextTemplate(())

    def split(self, mark: str) -> list[TextTemplate]:
        """Split at every literal `mark`; one in a value is none."""
        out: list[TextTemplate] = []
        found, rest = mark, self
        while found:
            piece, found, rest = rest.cut(mark)
            out.append(piece)
        return out


def _joined(parts: Iterable[LiteralText | Reference]) -> TextTemplate:
    return TextTemplate(tuple(part for part in parts if isinstance(part, Reference) or part.text))


@record
class ObjectTemplate:
    """A JSON object with templates as values; its keys are the author's alone."""

    items: tuple[tuple[str, Template], ...]


@record
class ListTemplate:
    """A JSON array of templates."""

    items: tuple[Template, ...]


@record
class Branch:
    """One way a condition can go."""

    test: Reference | None
    """The argument that must be neither absent, null, false, 0 nor empty; None for `else`."""
    then: Template | None
    """The template for that case; None drops the entry."""


@record
class ConditionNode:
    """The first branch whose test is true. Where none does, the entry it is the value of is dropped."""

    branches: tuple[Branch, ...]
    offset: int = 0

    @property
    def references(self) -> tuple[Reference, ...]:
        """The references in all branches; tests are not among them, for their values are not shown."""
        kinds = (TextTemplate, ConditionalText, ConditionNode)
        texts = (branch.then for branch in self.branches)
        return tuple(r for text in texts if isinstance(text, kinds) for r in text.references)


@record
class ConditionalText:
    """A string with conditions in it. For each call it is reduced to the `TextTemplate` that applies."""

    parts: tuple[LiteralText | Reference | ConditionNode, ...]

    @property
    def lone(self) -> None:
        """There is no lone reference in it."""
        return None

    @property
    def literal(self) -> None:
        """It is not the same text in every call."""
        return None

    @property
    def references(self) -> tuple[Reference, ...]:
        """The references of all branches, in order."""
        return tuple(references_of(self.parts))

    def variants(self) -> list[TextTemplate]:
        """Every text it can be settled to, as far as its tests do not exclude each other; 65 at most."""
        found: list[tuple[LiteralText | Reference, ...]] = [()]
        for part in self.parts:
            if not isinstance(part, ConditionNode):
                found = [(*parts, part) for parts in found]
                continue
            ways: list[tuple[LiteralText | Reference, ...]] = []
            for branch in part.branches:
                if isinstance(branch.then, ConditionalText | ConditionNode):
                    then = branch.then
                    inner = ConditionalText((then,)) if isinstance(then, ConditionNode) else then
                    ways += [text.parts for text in inner.variants()]
                elif isinstance(branch.then, TextTemplate):
                    ways.append(branch.then.parts)
            # Conditions multiply. One more than the limit is kept, so that callers see that there are too
            # many.
            found = [(*parts, *way) for parts in found[:MOST_VARIANTS] for way in ways][: MOST_VARIANTS + 1]
        return [TextTemplate(parts) for parts in found]


MOST_VARIANTS = 64

Text = TextTemplate | ConditionalText


def references_of(parts: Iterable[LiteralText | Reference | ConditionNode]) -> Iterator[Reference]:
    """Yield the references among these parts and in the branches of conditions."""
    for part in parts:
        if isinstance(part, Reference):
            yield part
        elif isinstance(part, ConditionNode):
            yield from part.references


def text_of(parts: Iterable[LiteralText | Reference | ConditionNode]) -> Text:
    """The text that these parts make."""
    whole = tuple(parts)
    plain = tuple(part for part in whole if not isinstance(part, ConditionNode))
    return TextTemplate(plain) if len(plain) == len(whole) else ConditionalText(whole)


Template = TextTemplate | ConditionalText | ConditionNode | ObjectTemplate | ListTemplate | Constant


def references_in(template: Template | None) -> Iterator[Reference]:
    """Yield every reference of a tree, those of all branches too."""
    if isinstance(template, TextTemplate | ConditionalText | ConditionNode):
        yield from template.references
    elif isinstance(template, ListTemplate):
        for item in template.items:
            yield from references_in(item)
    elif isinstance(template, ObjectTemplate):
        for _, item in template.items:
            yield from references_in(item)


def untied(tree: Any) -> Any:
    """A tree, or data with trees in it, without the places in the source: equal where the same is meant."""
    if is_dataclass(tree):
        named = (one.name for one in fields(tree) if one.name not in ("offset", "length"))
        return (type(tree).__name__, *(untied(getattr(tree, name)) for name in named))
    if isinstance(tree, dict):
        return {key: untied(item) for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [untied(item) for item in tree]
    return (type(tree).__name__, tree)
