"""Makes the tree of a template and fixes what each name in it is: argument, secret, environment, context.

- `${name}` is the argument if the input schema has a property of that name, else a declared secret or
  environment name, else a context name (`version`, `slug`, `name`, `run_id`, `session_id`). A name that is an
  argument and also a secret or environment name is refused, so an argument can never shadow a secret.
- `${secret:NAME}` is the declared secret and nothing else.
- `{{name}}`, in files that spell placeholders so, is the argument and nothing else.
- `${a.b}` and `${items[0].id}` reach into an argument's value, unless the schema has a property of that very
  name.
- Directly before `{`, each `$$` is one literal `$`: `$${x}` is the text `${x}`, and `$$${x}` a dollar and the
  value. A `$` anywhere else is itself.
- Conditions: see `spellings`. A `Choice` value is a condition around a whole entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from toolcrib.spec import ABSENT, Choice, Spelling, Tool
from toolcrib.spec.naming import did_you_mean, pointed
from toolcrib.spec.record import record
from toolcrib.template.spellings import Scanner, TemplateProblem
from toolcrib.template.tree import (
    Branch,
    ConditionalText,
    ConditionNode,
    Constant,
    ListTemplate,
    LiteralText,
    ObjectTemplate,
    Reference,
    Template,
    Text,
    TextTemplate,
    references_in,
    references_of,
    text_of,
)
from toolcrib.template.values import literal_text

CONTEXT_NAMES = frozenset({"version", "slug", "name", "run_id", "session_id"})
"""Names known in every template without being declared."""

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]")
_HEAD = re.compile(r"[^.\[\]]+")
_APPLICATORS = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("if", "then", "else")


@record
class Namespaces:
    """The names a template may use, by what they are."""

    arguments: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    env: frozenset[str] = frozenset()
    context: frozenset[str] = field(default=CONTEXT_NAMES)
    spelling: Spelling = Spelling.DOLLAR_BRACE

    @classmethod
    def of(cls, tool: Tool) -> Namespaces:
        """The names that `tool` has: its schema's properties, its declared secrets and environment names."""
        return cls(
            arguments=frozenset(_properties(tool.input_schema, tool.input_schema, set())),
            secrets=frozenset(secret.name for secret in tool.permissions.secrets),
            env=frozenset(tool.permissions.env),
            spelling=Spelling.DOLLAR_BRACE if tool.source is None else tool.source.spelling,
        )


def escape(text: str, *, before_placeholder: bool = False) -> str:
    """Return a plain text as a template without placeholders.

    `before_placeholder`: one follows directly.
    """
    end = r"(?:\{|\Z)" if before_placeholder else r"\{"
    return re.sub(rf"\$+(?={end})", lambda found: found.group() * 2, text)


def references(text: str) -> list[Reference]:
    """Return all placeholders of `text` in order, not resolved: `name` is the text between the braces.

    `${secret:NAME}` has namespace `secret` and the bare name. A `${` without its `}` is a ManifestError.
    """
    scanner = Scanner()
    parts = scanner.parts(text)
    if scanner.found:
        raise scanner.found[0].error()
    return [part for part in parts if isinstance(part, Reference)]


def names_in(text: str, spelling: Spelling) -> list[Reference]:
    """Return all placeholders of `text`, those of conditions too, not resolved; faults are ignored."""
    return list(references_of(Scanner(spelling).parts(text)))


def parse(value: Any, namespaces: Namespaces) -> Template:
    """Return the tree of a JSON value whose strings may contain placeholders.

    Raises ManifestError for the first bad placeholder: not closed, empty, in a key, unknown (the nearest name
    is in the hint) or ambiguous. `details` holds `path`, `offset` and `length`.
    """
    parser = _Parser(namespaces)
    tree = parser.value(value, ())
    parser.refuse()
    return tree


