"""Approval by the user of the calling client, where the project's settings allow that channel."""

from __future__ import annotations

import json
from typing import Protocol

from toolcrib.errors import ToolcribError
from toolcrib.project.control.approval_service import Desk

__all__ = ["ClientDesk"]

_MOST_TEXT = 4_000
"""Characters of arguments that are shown in a question; a longer one is for the terminal."""


class Said(Protocol):
    """What a person said in a client."""

    @property
    def yes(self) -> bool:
        """Whether the call shall run."""

    @property
    def reason(self) -> str:
        """What the caller is told."""


class ClientDesk:
    """Puts the desk's questions to the user of a client, and their answers to the desk.

    The client may answer by itself, so this is only for projects that say so and are trusted. It decides on
    calls that this client made itself, once, and never on those of a token.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def question(self, approval: str) -> str | None:
        """What to ask; None where the client's user may not be the one to decide."""
        try:
            sheet = self._desk.show(approval)
        except ToolcribError:
            return None
        asked, told = sheet.approval, sheet.document
        arguments = json.dumps(told["arguments"], ensure_ascii=False)
        if asked.status != "pending" or asked.token is not None or len(arguments) > _MOST_TEXT:
            return None
        lines = [f"{asked.tool} needs approval: {told['reason']}", f"arguments: {arguments}"]
        lines += [f"may touch: {line}" for line in asked.touches]
        return "\n".join(_plain(line) for line in lines)

    def decide(self, approval: str, client: str, answer: Said) -> None:
        """Note the answer. One that does not count changes nothing: the call is refused as before."""
        try:
            asked = self._desk.show(approval).approval
            if asked.caller != client or asked.token is not None:
                return
            who = f"user of {client}"
            if answer.yes:
                self._desk.approve(approval, who, note=answer.reason, channel="elicitation")
            else:
                self._desk.deny(approval, who, answer.reason, channel="elicitation")
        except ToolcribError:
            return


def _plain(line: str) -> str:
    """One line, without characters that steer what shows it."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
