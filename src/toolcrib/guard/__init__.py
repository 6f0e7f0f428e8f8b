"""Decides and records: the audit log, and secrets with their masking."""

from toolcrib.guard.audit import AuditLog
from toolcrib.guard.audit_check import Problem, Verdict, verify
from toolcrib.guard.audit_line import Entry, Head, parse
from toolcrib.guard.secrets import EnvironmentSecrets, Redactor, resolve

__all__ = [
    "AuditLog",
    "Entry",
    "EnvironmentSecrets",
    "Head",
    "Problem",
    "Redactor",
    "Verdict",
    "parse",
    "resolve",
    "verify",
]