def parse_text(text: str, namespaces: Namespaces) -> TextTemplate:
    """Return the tree of one string, as `parse` does; a condition in it is a ManifestError too."""
    tree = parse_conditional(text, namespaces)
    if isinstance(tree, ConditionalText):
        offset = next(part.offset for part in tree.parts if isinstance(part, ConditionNode))
        raise TemplateProblem("a condition is not allowed here", (), offset, 2).error()
    return tree


def parse_conditional(value: str | Choice, namespaces: Namespaces) -> Text:
    """Return the tree of one string or of a choice between strings, as `parse` does, with its conditions."""
    parser = _Parser(namespaces)
    if isinstance(value, Choice):
        tree: Text = ConditionalText((parser.choice(value, (), text=True),))
    else:
        tree = parser.text(value, ())
    parser.refuse()
    return tree


def problems(value: Any, namespaces: Namespaces) -> list[TemplateProblem]:
    """Return everything that `parse` would refuse, in order of place."""
    parser = _Parser(namespaces)
    parser.value(value, ())
    return parser.found


class _Parser:
    """Makes the tree of one value; `path` is the place of a part in the whole."""

    def __init__(self, names: Namespaces) -> None:
        self._names = names
        self.found: list[TemplateProblem] = []

    def refuse(self) -> None:
        """Raise ManifestError for the first problem, if there is any."""
        if self.found:
            raise self.found[0].error()

    def value(self, value: Any, path: tuple[str | int, ...]) -> Template:
        if isinstance(value, str):
            text = self.text(value, path)
            literal = text.literal
            return text if literal is None else Constant(literal)
        if isinstance(value, Choice):
            return self.choice(value, path)
        if isinstance(value, Mapping):
            items: list[tuple[str, Template]] = []
            for key, item in value.items():
                name = str(key)
                plain = self._key(name, path)
                items.append((plain, self.value(item, (*path, name))))
            # Folded once, so that a call does not walk through it again.
            if all(isinstance(item, Constant) for _, item in items):
                return Constant({key: item.value for key, item in items if isinstance(item, Constant)})
            return ObjectTemplate(tuple(items))
        if isinstance(value, list | tuple):
            entries = [self.value(item, (*path, at)) for at, item in enumerate(value)]
            if all(isinstance(item, Constant) for item in entries):
                return Constant([item.value for item in entries if isinstance(item, Constant)])
            return ListTemplate(tuple(entries))
        return Constant(value)

    def text(self, text: str, path: tuple[str | int, ...]) -> Text:
        scanner = Scanner(self._names.spelling, self._resolve)
        parts = scanner.parts(text)
        self._note(scanner.found, path)
        return text_of(parts)

    def choice(self, choice: Choice, path: tuple[str | int, ...], *, text: bool = False) -> ConditionNode:
        """A choice between values; `text`: each is a text, as is a number or a truth value."""
        branches: list[Branch] = []
        for test, value in choice.branches:
            scanner = Scanner(self._names.spelling, self._resolve)
            reference = None if test is None else scanner.test(test)
            self._note(scanner.found, path)
            then: Template | None = None
            if isinstance(value, Choice):
                then = self.choice(value, path, text=text)
            elif text and isinstance(value, dict | list | tuple):
                message = "a condition gives a text, a number or a truth value here"
                self.found.append(TemplateProblem(message, path))
            elif text and value is not None and value is not ABSENT:
                then = self.text(literal_text(value), path)
            elif not text and value is not ABSENT:
                then = self.value(value, path)
            branches.append(Branch(reference, then))
        return ConditionNode(tuple(branches))

    def _key(self, name: str, path: tuple[str | int, ...]) -> str:
        spelling = self._names.spelling
        if "${" not in name and (spelling is Spelling.DOLLAR_BRACE or "{{" not in name):
            return name
        scanner = Scanner(spelling)
        parts = scanner.parts(name)
        for part in parts:
            if not isinstance(part, LiteralText):
                what = "a condition"
                if isinstance(part, Reference):
                    what = f"`{name[part.offset : part.offset + part.length]}`"
                # A key is structure: a value in it could add any field.
                message = f"{what} is in a key; placeholders are allowed in values only"
                problem = TemplateProblem(message, (), part.offset, len(name) - part.offset)
                scanner.found.append(problem)
        self.found += (replace(problem, path=(*path, name)) for problem in scanner.found)
        return "".join(part.text for part in parts if isinstance(part, LiteralText))

    def _note(self, found: list[TemplateProblem], path: tuple[str | int, ...]) -> None:
        for problem in sorted(found, key=lambda problem: problem.offset):
            self.found.append(replace(problem, path=path))

    def _resolve(self, reference: Reference) -> Reference | TemplateProblem:
        return _resolve(reference, self._names)


