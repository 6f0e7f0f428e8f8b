"""Approvals that people decide on where the question was sent to them: by a button in a chat, or a link.

Each message has a stamp, which only this user's processes can make: a MAC of the approval as it was shown,
the person and the account. So an answer counts only for what this account was asked.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote
from uuid import UUID

from toolcrib.errors import DeniedError, InvalidToken, NotFoundError, ToolcribError
from toolcrib.guard.approvals.approvals import may_decide
from toolcrib.guard.approvals.records import Approval
from toolcrib.project.config.settings import Config
from toolcrib.project.control.approvals import ApprovalService, ApprovalSheet
from toolcrib.spec.record import record

_PURPOSE = b"toolcrib approvals in chats"
_MAC_BYTES = 16
"""With an id, a stamp has 54 characters: a button of Telegram takes 64 bytes."""


@record
class Account:
    """The account of a person on a channel."""

    person: str
    channel: str
    id: str

    def __str__(self) -> str:
        return f"{self.channel}:{self.id}"


class ChatApprovals:
    """The approvals of a project as people meet them in their chats."""

    def __init__(self, service: ApprovalService, config: Config, key: Callable[[], bytes]) -> None:
        self.service, self._config, self._key = service, config, key
        self.accounts = {
            account: Account(person, *account.split(":", 1))
            for person, accounts in config.approval_people
            for account in accounts
            if account.partition(":")[0] in config.approval_channels
        }

    def recipients(self, approval: Approval) -> list[Account]:
        """Return the accounts of a call's owner; if the owner has none that may decide, those of others."""
        found = []
        for account in self.accounts.values():
            with suppress(ToolcribError):
                own = self._config.self_approval
                may_decide(approval, None, person=account.person, self_approval=own)
                found.append(account)
        return [one for one in found if one.person == approval.owner] or found

    def stamp(self, approval: Approval, account: Account) -> str:
        """Return the stamp of a message about this approval, as it is now, to this account."""
        parts = [approval.id, approval.seal, account.person, account.channel, account.id]
        key = hmac.digest(self._key(), _PURPOSE, "sha256")
        mac = hmac.digest(key, json.dumps(parts).encode(), "sha256")[:_MAC_BYTES]
        return f"{UUID(approval.id).hex}{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"

    def path(self, approval: Approval, account: Account) -> str:
        """Return the path of the page that asks this person."""
        return f"/asked/{self.stamp(approval, account)}/{account.channel}/{quote(account.id, safe='')}"

    def asked(self, stamp: str, name: str) -> tuple[Approval, Account]:
        """Return what this account was asked. Raises DeniedError, InvalidToken and NotFoundError."""
        account = self.accounts.get(name)
        if account is None:
            raise DeniedError(
                f"{name} may not approve calls of this project",
                hint="Those who may are in approvals.people of its settings.",
            )
        try:
            approval = self.service.show(str(UUID(stamp[:32]))).approval
        except (ValueError, NotFoundError):
            raise InvalidToken("this answer is to no question of this project") from None
        if not hmac.compare_digest(stamp.encode(), self.stamp(approval, account).encode()):
            raise InvalidToken(f"this answer is not to a question that {name} was asked")
        return approval, account

    def decide(self, stamp: str, name: str, *, approve: bool, note: str = "") -> ApprovalSheet:
        """Take the answer of an account, `CHANNEL:ID`. One to a question that does not count is written down.

        Raises as `asked` and `ApprovalService.approve` do.
        """
        try:
            approval, account = self.asked(stamp, name)
            take = self.service.approve if approve else self.service.deny
            return take(approval.id, account.person, note=note, seal=approval.seal, channel=name)
        except ToolcribError as error:
            # Anybody may send this: an answer to no question at all must not fill the log.
            with suppress(ValueError, NotFoundError):
                waits = self.service.show(str(UUID(stamp[:32]))).approval
                self.service.refuse(waits.id, name, error.message)
            raise
