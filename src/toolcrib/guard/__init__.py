"""Decides and records: the audit log, and secrets with their masking."""

from toolcrib.guard.audit import MAX_BYTES, AuditLog
from toolcrib.guard.audit_anchor import ANCHOR
from toolcrib.guard.audit_check import Problem, Verdict, verify
from toolcrib.guard.audit_line import Entry, Head, parse
from toolcrib.guard.audit_search import AuditReader, Line, Query
from toolcrib.guard.masking import Redactor
from toolcrib.guard.secrets import EnvironmentSecrets, resolve
from toolcrib.guard.streaming import BytesMasker, StreamMasker

__all__ = [
    "ANCHOR",
    "MAX_BYTES",
    "AuditLog",
    "AuditReader",
    "BytesMasker",
    "Entry",
    "EnvironmentSecrets",
    "Head",
    "Line",
    "Problem",
    "Query",
    "Redactor",
    "StreamMasker",
    "Verdict",
    "parse",
    "resolve",
    "verify",
]
