"""The value of an answer: extracted by dotted path, JSONPath (RFC 9535) or regex, then its fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from toolcrib.errors import HttpFailed, ManifestError
from toolcrib.manifest.yaml.diagnostics import quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.spec import FieldMap, HttpExec
from toolcrib.template import MISSING

if TYPE_CHECKING:
    from jsonpath import JSONPathEnvironment

_STEP = re.compile(r"[^.\[\]]+|\[\d{1,9}\]")
_MAX_NODES = 100_000
_MAX_DESCENTS = 2

_Step = str | int


def compile_response(config: HttpExec) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """Return extraction and projection. Raises ManifestError for the first of `response_faults`."""
    for _, message, hint in response_faults(config):
        raise ManifestError(message, hint=hint)
    given = ((getattr(config, way), compile_) for way, compile_ in _WAYS.items())
    extract = next((compile_(text) for text, compile_ in given if text is not None), None)
    return extract, compile_fields(config.fields) if config.fields else None


def response_faults(config: HttpExec) -> Iterator[tuple[KeyPath, str, str | None]]:
    """Yield place below `response`, message and hint of what cannot be applied to an answer."""
    given = [way for way in _WAYS if getattr(config, way) is not None]
    if len(given) > 1:
        message = f"`response` has {' and '.join(f'`{way}`' for way in given)}; only one can be used"
        yield (given[1],), message, "remove all but one"
    for way in given:
        try:
            _WAYS[way](getattr(config, way))
        except ManifestError as error:
            yield (way,), error.message, error.hint
    if config.regex is not None and config.fields:
        yield ("fields",), "a regex returns text, which has no fields", None
    names = set[str]()
    for number, field in enumerate(config.fields):
        if not field.name:
            yield ("fields", number, "name"), "a response field needs a name", None
        if field.name in names:
            yield ("fields", number, "name"), f"the field name {quoted(field.name)} is used twice", None
        names.add(field.name)
        try:
            _steps(field.path, f"path of the response field `{field.name}`")
        except ManifestError as error:
            yield ("fields", number, "path"), error.message, error.hint


def compile_json_path(path: str) -> Callable[[Any], Any]:
    """Compile a dotted path (`web.results`, `items[0].id`, `items.0.id`). Without a value: HttpFailed.

    Raises ManifestError for a malformed path.
    """
    steps = _steps(path, "json_path")

    def extract(body: Any) -> Any:
        value = body
        for at, step in enumerate(steps):
            if (following := _down(value, step)) is MISSING:
                raise _missing(path, steps[:at], value)
            value = following
        return value

    return extract


def compile_fields(fields: Sequence[FieldMap]) -> Callable[[Any], Any]:
    """Compile a projection of an object, of each item of a list, or of null. A missing field is null."""
    mapping = {field.name: _steps(field.path, "path") for field in fields}

    def one(item: Any) -> dict[str, Any]:
        return {name: _member(item, steps) for name, steps in mapping.items()}

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
    """Compile an RFC 9535 expression; `match` and `search` run in linear time (RE2).

    An expression that can select only one node returns its value (HttpFailed if there is none); any other
    returns the list of values. Raises ManifestError for an expression that is not RFC 9535 or descends
    (`..`) more than twice.
    """
    from jsonpath import JSONPathError

    # Each one visits the whole answer for each node found so far: the time grows by a power.
    if expression.count("..") > _MAX_DESCENTS:
        raise ManifestError(f"response.jsonpath may descend (`..`) at most {_MAX_DESCENTS} times")
    try:
        compiled = _environment().compile(expression)
    except (JSONPathError, RecursionError) as error:
        reason = str(error).partition("\n")[0]  # A drawing of the place follows.
        raise ManifestError(f"response.jsonpath is not RFC 9535: {reason}") from None
    singular = not hasattr(compiled, "paths") and compiled.singular_query()

    def extract(body: Any) -> Any:
        try:
            # One more than allowed, to see that there are too many without making them all.
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
    """Compile a regular expression (RE2) to group 1 of the first match, or the match. Without: HttpFailed.

    Raises ManifestError for a pattern that RE2 does not support (lookaround, backreferences).
    """
    compiled = _re2(pattern)
    if compiled is None:
        raise ManifestError(
            "response.regex is not an RE2 expression",
            hint="RE2 has no lookahead, lookbehind or backreferences",
        )

    def extract(text: str) -> str:
        match = compiled.search(text)
        found = None if match is None else match.group(1 if compiled.groups else 0)
        if found is None:
            raise HttpFailed("response.regex does not match the answer", details={"reason": "missing_path"})
        return str(found)

    return extract


_WAYS: dict[str, Callable[[str], Callable[[Any], Any]]] = {
    "json_path": compile_json_path,
    "jsonpath": compile_jsonpath,
    "regex": compile_regex,
}


@lru_cache(maxsize=256)
def _re2(pattern: str) -> Any:
    """Return the compiled pattern, or None if RE2 does not support it."""
    import re2  # google-re2 ships no types

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


@cache
def _environment() -> JSONPathEnvironment:
    """Return strict RFC 9535, with RE2 in the place of Python's backtracking expressions."""
    from jsonpath import JSONPathEnvironment
    from jsonpath.function_extensions import Match, Search

    def matches(value: object, pattern: object, method: str) -> bool:
        compiled = _re2(pattern) if isinstance(pattern, str) else None
        return compiled is not None and isinstance(value, str) and bool(getattr(compiled, method)(value))

    class LinearMatch(Match):
        def __call__(self, value: object, pattern: object) -> bool:
            return matches(value, pattern, "fullmatch")

    class LinearSearch(Search):
        def __call__(self, value: object, pattern: object) -> bool:
            return matches(value, pattern, "search")

    environment = JSONPathEnvironment(strict=True)
    # The expression may come from a manifest of somebody else, the text from any server: neither may take for
    # ever.
    environment.function_extensions.update(match=LinearMatch(), search=LinearSearch())
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


def _down(value: Any, step: _Step) -> Any:
    """Return the member of `value` that one step leads to; MISSING if there is none."""
    if isinstance(value, dict):
        return value.get(str(step), MISSING)
    if isinstance(value, list):
        number = step if isinstance(step, int) else int(step) if step.isascii() and step.isdigit() else -1
        return value[number] if 0 <= number < len(value) else MISSING
    return MISSING


def _member(item: Any, steps: tuple[_Step, ...]) -> Any:
    for step in steps:
        if (item := _down(item, step)) is MISSING:
            return None
    return item


def _missing(path: str, reached: tuple[_Step, ...], value: Any) -> HttpFailed:
    place = "`" + ".".join(str(step) for step in reached) + "`" if reached else "the answer"
    has = _noun(value)
    if isinstance(value, dict):
        keys = ", ".join(list(value)[:10]) or "no keys"
        has = f"an object with {keys}" if value else "an empty object"
    elif isinstance(value, list):
        has = f"a list of {len(value)}"
    message = f"the answer has nothing at json_path `{path}`: {place} is {has}"
    return HttpFailed(message, details={"reason": "missing_path", "jsonPath": path})


def _noun(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", int: "a number", float: "a number", str: "text"}.get(type(value), "not JSON")
