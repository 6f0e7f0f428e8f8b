"""Circles in place: a schema that checks the very same value by itself again, without end.

`Pet` is one of `Cat` and `Dog`, and `Cat` is all of `Pet` and more: usual in documents, and without an end for
a validator. The `allOf` gets what `Pet` says itself, without its alternatives; any other circle is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Step", "cut"]

_AGAIN = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")


@dataclass(frozen=True, slots=True)
class Step:
    """A reference in place: where it stands, by which keyword, and what it leads to."""

    place: dict[str, Any]
    word: str
    target: str


def cut(names: Iterable[str], steps: Mapping[str, list[Step]], schemas: Mapping[str, Any]) -> list[str]:
    """Take every circle out of the steps and the schemas; returns the names that lost something by it."""
    names = [name for name in names if steps.get(name)]
    circled = _circled(names, steps)
    own = {
        name: {key: value for key, value in schemas[name].items() if key not in _AGAIN}
        for name in circled
        if isinstance(schemas.get(name), dict)
    }
    lost: list[str] = []
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


def _circled(names: Iterable[str], steps: Mapping[str, list[Step]]) -> dict[str, int]:
    """The names that stand in a circle, and which one (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: dict[str, int] = {}
    for start in names:
        if start in index:
            continue
        work = [(start, iter(steps.get(start, ())))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            name, rest = work[-1]
            step = next(rest, None)
            if step is not None:
                target = step.target
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(steps.get(target, ()))))
                elif target in on_stack:
                    low[name] = min(low[name], index[target])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[name])
            if low[name] == index[name]:
                members = [stack.pop()]
                while members[-1] != name:
                    members.append(stack.pop())
                on_stack.difference_update(members)
                if len(members) > 1 or any(step.target == name for step in steps.get(name, ())):
                    found.update(dict.fromkeys(members, index[name]))
    return found
