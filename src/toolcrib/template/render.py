"""Renders a template by its position. One pass; a value never becomes structure.

| position | absent optional value | a value cannot |
|---|---|---|
| JSON value | alone: its key or item is dropped; inside text: invalid_input | add keys |
| URL path segment | invalid_input | leave its segment |
| query value | entry dropped | add entries |
| header | entry dropped | add headers (no control characters) |
| argv element | alone: element dropped; inside text: invalid_input | add elements, be an option |
| environment variable | dropped | contain NUL |
| file path | invalid_input | alone: contain NUL; inside text: leave its component |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any
from urllib.parse import quote, unquote

from toolcrib.errors import InvalidInput
from toolcrib.spec import ParameterStyle
from toolcrib.template.tree import (
    ConditionalText,
    ConditionNode,
    Constant,
    ListTemplate,
    LiteralText,
    Reference,
    Template,
    Text,
    TextTemplate,
)
from toolcrib.template.values import MISSING, Missing, Values, bad_value

Styles = Mapping[str, ParameterStyle]
"""The style in which a list or an object is written, by argument."""

_NO_STYLES: Styles = {}
_ABSENT = "it is needed here and was not given"
_EXACT = 2.0**53
_LONGEST_DOTS = len("%2e%2e")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]*")


def render_value(template: Template, values: Values) -> Any:
    """The JSON value, or MISSING when the whole template is one absent value.

    A lone reference keeps its type; inside text a value is written as text. Absent values drop their key or
    item. Whole numbers come out as integers, so that they are never written in exponent form.
    """
    if isinstance(template, Constant):
        return template.value
    if isinstance(template, ConditionNode):
        chosen = _chosen(template, values)
        return MISSING if chosen is None else render_value(chosen, values)
    if isinstance(template, ConditionalText):
        return render_text(template, values)
    if isinstance(template, TextTemplate):
        lone = template.lone
        return _plain(lone, values.get(lone)) if lone is not None else render_text(template, values)
    if isinstance(template, ListTemplate):
        items = (render_value(item, values) for item in template.items)
        return [item for item in items if item is not MISSING]
    pairs = ((key, render_value(item, values)) for key, item in template.items)
    return {key: item for key, item in pairs if item is not MISSING}


def _chosen(condition: ConditionNode, values: Values) -> Template | None:
    """The template of the first branch whose test is true."""
    branches = condition.branches
    branch = next((b for b in branches if b.test is None or values.is_true(b.test)), None)
    return None if branch is None else branch.then


def settled(template: Text, values: Values) -> TextTemplate | Missing:
    """Return the text for these values, all conditions decided; MISSING if a condition has no true branch."""
    if isinstance(template, TextTemplate):
        return template
    parts: list[LiteralText | Reference] = []
    for part in template.parts:
        if not isinstance(part, ConditionNode):
            parts.append(part)
            continue
        then = _chosen(part, values)
        if isinstance(then, ConditionNode):
            then = ConditionalText((then,))
        if not isinstance(then, TextTemplate | ConditionalText):
            return MISSING
        inner = settled(then, values)
        if inner is MISSING:
            return MISSING
        parts.extend(inner.parts)
    return TextTemplate(tuple(parts))


def render_text(template: Text, values: Values) -> str | Missing:
    """Plain text; MISSING for a template that is one absent value, invalid_input when a part is absent."""
    if isinstance(template, ConditionalText):
        chosen = settled(template, values)
        return MISSING if chosen is MISSING else "".join(_needed(part, values) for part in chosen.parts)
    if (lone := template.lone) is not None:
        return values.text(lone)
    return "".join(_needed(part, values) for part in template.parts)


def render_path_segment(template: TextTemplate, values: Values, styles: Styles = _NO_STYLES) -> str:
    """One segment of a URL path: literals as they are (already encoded), values percent-encoded whole.

    An argument that `styles` names may be a list or an object. An absent value, and a segment that would come
    out empty, `.` or `..`, is invalid_input.
    """
    out: list[str] = []
    last: Reference | None = None
    for part in template.parts:
        if isinstance(part, LiteralText):
            out.append(part.text)
        else:
            last = part
            style = styles.get(part.name) if styles and part.namespace == "argument" else None
            if style is None:
                out.append(_encoded(_needed(part, values)))
                continue
            value = values.get(part)
            if value is MISSING or value is None:
                raise bad_value(part, _ABSENT)
            from toolcrib.template.styles import styled_path

            out.append(styled_path(style, part, value))
    segment = "".join(out)
    # Servers decode a segment before they resolve dots, so `%2e%2e` counts as `..`.
    if last is not None and len(segment) <= _LONGEST_DOTS and unquote(segment) in ("", ".", ".."):
        raise bad_value(last, "a segment of a URL path can be neither empty nor `.` nor `..`")
    return segment


def render_query_value(template: Text, values: Values) -> str | None:
    """One value of a query, values percent-encoded whole, literals as they are; None drops the entry."""
    return render_parts(template, values, lambda _, text: _encoded(text))


def render_header(template: Text, values: Values, styles: Styles = _NO_STYLES) -> str | None:
    """One header's value; None drops the header. Control characters are invalid_input (RFC 9110, 5.5)."""
    chosen = settled(template, values)
    if chosen is MISSING:
        return None
    lone = chosen.lone if styles else None
    if lone is not None and lone.namespace == "argument" and lone.name in styles:
        value = values.get(lone)
        if value is MISSING or value is None:
            return None
        from toolcrib.template.styles import styled_header

        written = styled_header(styles[lone.name], lone, value)
        return None if written is None else _without_controls(lone, written)
    return render_parts(chosen, values, _without_controls)


