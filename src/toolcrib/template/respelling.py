"""A template in the spelling `${name}`: the same placeholders, written as manifests have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.spec import Choice, Spelling
from toolcrib.template.parser import Namespaces, escape, parse_conditional
from toolcrib.template.spellings import default_text
from toolcrib.template.tree import ConditionNode, LiteralText, Reference, untied

_CONDITION = "a condition (`{{if …}}`) has no other spelling"


def respell(value: Any, names: Namespaces) -> Any:
    """Return a text, or data with texts in it, in the spelling `${name}`; its names mean the same.

    What is spelled so already is made plain: `${ secret:KEY }` is `${KEY}`.

    Raises ManifestError for a text that is not a template, and for what that spelling cannot write.
    """
    if isinstance(value, str):
        return _text(value, names)
    if isinstance(value, dict):
        return {key: respell(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(respell(item, names) for item in value)
    if isinstance(value, Choice):
        raise ManifestError(_CONDITION)
    return value


def _text(text: str, names: Namespaces) -> str:
    template = parse_conditional(text, names)
    written = spell(template.parts)
    # Read back: a default with `}` in it would end the placeholder.
    if untied(_parsed(written, replace(names, spelling=Spelling.DOLLAR_BRACE))) != untied(template):
        raise ManifestError(
            f"the text {text[:60]!r} would mean something else by the placeholders of the other format"
        )
    return written


def spell(parts: Sequence[LiteralText | Reference | ConditionNode]) -> str:
    """Return parts as one text. Raises ManifestError for a condition, which has no such spelling."""
    out: list[str] = []
    for at, part in enumerate(parts):
        if isinstance(part, ConditionNode):
            raise ManifestError(_CONDITION)
        if isinstance(part, Reference):
            out.append(_placeholder(part))
        else:
            follows = isinstance(parts[at + 1], Reference) if at + 1 < len(parts) else False
            out.append(escape(part.text, before_placeholder=follows))
    return "".join(out)


def _placeholder(reference: Reference) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in reference.path)
    default = reference.default
    filled = "" if default is None else f" | default:{default_text(default.value)}"
    return f"${{{reference.name}{''.join(steps)}{filled}}}"


def _parsed(text: str, names: Namespaces) -> Any:
    try:
        return parse_conditional(text, names)
    except ManifestError:
        return None
