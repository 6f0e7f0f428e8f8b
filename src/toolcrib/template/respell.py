"""A template in another spelling: the same placeholders, written as the other format has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.spec import Choice, Spelling
from toolcrib.template.parser import Namespaces, escape, parse_conditional
from toolcrib.template.spellings import default_text, is_tag
from toolcrib.template.tree import ConditionNode, LiteralText, Reference, untied

_TAG = "{{"
_CONDITION = "a condition (`{{if …}}`) has no other spelling"


def respell(value: Any, names: Namespaces, to: Spelling) -> Any:
    """Return a text, or data with texts in it, in the spelling `to`; its names mean the same.

    What is spelled so already is made plain: `${ secret:KEY }` is `${KEY}`.

    Raises ManifestError for a text that is not a template, and for what that spelling cannot write.
    """
    if isinstance(value, str):
        return _text(value, names, to)
    if isinstance(value, dict):
        return {key: respell(item, names, to) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(respell(item, names, to) for item in value)
    if isinstance(value, Choice):
        raise ManifestError(_CONDITION)
    return value


def _text(text: str, names: Namespaces, to: Spelling) -> str:
    template = parse_conditional(text, names)
    written = spell(template.parts, to)
    # Read back: text such as `{{` may become a placeholder in the other spelling.
    if untied(_parsed(written, replace(names, spelling=to))) != untied(template):
        raise ManifestError(
            f"the text {text[:60]!r} would mean something else by the placeholders of the other format",
            hint="`{{` is not allowed there as text" if _TAG in text else None,
        )
    return written


def spell(parts: Sequence[LiteralText | Reference | ConditionNode], spelling: Spelling) -> str:
    """Return parts as one text. Raises ManifestError for a condition, which no spelling but its own has."""
    out: list[str] = []
    for at, part in enumerate(parts):
        if isinstance(part, ConditionNode):
            raise ManifestError(_CONDITION)
        if isinstance(part, Reference):
            out.append(_placeholder(part, tag=spelling is Spelling.DOUBLE_BRACE and _as_tag(part, out[-1:])))
        else:
            follows = parts[at + 1] if at + 1 < len(parts) else None
            dollar = isinstance(follows, Reference) and (
                spelling is Spelling.DOLLAR_BRACE or not _as_tag(follows, [part.text])
            )
            out.append(escape(part.text, before_placeholder=dollar))
    return "".join(out)


def _as_tag(reference: Reference, before: list[str]) -> bool:
    """Return True if a reference can be written as `{{name}}` after this text."""
    # In `{{{name}}` the tag would begin one character too early.
    joined = any(text.endswith("{") for text in before)
    return reference.namespace == "argument" and not joined and is_tag(_name(reference))


def _placeholder(reference: Reference, *, tag: bool) -> str:
    default = reference.default
    inner = _name(reference) + ("" if default is None else f" | default:{default_text(default.value)}")
    return f"{{{{{inner}}}}}" if tag else f"${{{inner}}}"


def _name(reference: Reference) -> str:
    return reference.name + "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in reference.path
    )


def _parsed(text: str, names: Namespaces) -> Any:
    try:
        return parse_conditional(text, names)
    except ManifestError:
        return None
