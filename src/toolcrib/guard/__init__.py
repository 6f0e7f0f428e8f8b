"""Decides and records: approvals, rates, calls made once, the audit log, secrets with their masking."""

from toolcrib.guard.approval import SCOPES, STATUSES, Approval, Ask, Grant, Permit, Scope, Status, canonical
from toolcrib.guard.approvals import Approvals, may_decide
from toolcrib.guard.audit import AuditLog
from toolcrib.guard.audit_check import Problem, Verdict, verify
from toolcrib.guard.audit_line import Entry, Head, parse
from toolcrib.guard.digest import Digests, ToolDigest, tool_digest
from toolcrib.guard.rates import Lease, Rates
from toolcrib.guard.recorded import RecordedCalls
from toolcrib.guard.secrets import EnvironmentSecrets, Redactor, resolve

__all__ = [
    "SCOPES",
    "STATUSES",
    "Approval",
    "Approvals",
    "Ask",
    "AuditLog",
    "Digests",
    "Entry",
    "EnvironmentSecrets",
    "Grant",
    "Head",
    "Lease",
    "Permit",
    "Problem",
    "Rates",
    "RecordedCalls",
    "Redactor",
    "Scope",
    "Status",
    "ToolDigest",
    "Verdict",
    "canonical",
    "may_decide",
    "parse",
    "resolve",
    "tool_digest",
    "verify",
]
