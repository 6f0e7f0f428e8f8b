"""Reads the `${name}` spelling to a tree and fixes what each name is: argument, secret, environment, context.

- `${name}` is the argument if the input schema has a property of that name, else a declared secret or
  environment name, else a context name (`version`, `slug`, `name`, `run_id`, `session_id`). A name that is an
  argument and also a secret or environment name is refused, so an argument can never shadow a secret.
- `${secret:NAME}` is the declared secret and nothing else.
- `${a.b}` and `${items[0].id}` reach into an argument's value, unless the schema has a property of that very
  name.
- Directly before `{`, each `$$` is one literal `$`: `$${x}` is the text `${x}`, and `$$${x}` a dollar and the
  value. A `$` anywhere else is itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.spec import Tool
from toolcrib.spec.naming import nearest
from toolcrib.template.tree import (
    Constant,
    ListTemplate,
    LiteralText,
    ObjectTemplate,
    Reference,
    Template,
    TextTemplate,
)

__all__ = [
    "CONTEXT_NAMES",
    "Namespaces",
    "TemplateProblem",
    "escape",
    "parse",
    "parse_text",
    "problems",
    "references",
]

CONTEXT_NAMES = frozenset({"version", "slug", "name", "run_id", "session_id"})
"""Names known in every template without being declared."""

_OPEN = re.compile(r"(\$+)\{")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]")
_HEAD = re.compile(r"[^.\[\]]+")
_APPLICATORS = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("if", "then", "else")


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The names a template may use, by what they are."""

    arguments: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    env: frozenset[str] = frozenset()
    context: frozenset[str] = field(default=CONTEXT_NAMES)

    @classmethod
    def of(cls, tool: Tool) -> Namespaces:
        """The names that `tool` has: its schema's properties, its declared secrets and environment names."""
        return cls(
            arguments=frozenset(_properties(tool.input_schema, tool.input_schema, set())),
            secrets=frozenset(secret.name for secret in tool.permissions.secrets),
            env=frozenset(tool.permissions.env),
        )


def escape(text: str, *, before_placeholder: bool = False) -> str:
    """A plain text as a template in which nothing is a placeholder.

    `before_placeholder` says that one follows directly.
    """
    end = r"(?:\{|$)" if before_placeholder else r"\{"
    return re.sub(rf"\$+(?={end})", lambda found: found.group() * 2, text)


def references(text: str) -> list[Reference]:
    """All placeholders of `text` in order, not resolved: `name` is what stands between the braces.

    `${secret:NAME}` has namespace `secret` and the bare name. A `${` without its `}` is a ManifestError.
    """
    found: list[TemplateProblem] = []
    parts = _scan(text, found)
    if found:
        raise found[0].error()
    return [part for part in parts if isinstance(part, Reference)]


def parse(value: Any, namespaces: Namespaces) -> Template:
    """The tree of a JSON value whose strings may hold placeholders.

    Raises ManifestError for the first bad placeholder: not closed, empty, in a key, unknown (the nearest name
    is told) or ambiguous. `details` holds `path`, `offset` and `length`.
    """
    found: list[TemplateProblem] = []
    tree = _parse(value, namespaces, (), found)
    if found:
        raise found[0].error()
    return tree


def parse_text(text: str, namespaces: Namespaces) -> TextTemplate:
    """As `parse`, for one string; the result is always a text template."""
    found: list[TemplateProblem] = []
    tree = _text(text, namespaces, (), found)
    if found:
        raise found[0].error()
    return tree


def problems(value: Any, namespaces: Namespaces) -> list[TemplateProblem]:
    """Everything that `parse` would refuse, in order of place."""
    found: list[TemplateProblem] = []
    _parse(value, namespaces, (), found)
    return found


def _parse(
    value: Any, namespaces: Namespaces, path: tuple[str | int, ...], found: list[TemplateProblem]
) -> Template:
    if isinstance(value, str):
        text = _text(value, namespaces, path, found)
        literal = text.literal
        return text if literal is None else Constant(literal)
    if isinstance(value, Mapping):
        items: list[tuple[str, Template]] = []
        for key, item in value.items():
            name = str(key)
            items.append((_key(name, path, found), _parse(item, namespaces, (*path, name), found)))
        if all(isinstance(item, Constant) for _, item in items):
            return Constant({key: item.value for key, item in items if isinstance(item, Constant)})
        return ObjectTemplate(tuple(items))
    if isinstance(value, list | tuple):
        entries = [_parse(item, namespaces, (*path, at), found) for at, item in enumerate(value)]
        if all(isinstance(item, Constant) for item in entries):
            return Constant([item.value for item in entries if isinstance(item, Constant)])
        return ListTemplate(tuple(entries))
    return Constant(value)


def _key(name: str, path: tuple[str | int, ...], found: list[TemplateProblem]) -> str:
    if "${" not in name:
        return name
    mine: list[TemplateProblem] = []
    parts = _scan(name, mine)
    for part in parts:
        if isinstance(part, Reference):
            message = f"`${{{part.name}}}` stands in a key; placeholders may stand in values only"
            mine.append(TemplateProblem(message, (), part.offset, part.length))
    found.extend(replace(problem, path=(*path, name)) for problem in mine)
    return "".join(part.text for part in parts if isinstance(part, LiteralText))


