"""The texts of a tool that a model reads: characters nobody sees, instructions dressed as descriptions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import walk
from toolcrib.spec import Tool
from toolcrib.spec.naming import INKLESS

MAX_TEXT = 20_000
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_JOINERS = "\u200c\u200d"
_BLANK = re.compile(r"[^\S\n]")
"""RE2 knows only the blanks of ASCII, and not all of them."""
_LINE_SIGNS = "\n\t\r"

_FILLER = r"[^.\n]{0,60}"
_SAYINGS = (
    r"\b(?:ignore|disregard|forget|override|bypass)\b"
    + _FILLER
    + r"\b(?:previous|prior|above|earlier|all|any"
    r"|other|system|your)\b" + _FILLER + r"\b(?:instructions?|prompts?|rules?|guidelines|messages?|tools?)\b",
    r"\b(?:do not|don't|dont|never|without)\s+(?:tell|inform|mention|notif|alert|ask)\w*\b"
    + _FILLER
    + r"\b(?:user|users|human|person|people|anyone|anybody)\b",
    r"<\s*/?\s*(?:system|important|instructions?|secret|admin|assistant|human)\s*>",
    r"\b(?:system|developer|hidden)\s+(?:prompt|instructions?)\b",
    r"\b(?:before|after|instead of|when(?:ever)?)\s+(?:you\s+)?(?:us|call|run|invok)\w*\s+(?:this|any|every"
    r"|another|the|other)\b" + _FILLER + r"\b(?:must|always|first|read|send)\b",
    r"\byou\s+(?:must|should|shall|will|need to|have to)\s+(?:always|never|first|also|now|immediately)\b",
    r"\b(?:send|post|upload|forward|leak|exfiltrate|include|append|attach)\b"
    + _FILLER
    + r"\b(?:api[ _-]?keys?|passwords?|credentials?|private keys?|access tokens?|id_rsa|ssh keys?"
    r"|conversation|chat history)\b",
    r"^\s*(?:system|assistant|human|user)\s*:\s",
    r"\b(?:you are now|act as an?|pretend to be|jailbreak)\b",
)


@cache
def _search() -> Callable[[str], Any]:
    """Return the search for any of the sayings, by an engine that is fast for so many at once."""
    import re2

    options = re2.Options()
    options.log_errors = False
    search: Callable[[str], Any] = re2.compile(f"(?im){'|'.join(_SAYINGS)}", options).search
    return search


def texts(tool: Tool) -> Iterator[tuple[KeyPath, str]]:
    """Yield every text that the model or the person asked gets to see, with its place in the manifest."""
    yield ("name",), tool.name
    yield ("description",), tool.description
    if tool.approval.reason:
        yield ("approval", "reason"), tool.approval.reason
    for at, tag in enumerate(tool.tags):
        yield ("tags", at), tag
    for at, example in enumerate(tool.examples):
        yield ("examples", at, "description"), example.description
    yield from _schema_texts(tool.input_schema, ("inputs", "schema"))
    if tool.output.schema:
        yield from _schema_texts(tool.output.schema, ("outputs", "schema"))


def hidden_characters(text: str) -> list[str]:
    """Return the characters of a text that are invisible or reorder it, each once."""
    if text.isascii():
        return sorted(set(_CONTROL.findall(text)))
    found = list(dict.fromkeys(INKLESS.findall(text[:MAX_TEXT])))
    for at, char in enumerate(text[:MAX_TEXT]):
        if char in found or char in _LINE_SIGNS:
            continue
        if unicodedata.category(char) in ("Cc", "Cf", "Co", "Zl", "Zp"):
            if char in _JOINERS and _joins(text, at):
                continue
            found.append(char)
    return found


def instructions(text: str) -> str | None:
    """Return the part of a text that reads like an instruction to the model, or None."""
    plain = text[:MAX_TEXT]
    if not plain.isascii():
        plain = INKLESS.sub("", unicodedata.normalize("NFKC", plain))
        plain = "".join(char for char in plain if unicodedata.category(char) not in ("Cf", "Cs"))
    plain = _BLANK.sub(" ", plain)
    found = _search()(plain)
    return " ".join(found.group().split()) if found is not None else None


def _joins(text: str, at: int) -> bool:
    """Return True if a joiner is between two signs that need it: emoji, or letters beyond ASCII."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if not before or not after or before.isascii() or after.isascii():
        return False
    return before == "\ufe0f" or unicodedata.category(before)[0] in "LMS"


def _schema_texts(schema: Any, start: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield descriptions, titles, comments, names of properties and options, anywhere in a schema."""
    for path, value in walk(schema, start):
        if path[-2] == "properties":
            yield path, str(path[-1])
        if isinstance(value, str) and (
            path[-1] in ("description", "title", "$comment") or path[-2] in ("enum", "examples")
        ):
            yield path, value
