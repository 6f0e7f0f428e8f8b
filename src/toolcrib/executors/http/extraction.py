"""What is taken from an answer: one value by dotted path, JSONPath (RFC 9535) or regex, then fields of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from toolcrib.errors import HttpFailed, ManifestError
from toolcrib.spec import FieldMap

if TYPE_CHECKING:
    from jsonpath import JSONPathEnvironment

__all__ = ["compile_fields", "compile_json_path", "compile_jsonpath", "compile_regex"]

_STEP = re.compile(r"[^.\[\]]+|\[\d{1,9}\]")
_MAX_NODES = 100_000
_MAX_DESCENTS = 2

_Step = str | int


def compile_json_path(path: str) -> Callable[[Any], Any]:
    """A dotted path (`web.results`, `items[0].id`, `items.0.id`); HttpFailed where it leads nowhere.

    Raises ManifestError for a path that cannot be read.
    """
    steps = _steps(path, "json_path")

    def extract(body: Any) -> Any:
        value = body
        for at, step in enumerate(steps):
            found, value = _down(value, step)
            if not found:
                raise _missing(path, steps[:at], value)
        return value

    return extract


def compile_fields(fields: Sequence[FieldMap]) -> Callable[[Any], Any]:
    """A projection: one object to one object, a list item by item, null to null. A missing field is null.

    Raises ManifestError for an empty or repeated name and for a path that cannot be read.
    """
    mapping: dict[str, tuple[_Step, ...]] = {}
    for field in fields:
        if not field.name:
            raise ManifestError("a response field needs a name")
        if field.name in mapping:
            raise ManifestError(f"the response field `{field.name}` is there twice")
        mapping[field.name] = _steps(field.path, f"path of the response field `{field.name}`")

    def one(item: Any) -> dict[str, Any]:
        return {name: _reach(item, steps) for name, steps in mapping.items()}

    def project(body: Any) -> Any:
        if isinstance(body, list):
            return [one(item) for item in body]
        if isinstance(body, dict):
            return one(body)
        if body is None:
            return None
        message = f"response.fields needs an object or a list, and the answer is {_noun(body)}"
        raise HttpFailed(message, details={"reason": "unexpected_body"})

    return project


def compile_jsonpath(expression: str) -> Callable[[Any], Any]:
    """An RFC 9535 expression. One that can select only one node gives its value (HttpFailed when there is
    none); any other gives the list of values. `match` and `search` run in linear time (RE2).

    Raises ManifestError for an expression that cannot be read or descends (`..`) more than twice.
    """
    from jsonpath import JSONPathError

    if expression.count("..") > _MAX_DESCENTS:
        raise ManifestError(f"response.jsonpath may descend (`..`) at most {_MAX_DESCENTS} times")
    try:
        compiled = _environment().compile(expression)
    except (JSONPathError, RecursionError) as error:
        raise ManifestError(f"response.jsonpath cannot be read: {error}") from None
    singular = not hasattr(compiled, "paths") and compiled.singular_query()

    def extract(body: Any) -> Any:
        try:
            found = [match.obj for match in islice(compiled.finditer(body), _MAX_NODES + 1)]
        except (JSONPathError, RecursionError) as error:
            message = f"response.jsonpath failed on the answer: {error}"
            raise HttpFailed(message, details={"reason": "extraction"}) from None
        if len(found) > _MAX_NODES:
            message = f"response.jsonpath selects more than {_MAX_NODES} values"
            raise HttpFailed(message, details={"reason": "extraction"})
        if not singular:
            return found
        if not found:
            raise HttpFailed(f"the answer has nothing at `{expression}`", details={"reason": "missing_path"})
        return found[0]

    return extract


def compile_regex(pattern: str) -> Callable[[str], str]:
    """A regular expression (RE2): group 1 of the first match, else the whole match; HttpFailed without one.

    Raises ManifestError for a pattern that RE2 does not take (lookaround, backreferences).
    """
    compiled = _re2(pattern)
    if compiled is None:
        raise ManifestError(
            "response.regex cannot be read",
            hint="it is an RE2 expression: no lookahead, lookbehind or backreferences",
        )

    def extract(text: str) -> str:
        match = compiled.search(text)
        found = None if match is None else match.group(1 if compiled.groups else 0)
        if found is None:
            raise HttpFailed("response.regex does not match the answer", details={"reason": "missing_path"})
        return str(found)

    return extract


@lru_cache(maxsize=256)
def _re2(pattern: str) -> Any:
    """The compiled pattern, or None when RE2 does not take it."""
    import re2  # google-re2 ships no types

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


@cache
def _environment() -> JSONPathEnvironment:
    """Strict RFC 9535, with RE2 in the place of Python's backtracking expressions."""
    from jsonpath import JSONPathEnvironment
    from jsonpath.function_extensions import Match, Search

    class LinearMatch(Match):
        def __call__(self, value: object, pattern: object) -> bool:
            compiled = _re2(pattern) if isinstance(pattern, str) else None
            return compiled is not None and isinstance(value, str) and bool(compiled.fullmatch(value))

    class LinearSearch(Search):
        def __call__(self, value: object, pattern: object) -> bool:
            compiled = _re2(pattern) if isinstance(pattern, str) else None
            return compiled is not None and isinstance(value, str) and bool(compiled.search(value))

    environment = JSONPathEnvironment(strict=True)
    environment.function_extensions["match"] = LinearMatch()
    environment.function_extensions["search"] = LinearSearch()
    return environment


def _steps(path: str, what: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        if steps and path[at] == ".":
            at += 1
        match = _STEP.match(path, at)
        if match is None:
            break
        step = match.group()
        steps.append(int(step[1:-1]) if step.startswith("[") else step)
        at = match.end()
    if at < len(path) or not steps or path.endswith("."):
        raise ManifestError(f"the {what} `{path}` is not a dotted path such as `web.results`")
    if steps[0] == "$":
        raise ManifestError(f"the {what} `{path}` is JSONPath", hint="write it under response.jsonpath")
    return tuple(steps)


def _down(value: Any, step: _Step) -> tuple[bool, Any]:
    """Whether the step leads somewhere, and where; if not, the value itself."""
    if isinstance(value, dict):
        key = str(step)
        return (True, value[key]) if key in value else (False, value)
    if isinstance(value, list):
        number = step if isinstance(step, int) else int(step) if step.isascii() and step.isdigit() else -1
        return (True, value[number]) if 0 <= number < len(value) else (False, value)
    return False, value


def _reach(item: Any, steps: tuple[_Step, ...]) -> Any:
    value = item
    for step in steps:
        found, value = _down(value, step)
        if not found:
            return None
    return value


def _missing(path: str, reached: tuple[_Step, ...], value: Any) -> HttpFailed:
    place = "`" + ".".join(str(step) for step in reached) + "`" if reached else "the answer"
    has = _noun(value)
    if isinstance(value, dict):
        keys = ", ".join(list(value)[:10]) or "no keys"
        has = f"an object with {keys}" if value else "an empty object"
    elif isinstance(value, list):
        has = f"a list of {len(value)}"
    message = f"the answer has nothing at json_path `{path}`: {place} is {has}"
    return HttpFailed(message, details={"reason": "missing_path", "json_path": path})


def _noun(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", int: "a number", float: "a number", str: "text"}.get(type(value), "not JSON")