def _resolve(reference: Reference, names: Namespaces) -> Reference | TemplateProblem:
    """Return the reference with its namespace, or the problem: an unknown or an ambiguous name."""
    if reference.namespace == "secret":
        if reference.name in names.secrets:
            return reference
        return _unknown(reference, names.secrets, f"`{reference.name}` is not a declared secret")
    name, path = _split(reference.name, names.arguments)
    if reference.namespace == "argument":
        if name in names.arguments:
            return replace(reference, name=name, path=path)
        return _unknown(reference, names.arguments, f"`{name}` is not a parameter of the tool")
    if name in names.arguments:
        # An argument must never take the place of a secret, nor the other way round.
        if name in names.secrets or name in names.env:
            other, hint = "an environment name", "rename the argument"
            if name in names.secrets:
                other, hint = "a secret", f"{hint}, or write `${{secret:{name}}}`"
            message = f"`{name}` is ambiguous: it is an argument and also {other}"
            return TemplateProblem(message, (), reference.offset, reference.length, hint)
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
    # A property named `a.b` comes before a path into `a`.
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


def _unknown(reference: Reference, known: Iterable[str], message: str) -> TemplateProblem:
    otherwise = "declare it in inputs.schema or under permissions.secrets"
    hint = did_you_mean(reference.name, sorted(known), otherwise)
    return TemplateProblem(message, (), reference.offset, reference.length, hint)


def _properties(schema: Any, root: Mapping[str, Any], seen: set[int]) -> Iterator[str]:
    """Property names an object of this schema may have, through local references and combinations."""
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return
    # A schema may refer to itself.
    seen.add(id(schema))
    named = schema.get("properties")
    if isinstance(named, Mapping):
        yield from (str(name) for name in named)
    # Any of these may apply to a call, so the properties of all of them are arguments.
    branches = [schema.get(keyword) for keyword in _BRANCHES]
    for keyword in _APPLICATORS:
        combined = schema.get(keyword)
        if isinstance(combined, list):
            branches.extend(combined)
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith("#/"):
        branches.append(pointed(root, target))
    for branch in branches:
        yield from _properties(branch, root, seen)


STEPS_NAME = "steps"
"""`${steps.ID.value}` is the result of a step; `status` and `error.code` in its place say how it ended."""
LOOP_NAMES = ("item", "index")
"""The item of a `foreach`, and its place from 0."""


def step_namespaces(tool: Tool, *, loop: bool = False) -> Namespaces:
    """Return the names for the templates of a step; with `loop` also those inside a `foreach`.

    A composite tool has no secrets: each step's tool has its own.
    """
    own = Namespaces.of(tool).arguments
    return Namespaces(arguments=own | {STEPS_NAME, *(LOOP_NAMES if loop else ())})


def steps_used(value: Any, names: Namespaces) -> Iterator[str]:
    """Yield the ids of the steps whose results a template needs; empty for `${steps}` itself."""
    for reference in references_in(parse(value, names)):
        if reference.namespace == "argument" and reference.name == STEPS_NAME:
            yield str(reference.path[0]) if reference.path else ""
