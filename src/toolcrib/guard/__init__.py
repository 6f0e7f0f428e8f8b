"""Decisions about calls, and their records: policy, trust, approvals, rates, idempotency, secrets, audit."""

from typing import TYPE_CHECKING

from toolcrib.first_use import imported_on_use
from toolcrib.guard.approvals.records import Approval as Approval
from toolcrib.guard.approvals.records import ApprovalStatus, Grant, GrantScope, canonical, doubts_about
from toolcrib.guard.approvals.records import Ask as Ask
from toolcrib.guard.approvals.records import Permit as Permit
from toolcrib.guard.audit.anchor import ANCHOR
from toolcrib.guard.audit.line import AuditEntry, Head, encode_field, encode_fields
from toolcrib.guard.audit.line import parse as parse
from toolcrib.guard.audit.log import MAX_BYTES
from toolcrib.guard.audit.log import AuditLog as AuditLog
from toolcrib.guard.policy.ceiling import excess, opened
from toolcrib.guard.policy.policy import EFFECTS, HINTS, Decision, Effect, Policy, Rule, Rules, require_scope
from toolcrib.guard.secrets.masking import BytesMasker, MaskRules
from toolcrib.guard.secrets.masking import MaskingFilter as MaskingFilter
from toolcrib.guard.secrets.masking import Redactor as Redactor
from toolcrib.guard.secrets.masking import StreamMasker as StreamMasker
from toolcrib.guard.secrets.sources import (
    ChainedSecrets,
    EnvFileSecrets,
    EnvironmentSecrets,
    FolderSecrets,
    SecretStatus,
    UnreadableError,
    UserSecrets,
    among,
    look_up,
    resolve,
)
from toolcrib.guard.trust.digest import Digests, ToolDigest, changed_parts
from toolcrib.guard.trust.ledger import POLICY, SETTINGS, Ledger, Trusted
from toolcrib.guard.trust.snapshots import Pinned, Snapshots
from toolcrib.guard.trust.texts import TrustedTexts, shown
from toolcrib.guard.trust.tokens import Tokens

if TYPE_CHECKING:
    from toolcrib.guard.approvals.approvals import Approvals as Approvals
    from toolcrib.guard.audit.check import verify as verify
    from toolcrib.guard.idempotency import RecordedCalls as RecordedCalls
    from toolcrib.guard.policy.condition import Condition as Condition
    from toolcrib.guard.rates import Rates as Rates
    from toolcrib.guard.secrets.command_sources import CommandSecrets, KeyringSecrets

__getattr__ = imported_on_use(__name__, {
    "approvals.approvals": "Approvals",
    "audit.check": "verify",
    "idempotency": "RecordedCalls",
    "policy.condition": "Condition",
    "rates": "Rates",
    "secrets.command_sources": "CommandSecrets KeyringSecrets",
})  # fmt: skip
