"""The schemas of one document for one direction, each translated once and shared by all operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.errors import DefinitionError
from toolcrib.manifest.openapi.document import Node, OpenApiDocument, RefProblem, unique
from toolcrib.manifest.openapi.translation import Direction, Schema, Translator
from toolcrib.schema import SchemaCheck, walk
from toolcrib.spec.record import record

REF = "#/$defs/"


def references(schema: Any) -> dict[str, None]:
    """Return the names of the definitions that a schema refers to directly."""
    return {rule["$ref"].removeprefix(REF): None for _, rule in walk.schemas(schema) if "$ref" in rule}


class Schemas:
    """Translates schemas on demand. `use` returns a schema, `closure` all definitions that it needs."""

    def __init__(self, document: OpenApiDocument, direction: Direction, losses: dict[str, str]) -> None:
        self._document = document
        self._translator = Translator(
            self._refer, document.follow, self._report_loss, direction, legacy=document.legacy
        )
        self._losses = losses
        self._names: dict[tuple[str, str], str] = {}
        self._referred: dict[tuple[str, str], str] = {}
        self._nodes: dict[str, Node] = {}
        self._defs: dict[str, Schema | bool] = {}
        self._needs: dict[str, set[str]] = {}
        self._steps: dict[str, list[SchemaStep]] = {}
        self._closures: dict[str, frozenset[str]] = {}
        self._order: dict[str, int] = {}
        self._needed: set[str] = set()
        self._taken: list[SchemaStep] = []

    def use(self, node: Node) -> tuple[Schema | bool, set[str]]:
        """Return the schema of a node, and the names of the definitions that it refers to directly."""
        self._needed, self._taken = set(), []
        schema = self._translator.schema(node)
        return schema, self._needed

    def definition(self, name: str) -> Schema | bool:
        """Return one definition. It is shared, so callers must not change it."""
        self.closure([name])
        return self._defs[name]

    def needs(self, name: str) -> set[str]:
        """Return the names of the definitions that a definition refers to directly."""
        self.closure([name])
        return self._needs[name]

    def closure(self, names: Iterable[str]) -> dict[str, Schema | bool]:
        """Return these definitions and all that they refer to, in the order of their first use."""
        found: set[str] = set()
        # A definition gets its place when it is first read, and a set has another order in each process.
        # Sorted, the same document always gives the same manifest.
        for name in sorted(names, key=self._order.__getitem__):
            if name not in self._closures:
                self._translate(name)
                self._closures[name] = self._reach(name)
            found |= self._closures[name]
        return {name: self._defs[name] for name in sorted(found, key=self._order.__getitem__)}

    def check(self) -> None:
        """Check the definitions against the meta schema; replace invalid ones by `{}`, and report them."""
        for name, schema in self._defs.items():
            try:
                # All others count as valid here, so a fault is only reported where it is.
                SchemaCheck({"$defs": dict.fromkeys(references(schema), True), "allOf": [schema]})
            except DefinitionError as error:
                self._report_loss(self._nodes[name], f"a schema that is not valid ({error.message})")
                assert isinstance(schema, dict)
                schema.clear()  # Not a new one: tools that were made before share it.

    def _refer(self, ref: str, base: Node, in_place: str | None) -> Schema:
        """Return the reference to a definition, which gets a name but is not translated yet."""
        name = self._referred.get((base.resource.uri, ref))
        if name is None:
            try:
                name = self._name(self._target(ref, base))
            except RefProblem as problem:
                self._report_loss(base, f"a reference: {problem}")
                return {}
            # What `#` means depends on the schema around it, so it is found again each time.
            if ref != "#":
                self._referred[base.resource.uri, ref] = name
        self._needed.add(name)
        place = {"$ref": f"{REF}{name}"}
        if in_place is not None:
            self._taken.append(SchemaStep(place, in_place, name))
        return place

    def _report_loss(self, node: Node, what: str) -> None:
        """Record what is not in the result, once for each position."""
        self._losses.setdefault(f"{node.resource.uri}#{node.pointer}", what)

    def _target(self, ref: str, base: Node) -> Node:
        if ref == "#" and base.pointer:
            return self._enclosing(base)
        return self._document.resolve(ref, base.resource)

    def _enclosing(self, base: Node) -> Node:
        """Return the target of `#` in a schema that is part of a document: the schema around it.

        That is the nearest one with `$recursiveAnchor`, `$dynamicAnchor` or `$id`, or the component.
        """
        steps = base.pointer.split("/")
        # The component is at `/components/schemas/NAME`, in 2.0 at `/definitions/NAME`.
        component = {"components": 4, "definitions": 3}.get(steps[1], len(steps) + 1)
        for length in range(len(steps), 2, -1):
            node = self._document.resolve(f"#{'/'.join(steps[:length])}", base.resource)
            if length == component or node.object.keys() & {"$recursiveAnchor", "$dynamicAnchor", "$id"}:
                return node
        raise RefProblem("'#' is the whole document, which is not a schema")

    def _name(self, target: Node) -> str:
        identity = (target.resource.uri, target.pointer)
        name = self._names.get(identity)
        if name is None:
            last = target.pointer.rsplit("/", 1)[-1].replace("~1", "/").replace("~0", "~")
            if not last:
                last = target.resource.uri.rsplit("/", 1)[-1].partition(".")[0]
            plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", last).strip("_") or "schema"
            name = unique(plain[:64], self._nodes)
            self._names[identity] = name
            self._nodes[name] = target
            self._order[name] = len(self._order)
        return name

    def _translate(self, name: str) -> None:
        """Translate a definition and all that it refers to; then cut its circles."""
        # A definition is translated in the middle of another schema, whose own references must not be mixed
        # with it.
        outer = self._needed, self._taken
        fresh: list[str] = []
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current in self._defs:
                continue
            self._needed, self._taken = set(), []
            self._defs[current] = self._translator.schema(self._nodes[current], 0, "$ref")
            self._needs[current], self._steps[current] = self._needed, self._taken
            fresh.append(current)
            waiting += sorted(self._needed, key=self._order.__getitem__)
        for lost in cut(fresh, self._steps, self._defs):
            self._report_loss(
                self._nodes[lost], "a schema that refers to itself in a circle: it accepts anything there"
            )
        self._needed, self._taken = outer

    def _reach(self, name: str) -> frozenset[str]:
        found = {name}
        waiting = [name]
        while waiting:
            for other in self._needs[waiting.pop()]:
                if other in found:
                    continue
                known = self._closures.get(other)
                if known is not None:
                    found |= known
                else:
                    found.add(other)
                    waiting.append(other)
        return frozenset(found)


_AGAIN = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")


@record
class SchemaStep:
    """A reference whose target checks the same value: the object it is in, the keyword, and the target."""

    place: dict[str, Any]
    word: str
    target: str


def cut(names: Iterable[str], steps: Mapping[str, list[SchemaStep]], schemas: Mapping[str, Any]) -> list[str]:
    """Cut every circle of schemas that check the same value by themselves again, which has no end.

    `Pet` is one of `Cat` and `Dog`, and `Cat` is all of `Pet` and more: usual in documents. The `allOf` gets
    the own rules of `Pet`, without its alternatives; any other circle accepts anything. Returns the names of
    the schemas that lost a rule by that.
    """
    names = [name for name in names if steps.get(name)]
    circled = _circled(names, steps)
    own = {
        name: {key: value for key, value in schemas[name].items() if key not in _AGAIN}
        for name in circled
        if isinstance(schemas.get(name), dict)
    }
    lost: list[str] = []
    # First the circles through `allOf`, which keep the own rules of the target; what is left accepts
    # anything.
    for word_is_all in (True, False):
        for name in names:
            for step in list(steps[name]):
                if name not in circled or circled.get(step.target) != circled[name]:
                    continue
                if (step.word == "allOf") is word_is_all:
                    step.place.clear()
                    step.place.update(own.get(step.target, {}) if word_is_all else {})
                    steps[name].remove(step)
                    if not word_is_all:
                        lost.append(name)
        circled = _circled(names, steps)
    return lost


def _circled(names: Iterable[str], steps: Mapping[str, list[SchemaStep]]) -> dict[str, str]:
    """Return for each name in a circle a name of that circle: those that it reaches and that reach it."""
    ahead = {name: {step.target for step in steps[name]} for name in names}
    behind: dict[str, set[str]] = {}
    for name, targets in ahead.items():
        for target in targets:
            behind.setdefault(target, set()).add(name)
    found: dict[str, str] = {}
    for name in ahead:
        if name not in found:
            # Two names are in one circle if each reaches the other.
            found |= dict.fromkeys(_reached(name, ahead) & _reached(name, behind), name)
    return found


def _reached(name: str, edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        fresh = edges.get(waiting.pop(), set()) - found
        found |= fresh
        waiting += fresh
    return found


_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})
_NO_RULE = frozenset(
    {"type", "properties", "required", "title", "description", "examples", "deprecated", "$comment", "format"}
)
_MAX_FIELDS = 300
_MAX_DEPTH = 10


@dataclass(slots=True)
class ObjectFields:
    """The fields of an object; each can be an argument of its own."""

    properties: dict[str, Schema | bool] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    needs: set[str] = field(default_factory=set)


def fields_of(schema: Schema | bool, needs: set[str], schemas: Schemas) -> ObjectFields | None:
    """Return the fields of a schema that has only fields, also by references and `allOf`; else None."""
    out = ObjectFields(needs=set(needs))
    if not _collect(schema, schemas, out, 0) or not 0 < len(out.properties) <= _MAX_FIELDS:
        return None
    out.required = [name for name in dict.fromkeys(out.required) if name in out.properties]
    return out


def _collect(schema: Schema | bool, schemas: Schemas, out: ObjectFields, depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return False
    name = _named(schema)
    if name is not None:
        out.needs.discard(name)
        out.needs |= schemas.needs(name)
        rest = schema.keys() - {"$ref"} <= _NO_RULE - {"properties", "required"}
        return rest and _collect(schemas.definition(name), schemas, out, depth + 1)
    # This rule is not lost: the arguments of a tool are always a closed object.
    if schema.get("additionalProperties") is False:
        schema = {key: value for key, value in schema.items() if key != "additionalProperties"}
    if schema.get("type", "object") != "object" or not schema.keys() <= _NO_RULE | {"allOf"}:
        return False
    for part in schema.get("allOf", ()):
        if not _collect(part, schemas, out, depth + 1):
            return False
    for key, rule in schema.get("properties", {}).items():
        both = key in out.properties and out.properties[key] != rule
        out.properties[key] = {"allOf": [out.properties[key], rule]} if both else rule
    out.required += schema.get("required", ())
    return "allOf" in schema or "properties" in schema


def is_scalar(schema: Schema | bool, schemas: Schemas, depth: int = 0) -> bool:
    """Return True if no list and no object can match."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return False
    kinds = schema.get("type")
    if kinds is not None:
        return _SCALARS.issuperset(kinds if isinstance(kinds, list) else [kinds])
    if "enum" in schema:
        return not any(isinstance(item, dict | list) for item in schema["enum"])
    name = _named(schema)
    if name is not None and is_scalar(schemas.definition(name), schemas, depth + 1):
        return True
    if any(is_scalar(part, schemas, depth + 1) for part in schema.get("allOf", ())):
        return True
    either = list(_alternatives(schema))
    return bool(either) and all(is_scalar(part, schemas, depth + 1) for part in either)


