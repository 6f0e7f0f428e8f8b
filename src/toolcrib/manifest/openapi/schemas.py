"""The schemas of one document for one direction, each translated once and shared by all operations."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolcrib.errors import DefinitionError
from toolcrib.manifest.openapi.circles import Step, cut
from toolcrib.manifest.openapi.document import Document, Node, RefProblem
from toolcrib.manifest.openapi.text import unique
from toolcrib.manifest.openapi.translation import Direction, Schema, Translator

__all__ = ["Schemas"]


class Schemas:
    """Translates on demand. `use` gives a schema, `closure` the definitions that schemas so far refer to."""

    def __init__(self, document: Document, direction: Direction, losses: dict[str, str]) -> None:
        self._document = document
        self._translator = Translator(self, direction, legacy=document.legacy)
        self._losses = losses
        self._names: dict[tuple[str, str], str] = {}
        self._nodes: dict[str, Node] = {}
        self._defs: dict[str, Schema | bool] = {}
        self._needs: dict[str, set[str]] = {}
        self._steps: dict[str, list[Step]] = {}
        self._closures: dict[str, frozenset[str]] = {}
        self._order: dict[str, int] = {}
        self._needed: set[str] = set()
        self._taken: list[Step] = []

    def use(self, node: Node) -> tuple[Schema | bool, set[str]]:
        """The schema at a node, and the names of the definitions it refers to itself."""
        self._needed, self._taken = set(), []
        schema = self._translator.schema(node)
        return schema, self._needed

    def definition(self, name: str) -> Schema | bool:
        """One definition; it is shared, so it must not be changed."""
        self.closure([name])
        return self._defs[name]

    def needs(self, name: str) -> set[str]:
        """What a definition refers to itself."""
        self.closure([name])
        return self._needs[name]

    def closure(self, names: Iterable[str]) -> dict[str, Schema | bool]:
        """All that these definitions refer to, themselves included, in the order they were first met."""
        found: set[str] = set()
        for name in names:
            if name not in self._closures:
                self._translate(name)
                self._closures[name] = self._reach(name)
            found |= self._closures[name]
        return {name: self._defs[name] for name in sorted(found, key=self._order.__getitem__)}

    def check(self) -> None:
        """Hold every definition to the meta schema; a bad one, which should not be, becomes `{}` and is told."""
        from toolcrib.schema import SchemaCheck

        def good(names: list[str]) -> bool:
            try:
                SchemaCheck(
                    {"$defs": self._defs, "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names] or [{}]}
                )
            except DefinitionError:
                return False
            return True

        names = list(self._defs)
        if good(names):
            return
        for name in names:
            try:
                SchemaCheck({"$defs": dict.fromkeys(names, True), "allOf": [self._defs[name]]})
            except DefinitionError as error:
                self.lose(self._nodes[name], f"a schema that is not valid ({error.message})")
                self._replace(name, {})

    def _replace(self, name: str, schema: Schema) -> None:
        old = self._defs[name]
        if isinstance(old, dict):
            old.clear()  # Shared by the tools that have it already.
            old.update(schema)
        else:
            self._defs[name] = schema

    # What the translator asks

    def refer(self, ref: str, base: Node, *, in_place: str | None) -> Schema:
        """The reference to a definition, which is named but not translated yet."""
        try:
            target = self._target(ref, base)
        except RefProblem as problem:
            self.lose(base, f"a reference: {problem}")
            return {}
        name = self._name(target)
        self._needed.add(name)
        place = {"$ref": f"#/$defs/{name}"}
        if in_place is not None:
            self._taken.append(Step(place, in_place, name))
        return place

    def follow(self, node: Node) -> Node:
        """What a node's `$ref` leads to in the end."""
        return self._document.follow(node)

    def lose(self, node: Node, what: str) -> None:
        """Note what is not in the result, once a place."""
        self._losses.setdefault(f"{node.resource.uri}#{node.pointer}", what)

    # Inside

    def _target(self, ref: str, base: Node) -> Node:
        if ref == "#" and base.pointer:
            return self._enclosing(base)
        return self._document.resolve(ref, base.resource)

    def _enclosing(self, base: Node) -> Node:
        """What `#` means in a schema that stands in a document: the schema that says it is a root.

        That is the nearest one around with `$recursiveAnchor`, `$dynamicAnchor` or `$id`, else the component.
        """
        steps = base.pointer.split("/")[1:]
        best: str | None = None
        for length in range(len(steps), 1, -1):
            pointer = "/" + "/".join(steps[:length])
            value = self._document.resolve(f"#{pointer}", base.resource).value
            if isinstance(value, dict) and value.keys() & {"$recursiveAnchor", "$dynamicAnchor", "$id"}:
                best = pointer
                break
        if best is None:
            depth = 3 if steps[0] == "components" else 2 if steps[0] == "definitions" else 0
            if not depth or len(steps) < depth:
                raise RefProblem("'#' is the whole document, which is no schema")
            best = "/" + "/".join(steps[:depth])
        return self._document.resolve(f"#{best}", base.resource)

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
        """Translate a definition and all it refers to, as far as that is not done; then cut its circles."""
        kept = self._needed, self._taken
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
            waiting += self._needed
        for lost in cut(fresh, self._steps, self._defs):
            self.lose(self._nodes[lost], "a schema that is itself: the circle is opened")
        self._needed, self._taken = kept

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
