"""The texts of a tool that a model reads: characters nobody sees, instructions dressed as descriptions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.spec import Tool
from toolcrib.spec.naming import INKLESS

MAX_TEXT = 20_000
MAX_TEXTS = 2_000
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_JOINERS = "\u200c\u200d"
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
_INSTRUCTIONS = tuple(re.compile(saying, re.IGNORECASE | re.MULTILINE) for saying in _SAYINGS)


@cache
def _any_instruction() -> Callable[[str], Any]:
    """All sayings in one pattern. In ASCII text it finds whatever one of them finds."""
    import re2

    options = re2.Options()
    options.log_errors = False
    search: Callable[[str], Any] = re2.compile(f"(?im){'|'.join(_SAYINGS)}", options).search
    return search


def is_plain(tool: Tool) -> bool:
    """Return True if a quick look shows that the texts of a tool are harmless.

    It looks at more than the texts: at the schemas as JSON, of which each text becomes a line of its own.
    What may look another way there than in the manifest is not plain.
    """
    import orjson

    seen = [
        tool.name,
        tool.description,
        tool.approval.reason,
        tool.tags,
        tool.input_schema,
        tool.output.schema,
    ]
    seen += [example.description for example in tool.examples]
    try:
        flat = orjson.dumps(seen).decode()
    except TypeError:
        return False
    flat = flat.replace("\\n", "\n").replace('\\"', "'").replace('"', "\n")
    if not flat.isascii() or "\\" in flat or "\x7f" in flat or len(flat) > MAX_TEXT:
        return False
    return _any_instruction()(flat) is None


def texts(tool: Tool) -> Iterator[tuple[KeyPath, str]]:
    """Every text that the model or the person asked gets to see, with its place in the manifest."""
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
    """The characters of a text that are not seen or change the order of what is seen, each once."""
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
    """The part of a text that reads like an instruction to the model, or None."""
    plain = unicodedata.normalize("NFKC", text[:MAX_TEXT])
    plain = (
        "".join(char for char in INKLESS.sub("", plain) if unicodedata.category(char) != "Cf")
        if not plain.isascii()
        else plain
    )
    for pattern in _INSTRUCTIONS:
        found = pattern.search(plain)
        if found is not None:
            return " ".join(found.group().split())
    return None


def _joins(text: str, at: int) -> bool:
    """Return True if a joiner is between two signs that need it: emoji, or letters beyond ASCII."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if not before or not after or before.isascii() or after.isascii():
        return False
    return before == "\ufe0f" or unicodedata.category(before)[0] in "LMS"


def _schema_texts(schema: Any, start: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Descriptions, titles, comments, names of properties and options, anywhere in a schema."""
    waiting: list[tuple[KeyPath, Any]] = [(start, schema)]
    count = 0
    while waiting and count < MAX_TEXTS:
        path, node = waiting.pop()
        if isinstance(node, dict):
            for key in ("description", "title", "$comment"):
                if isinstance(node.get(key), str):
                    count += 1
                    yield (*path, key), node[key]
            for key, inner in reversed(node.items()):
                if path[-1] == "properties":
                    yield (*path, key), key
                waiting.append(((*path, key), inner))
        elif isinstance(node, list):
            waiting += [((*path, at), node[at]) for at in range(len(node) - 1, -1, -1)]
        elif isinstance(node, str) and isinstance(path[-1], int) and path[-2] in ("enum", "examples"):
            count += 1
            yield path, node