def render_parts(template: Text, values: Values, write: Callable[[Reference, str], str]) -> str | None:
    """Literals as they are, each value's text as `write` gives it; None when a value is absent."""
    chosen = settled(template, values)
    if chosen is MISSING:
        return None
    out: list[str] = []
    for part in chosen.parts:
        if isinstance(part, LiteralText):
            out.append(part.text)
            continue
        text = values.text(part)
        if text is MISSING:
            return None
        out.append(write(part, text))
    return "".join(out)


def render_argv(elements: Sequence[Text], values: Values) -> list[str]:
    """The arguments of a program: each template gives one element, or none when it is one absent value.

    An element that begins with a placeholder and comes out with a leading `-` is invalid_input unless it
    stands after a literal `--`: a value must never become an option.
    """
    out: list[str] = []
    ended = False
    for written in elements:
        element = settled(written, values)
        text = MISSING if element is MISSING else render_text(element, values)
        if element is MISSING or text is MISSING:
            continue
        first = element.parts[0] if element.parts else None
        for part in element.parts:
            if isinstance(part, Reference) and "\0" in str(values.get(part)):
                raise bad_value(part, "an argument of a program cannot contain NUL")
        # Only after a literal `--`: a value that is `--` by chance ends nothing.
        if isinstance(first, Reference) and text.startswith("-") and not ended:
            raise bad_value(first, "it begins with `-` and would be read as an option")
        ended = ended or (text == "--" and element.literal == "--")
        out.append(text)
    return out


def render_env(template: Text, values: Values) -> str | None:
    """The value of an environment variable; None when a value in it is absent. NUL is invalid_input."""
    return render_parts(template, values, _without_nul)


def render_path(written: Text, values: Values) -> str:
    """A file path. A lone value may be any path (the grants confine it); inside text it is one component.

    Absent and empty values, NUL, and inside text a `/` or a component that comes out `.` or `..`, are
    invalid_input.
    """
    template = settled(written, values)
    if template is MISSING:
        raise InvalidInput("no branch of the condition gives a path")
    if (text := template.literal) is not None:
        return text
    alone = template.lone is not None
    components: list[str] = []
    # Split at the author's own `/` only, so the components are known before any value is read.
    for component in template.split("/"):
        text = "".join(_name(part, values, alone=alone) for part in component.parts)
        if not alone and component.references and text in (".", ".."):
            raise bad_value(component.references[-1], f"a name in a path cannot be `{text}`")
        components.append(text)
    return "/".join(components)


def _name(part: LiteralText | Reference, values: Values, *, alone: bool) -> str:
    if isinstance(part, LiteralText):
        return part.text
    text = _needed(part, values)
    if not text:
        raise bad_value(part, "a path cannot be empty")
    if "\0" in text:
        raise bad_value(part, "a path cannot contain NUL")
    # The author has chosen the folder: with `/` a value could choose another one below it.
    if not alone and "/" in text:
        raise bad_value(part, "inside a longer path it can be one name only, without `/`")
    return text


def _encoded(text: str) -> str:
    """Percent-encoded but for the unreserved characters of RFC 3986."""
    return text if _UNRESERVED.fullmatch(text) else quote(text, safe="")


def _without_controls(part: Reference, text: str) -> str:
    # A line break would end this header, and the rest of the value would be a header of its own.
    if not text.isprintable() and any((char < " " and char != "\t") or char == "\x7f" for char in text):
        raise bad_value(part, "a header cannot contain line breaks or other control characters")
    return text


def _without_nul(part: Reference, text: str) -> str:
    if "\0" in text:
        raise bad_value(part, "an environment variable cannot contain NUL")
    return text


def _needed(part: LiteralText | Reference, values: Values) -> str:
    if isinstance(part, LiteralText):
        return part.text
    text = values.text(part)
    if text is MISSING:
        raise bad_value(part, _ABSENT)
    return text


def _plain(reference: Reference, value: Any) -> Any:
    """The value with whole floats beyond 2**53 as integers: JSON writers give those an exponent."""
    if isinstance(value, float):
        if not isfinite(value):
            raise bad_value(reference, "it is not a finite number")
        # Below 2**53 no writer of JSON gives a whole float an exponent.
        return int(value) if abs(value) >= _EXACT and value.is_integer() else value
    if isinstance(value, dict):
        return {key: _plain(reference, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(reference, item) for item in value]
    return value
