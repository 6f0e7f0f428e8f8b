"""Approval by the user of the calling client, where the project's settings allow that channel."""

from __future__ import annotations

import json
from typing import Protocol

from toolcrib.errors import ToolcribError
from toolcrib.guard import shown
from toolcrib.project.control.approvals.service import ApprovalService

_DENIED_S = 600.0
"""Seconds that a denial counts, unless the user chose not to be asked again."""
_MAX_TEXT = 4_000
"""Characters of arguments, and of code, that are shown in a question; a longer one is for the terminal."""


class ClientAnswer(Protocol):
    """The answer of a client's user."""

    @property
    def approved(self) -> bool:
        """True if the call may run."""

    @property
    def reason(self) -> str:
        """A note for the caller."""

    @property
    def dont_ask_again(self) -> bool:
        """True if a denial counts as long as the call would have waited."""


class Elicitation:
    """Asks the user of a client for approval, and passes on the answer.

    The client may answer by itself, so this is only for trusted projects whose settings allow it. The user
    decides once, on calls that this client made itself, and never on calls made with a token.
    """

    def __init__(self, service: ApprovalService) -> None:
        self._service = service

    def question(self, approval: str) -> str | None:
        """Return the question to ask; None if the client's user may not decide on this call."""
        try:
            sheet = self._service.show(approval)
        except ToolcribError:
            return None
        asked, document = sheet.approval, sheet.document
        arguments = json.dumps(document["arguments"], ensure_ascii=False)
        if asked.status != "pending" or asked.token is not None or len(arguments) > _MAX_TEXT:
            return None
        facts = self._service.facts(sheet)
        by = f" ({facts['reason_by']} wrote this reason)" if facts.get("reason_by") else ""
        lines = [f"{asked.tool} needs approval: {document['reason']}{by}", f"arguments: {arguments}"]
        if facts:
            lines.append(f"description: {facts['description']}")
            lines.append(f"made by {facts['made_by']}, ran {facts['ran']} times")
            code = [f"would run: {json.dumps(facts['would'], ensure_ascii=False)}"] if facts["would"] else []
            code += facts["review"]
            if sum(map(len, code)) > _MAX_TEXT:
                return None
            lines += code
        lines += [f"may touch: {line}" for line in asked.touches]
        lines.append(
            f'If you deny it, that counts for 10 minutes, or with "Don\'t ask again" until'
            f" {document['expires_at']}."
        )
        # No text of a caller or a manifest may look like a further line of the question.
        return "\n".join(shown(line).replace("\n", "\\n").replace("\t", "\\t") for line in lines)

    def decide(self, approval: str, client: str, answer: ClientAnswer) -> None:
        """Take the answer. If it does not count, nothing changes: the call is refused as before."""
        try:
            # Looked up again: if the tool has changed while the user decided, this makes the approval void.
            asked = self._service.show(approval).approval
            if asked.caller != client or asked.token is not None:
                return
            who = f"user of {client}"
            if answer.approved:
                self._service.approve(approval, who, note=answer.reason, channel="elicitation")
            else:
                hold_s = None if answer.dont_ask_again else _DENIED_S
                self._service.deny(approval, who, answer.reason, hold_s, channel="elicitation")
        except ToolcribError:
            return
