"""Decides and records: policy, trust and tokens, the audit log, and secrets with their masking."""

from toolcrib.guard.audit import AuditLog
from toolcrib.guard.audit_check import Problem, Verdict, verify
from toolcrib.guard.audit_line import Entry, Head, parse
from toolcrib.guard.condition import Condition
from toolcrib.guard.policy import Decision, Policy, Step, require_scope
from toolcrib.guard.rules import EFFECTS, HINTS, Effect, Rule, Rules
from toolcrib.guard.secrets import EnvironmentSecrets, Redactor, resolve
from toolcrib.guard.tokens import Token, Tokens
from toolcrib.guard.trust import DEFAULT_TTL_HOURS, Trust, Trusted, Weakening, narrowed, weakening

__all__ = [
    "DEFAULT_TTL_HOURS",
    "EFFECTS",
    "HINTS",
    "AuditLog",
    "Condition",
    "Decision",
    "Effect",
    "Entry",
    "EnvironmentSecrets",
    "Head",
    "Policy",
    "Problem",
    "Redactor",
    "Rule",
    "Rules",
    "Step",
    "Token",
    "Tokens",
    "Trust",
    "Trusted",
    "Verdict",
    "Weakening",
    "narrowed",
    "parse",
    "require_scope",
    "resolve",
    "verify",
    "weakening",
]