def described_fields(schema: Schema | bool, schemas: Schemas, depth: int = 0) -> dict[str, Schema | bool]:
    """Return every property that a schema describes, in any of its parts and alternatives."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    found: dict[str, Schema | bool] = dict(schema.get("properties", {}))
    name = _named(schema)
    parts = [*schema.get("allOf", ()), *_alternatives(schema)]
    for part in parts if name is None else [*parts, schemas.definition(name)]:
        found = described_fields(part, schemas, depth + 1) | found
    return found


def is_file(schema: Schema | bool, schemas: Schemas) -> bool:
    """Return True if the values are bytes, not a text encoding of bytes."""
    return all(map(_is_bytes, _choices(schema, schemas)))


def is_files(schema: Schema | bool, schemas: Schemas) -> bool:
    """Return True if the values are lists of files, or each is a file or a list of files."""
    any_list = False
    for one in _choices(schema, schemas):
        if is_file(one.get("items", False), schemas):
            any_list = True
        elif not _is_bytes(one):
            return False
    return any_list


def _choices(schema: Schema | bool, schemas: Schemas, depth: int = 0) -> Iterator[Schema]:
    """Yield what a value may be, apart from null: the targets of references, and each alternative."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        yield {"not": {}}
        return
    name = _named(schema)
    either = [part for part in _alternatives(schema) if part != {"type": "null"}]
    parts = either if name is None else [schemas.definition(name)]
    for part in parts:
        yield from _choices(part, schemas, depth + 1)
    if not parts:
        yield schema


def _is_bytes(schema: Schema) -> bool:
    if schema.get("type", "string") not in ("string", ["string", "null"]):
        return False
    if schema.get("format") == "binary" or schema.get("contentEncoding") == "binary":
        return True
    # Since 3.1 a media type without an encoding means raw bytes (OpenAPI 3.1, Working with Binary Data).
    return "contentMediaType" in schema and "contentEncoding" not in schema and "contentSchema" not in schema


def _named(schema: Schema) -> str | None:
    ref = schema.get("$ref")
    return ref.removeprefix(REF) if isinstance(ref, str) else None


def _alternatives(schema: Schema) -> Iterator[Any]:
    for word in ("anyOf", "oneOf"):
        yield from schema.get(word, ())
