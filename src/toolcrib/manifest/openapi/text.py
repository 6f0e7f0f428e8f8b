"""Texts and names of a document as a tool can have them."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

__all__ = ["argument_name", "clean", "tag", "tool_name", "unique", "variable"]

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]"
)
_LONGEST = 64


def clean(value: Any) -> str:
    """A text for people and models: no control or hidden characters, line ends as `\\n`, no blanks around."""
    if not isinstance(value, str):
        return ""
    text: str = value
    if text.isascii() and text.isprintable():
        return text.strip()
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _UNSEEN.sub("", text)
    return text.encode(errors="ignore").decode().strip()


def tool_name(wished: str, prefix: str = "") -> str:
    """1 to 64 letters, digits, `_` and `-`, as every client takes them."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", wished).strip("_-") or "operation"
    return (prefix + plain)[:_LONGEST]


def argument_name(wished: str) -> str:
    """1 to 64 letters, digits, `_`, `.` and `-`, as every model provider takes them."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", wished).strip("_") or "value"
    return plain[:_LONGEST]


def variable(*words: str) -> str:
    """The name of an environment variable from some words."""
    plain = "_".join(re.sub(r"[^A-Za-z0-9]+", "_", word).strip("_") for word in words if word).upper()
    plain = plain or "API"
    return ("_" + plain if plain[0].isdigit() else plain)[:_LONGEST].rstrip("_")


def tag(text: Any) -> str | None:
    """A tag of the manifest's form, or None when nothing is left."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", str(text)).strip("-")[:_LONGEST]
    if plain and not (plain[0].isalpha() or plain[0] == "_"):
        plain = f"_{plain}"[:_LONGEST]
    return plain or None


def unique(name: str, taken: Container[str]) -> str:
    """The name, or with the first number behind it that makes it new."""
    if name not in taken:
        return name
    number = 2
    while (other := f"{name[: _LONGEST - len(str(number)) - 1]}_{number}") in taken:
        number += 1
    return other
