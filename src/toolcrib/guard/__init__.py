"""Decides and records: policy, trust, tokens, approvals, rates, calls made once, secrets, audit."""

from toolcrib.guard.approval import SCOPES, STATUSES, Approval, Ask, Grant, Permit, Scope, Status, canonical
from toolcrib.guard.approvals import Approvals, may_decide
from toolcrib.guard.audit import AuditLog
from toolcrib.guard.audit_check import Problem, Verdict, verify
from toolcrib.guard.audit_line import Entry, Head, parse
from toolcrib.guard.condition import Condition
from toolcrib.guard.digest import Digests, ToolDigest, tool_digest
from toolcrib.guard.policy import Decision, Policy, Step, require_scope
from toolcrib.guard.rates import Lease, Rates
from toolcrib.guard.recorded import RecordedCalls
from toolcrib.guard.rules import EFFECTS, HINTS, Effect, Rule, Rules
from toolcrib.guard.secrets import EnvironmentSecrets, Redactor, resolve
from toolcrib.guard.tokens import Token, Tokens
from toolcrib.guard.trust import DEFAULT_TTL_HOURS, Trust, Trusted, Weakening, narrowed, weakening

__all__ = [
    "DEFAULT_TTL_HOURS",
    "EFFECTS",
    "HINTS",
    "SCOPES",
    "STATUSES",
    "Approval",
    "Approvals",
    "Ask",
    "AuditLog",
    "Condition",
    "Decision",
    "Digests",
    "Effect",
    "Entry",
    "EnvironmentSecrets",
    "Grant",
    "Head",
    "Lease",
    "Permit",
    "Policy",
    "Problem",
    "Rates",
    "RecordedCalls",
    "Redactor",
    "Rule",
    "Rules",
    "Scope",
    "Status",
    "Step",
    "Token",
    "Tokens",
    "ToolDigest",
    "Trust",
    "Trusted",
    "Verdict",
    "Weakening",
    "canonical",
    "may_decide",
    "narrowed",
    "parse",
    "require_scope",
    "resolve",
    "tool_digest",
    "verify",
    "weakening",
]
