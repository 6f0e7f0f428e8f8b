"""Docstrings of functions and classes: the description, and the texts of parameters or attributes."""

from __future__ import annotations

import inspect
from typing import NamedTuple


class Docs(NamedTuple):
    """A description, and the texts of parameters or attributes by name."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docs:
    """Parse a Google, NumPy or Sphinx docstring; sections on results and errors are left out."""
    if not text or not text.strip():
        return Docs("", {})
    text = inspect.cleandoc(text)
    if "\n" not in text:
        return Docs(text.strip(), {})
    import logging

    import griffe

    # griffe warns about each parameter without a type in the docstring; here types come from the signature.
    logging.getLogger("griffe").setLevel(logging.ERROR)
    texts: list[str] = []
    parameters: dict[str, str] = {}
    for section in griffe.parse_auto(griffe.Docstring(text)):
        if section.kind is griffe.DocstringSectionKind.text:
            texts.append(section.value.strip())
        elif section.kind in (
            griffe.DocstringSectionKind.parameters,
            griffe.DocstringSectionKind.other_parameters,
            griffe.DocstringSectionKind.attributes,
        ):
            parameters.update({item.name: item.description.strip() for item in section.value})
    return Docs("\n\n".join(texts), parameters)
