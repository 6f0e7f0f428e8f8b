"""The part of an answer that must stay: all but prose, and but what differs by run or by machine."""

from __future__ import annotations

import json
import os
import pwd
import re
from pathlib import Path
from typing import Any

TEXT = "<text>"
MACHINE = "<machine>"

PROSE = frozenset(
    [
        "allows",
        "beyond",
        "cost",
        "description",
        "detail",
        "hint",
        "instructions",
        "message",
        "reason",
        "told",
        "toolcrib/warnings",
        "touches",
        "warnings",
        "why",
    ]
)
"""Keys whose texts are words of the product; under a key with a list, each of its texts is one."""
PROSE_BY_NAME = frozenset(["unreviewed", "wrong"])
"""Keys of mappings from a name to words of the product."""
OWN = {"removed", "replaced", "cut", "altered", "added"}
"""Texts that stay under a key of `PROSE`: the reasons of AUDIT_GAP, and the fixture's own."""
TIMES = frozenset(["created", "durationMs", "expires", "ms", "seconds"])
PEOPLE = frozenset(["approver", "by", "decidedBy", "owner", "trustedBy"])
"""Keys whose value is often the person at this machine."""
PAGES = frozenset(["next", "nextCursor"])
"""Keys of the tokens by which a list goes on; they hold times."""
ENFORCEMENT = {"level", "fs", "net", "proc", "ipc", "privileges", "limits"}
"""Keys of a whole enforcement report; further ones are there where the machine cannot do something."""
MACHINES = frozenset(["sandbox", "kernel", "python", "toolcrib"])
LOWERED = frozenset(["sandbox_missing", "sandbox_unprotected", "sandbox_replaced", "sandbox_exceeded"])

PATTERNS = [
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b(?:sha256:)?[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\btcr_[\w-]{49}"), "<token>"),
]
MODEL_TEXT = re.compile(r"(Tool call failed|Invalid input|Cancelled|Warning): .*", re.DOTALL)
"""The text for a model begins so, by docs/errors.md; the rest is prose."""
CODE = re.compile(r"\b(error|warning)\[([\w-]+)\]")


def user() -> str:
    """Give the name of the person at this machine, as the product finds it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


class Normal:
    """The rule for one project: give it a document, and it gives what must stay the same."""

    def __init__(self) -> None:
        self._places: list[tuple[str, str]] = []

    def place(self, text: str | Path, name: str) -> None:
        """Have a text of this run, a folder or a port, stand as `name`; the first that fits counts."""
        self._places.append((str(text), name))

    @staticmethod
    def codes(text: str) -> list[str]:
        """Give the codes of errors and findings in a text for people, and nothing of its words."""
        return [f"{severity}[{code}]" for severity, code in CODE.findall(text)]

    def scrub(self, text: str) -> str:
        """Give a text without what differs from run to run."""
        for place, name in self._places:
            text = text.replace(place, name)
        for pattern, name in PATTERNS:
            text = pattern.sub(name, text)
        return text

    def __call__(self, value: Any, key: str = "") -> Any:
        """Give what stays of a value that stands under a key."""
        if isinstance(value, dict):
            return self._mapping(value, key)
        if isinstance(value, list):
            every = [self(one, key) for one in value]
            # How many links lead to an interpreter is the machine's own.
            return [one for one in every if not str(one).startswith("read <python>/")]
        if key == "process":
            return "<process>"
        if isinstance(value, str):
            return self._text(value, key)
        if key in TIMES and isinstance(value, float):
            return "<float>"
        return value

    def _mapping(self, value: dict[str, Any], key: str) -> Any:
        if key == "enforcement":
            return MACHINE if value.keys() >= ENFORCEMENT else dict.fromkeys(value, MACHINE)
        if key == "serverInfo":
            return value | {"version": "<version>"}
        if key in PROSE_BY_NAME:
            return {name: TEXT if isinstance(one, str) else self(one) for name, one in value.items()}
        return {self.scrub(name): self(one, name) for name, one in value.items() if name not in LOWERED}

    def _text(self, text: str, key: str) -> Any:
        if not text:
            return text
        if key in PROSE:
            return text if text in OWN else TEXT
        if key in MACHINES:
            return MACHINE
        if key in PAGES:
            return "<page>"
        if key in PEOPLE and text == user():
            return "<user>"
        if key == "text":
            return self._content(text)
        return self.scrub(text)

    def _content(self, text: str) -> Any:
        """Give the text of an MCP content block: JSON is looked into, words for the model are prose."""
        told = MODEL_TEXT.fullmatch(text)
        if told:
            return f"{told[1]}: {TEXT}"
        if text[0] in "[{":
            try:
                return {"json": self(json.loads(text))}
            except ValueError:
                pass
        return self.scrub(text)