def _text(
    text: str, namespaces: Namespaces, path: tuple[str | int, ...], found: list[TemplateProblem]
) -> TextTemplate:
    mine: list[TemplateProblem] = []
    parts: list[LiteralText | Reference] = []
    for part in _scan(text, mine):
        resolved = _resolve(part, namespaces) if isinstance(part, Reference) else part
        if isinstance(resolved, TemplateProblem):
            mine.append(resolved)
        else:
            parts.append(resolved)
    mine.sort(key=lambda problem: problem.offset)
    found.extend(replace(problem, path=path) for problem in mine)
    return TextTemplate(tuple(parts))


def _scan(text: str, found: list[TemplateProblem]) -> list[LiteralText | Reference]:
    """The parts of `text`, names not resolved; what cannot be read goes to `found`."""
    parts: list[LiteralText | Reference] = []
    literal: list[str] = []
    begin = at = 0
    while (match := _OPEN.search(text, at)) is not None:
        dollars = len(match.group(1))
        literal.append(text[at : match.start()] + "$" * (dollars // 2))
        at = match.end()
        if dollars % 2 == 0:
            literal.append("{")
            continue
        offset = at - 2
        close = text.find("}", at)
        inner = text[at:close].strip()
        if close < 0 or "${" in inner:
            hint = "write `$${` for the two characters themselves"
            found.append(TemplateProblem("`${` is not closed by `}`", (), offset, 2, hint))
            continue
        if joined := "".join(literal):
            parts.append(LiteralText(joined, begin))
        literal.clear()
        begin = at = close + 1
        reference = _reference(inner, offset, at - offset)
        if reference.name:
            parts.append(reference)
        else:
            found.append(TemplateProblem("the placeholder has no name", (), offset, at - offset))
    literal.append(text[at:])
    if joined := "".join(literal):
        parts.append(LiteralText(joined, begin))
    return parts


def _reference(inner: str, offset: int, length: int) -> Reference:
    prefix, colon, rest = inner.partition(":")
    if colon and prefix.strip() == "secret":
        return Reference(rest.strip(), offset, length, "secret")
    return Reference(inner, offset, length)


def _resolve(reference: Reference, names: Namespaces) -> Reference | TemplateProblem:
    """The reference with its namespace fixed, or why it cannot be: an unknown or an ambiguous name."""
    if reference.namespace == "secret":
        if reference.name in names.secrets:
            return reference
        return _unknown(reference, names.secrets, f"`{reference.name}` is not a declared secret")
    name, path = _split(reference.name, names.arguments)
    if name in names.arguments:
        if name in names.secrets or name in names.env:
            return _ambiguous(reference, name, secret=name in names.secrets)
        return replace(reference, name=name, path=path, namespace="argument")
    if name in names.secrets:
        return replace(reference, namespace="secret")
    if name in names.env:
        return replace(reference, namespace="env")
    if name in names.context:
        return replace(reference, namespace="context")
    known = names.arguments | names.secrets | names.env | names.context
    message = f"`{name}` is neither an argument, a declared secret nor an environment name"
    return _unknown(reference, known, message)


def _split(name: str, arguments: frozenset[str]) -> tuple[str, tuple[str | int, ...]]:
    """`a.b[0]` as (`a`, (`b`, 0)) when `a` is an argument; anything else is one plain name."""
    head = _HEAD.match(name)
    if name in arguments or head is None or head.group() not in arguments:
        return name, ()
    path: list[str | int] = []
    at = head.end()
    while at < len(name):
        step = _STEP.match(name, at)
        if step is None:
            return name, ()
        path.append(step.group(1) if step.group(1) is not None else int(step.group(2)))
        at = step.end()
    return head.group(), tuple(path)


def _ambiguous(reference: Reference, name: str, *, secret: bool) -> TemplateProblem:
    other = "a secret" if secret else "an environment name"
    message = f"`{name}` is ambiguous: it is an argument and also {other}"
    hint = f"rename the argument, or write `${{secret:{name}}}`" if secret else "rename the argument"
    return TemplateProblem(message, (), reference.offset, reference.length, hint)


def _unknown(reference: Reference, known: Iterable[str], message: str) -> TemplateProblem:
    near = nearest(reference.name, sorted(known))
    if near is not None:
        hint = f"did you mean `{near}`?"
    else:
        hint = "declare it in inputs.schema or under permissions.secrets"
    return TemplateProblem(message, (), reference.offset, reference.length, hint)


def _properties(schema: Any, root: Mapping[str, Any], seen: set[int]) -> Iterator[str]:
    """Property names an object of this schema may have, through local references and combinations."""
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return
    seen.add(id(schema))
    named = schema.get("properties")
    if isinstance(named, Mapping):
        yield from (str(name) for name in named)
    branches = [schema.get(keyword) for keyword in _BRANCHES]
    for keyword in _APPLICATORS:
        combined = schema.get(keyword)
        if isinstance(combined, list):
            branches.extend(combined)
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith("#/"):
        branches.append(_pointer(root, target))
    for branch in branches:
        yield from _properties(branch, root, seen)


def _pointer(root: Mapping[str, Any], target: str) -> Any:
    node: Any = root
    for step in target[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, Mapping) else None
    return node
