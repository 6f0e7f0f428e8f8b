"""Decisions about calls, and their records: policy, trust, approvals, rates, idempotency, secrets, audit."""

from toolcrib.guard.approvals.approvals import Approvals
from toolcrib.guard.approvals.deciders import may_decide
from toolcrib.guard.approvals.reasons import doubts_about
from toolcrib.guard.approvals.records import (
    Approval,
    ApprovalStatus,
    Ask,
    Grant,
    GrantScope,
    Permit,
    canonical,
)
from toolcrib.guard.audit.anchor import ANCHOR
from toolcrib.guard.audit.check import BrokenChain, Verdict, find_interrupted, verify
from toolcrib.guard.audit.line import AuditEntry, Head, encode_field, encode_fields, parse
from toolcrib.guard.audit.log import MAX_BYTES, AuditLog
from toolcrib.guard.audit.search import AuditLine, AuditQuery, AuditReader
from toolcrib.guard.idempotency import RecordedCalls
from toolcrib.guard.policy.ceiling import excess, opened
from toolcrib.guard.policy.condition import Condition
from toolcrib.guard.policy.policy import Decision, Policy, require_scope
from toolcrib.guard.policy.rules import EFFECTS, HINTS, Effect, Rule, Rules
from toolcrib.guard.rates import Rates
from toolcrib.guard.secrets.command_sources import (
    CommandSecrets,
    KeyringSecrets,
    StartHelper,
    start_unconfined,
)
from toolcrib.guard.secrets.file_sources import EnvFileSecrets, FolderSecrets, UserSecrets
from toolcrib.guard.secrets.logs import MaskingFilter
from toolcrib.guard.secrets.masking import Redactor
from toolcrib.guard.secrets.sources import (
    ChainedSecrets,
    EnvironmentSecrets,
    SecretStatus,
    UnreadableError,
    look_up,
    resolve,
)
from toolcrib.guard.secrets.streaming import BytesMasker, StreamMasker
from toolcrib.guard.trust.definitions import ReviewedDefinitions, differences
from toolcrib.guard.trust.digest import Digests, ToolDigest, changed_parts
from toolcrib.guard.trust.reviews import Review, Reviews, ReviewStatus, reviewed_parts, shown
from toolcrib.guard.trust.snapshots import Pinned, Snapshots
from toolcrib.guard.trust.tokens import Token, Tokens
from toolcrib.guard.trust.trust import Trust

__all__ = [
    "ANCHOR",
    "EFFECTS",
    "HINTS",
    "MAX_BYTES",
    "Approval",
    "ApprovalStatus",
    "Approvals",
    "Ask",
    "AuditEntry",
    "AuditLine",
    "AuditLog",
    "AuditQuery",
    "AuditReader",
    "BrokenChain",
    "BytesMasker",
    "ChainedSecrets",
    "CommandSecrets",
    "Condition",
    "Decision",
    "Digests",
    "Effect",
    "EnvFileSecrets",
    "EnvironmentSecrets",
    "FolderSecrets",
    "Grant",
    "GrantScope",
    "Head",
    "KeyringSecrets",
    "MaskingFilter",
    "Permit",
    "Pinned",
    "Policy",
    "Rates",
    "RecordedCalls",
    "Redactor",
    "Review",
    "ReviewStatus",
    "ReviewedDefinitions",
    "Reviews",
    "Rule",
    "Rules",
    "SecretStatus",
    "Snapshots",
    "StartHelper",
    "StreamMasker",
    "Token",
    "Tokens",
    "ToolDigest",
    "Trust",
    "UnreadableError",
    "UserSecrets",
    "Verdict",
    "canonical",
    "changed_parts",
    "differences",
    "doubts_about",
    "encode_field",
    "encode_fields",
    "excess",
    "find_interrupted",
    "look_up",
    "may_decide",
    "opened",
    "parse",
    "require_scope",
    "resolve",
    "reviewed_parts",
    "shown",
    "start_unconfined",
    "verify",
]
