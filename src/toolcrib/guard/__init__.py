"""Decides and records: the audit log, and secrets with their masking."""

from toolcrib.guard.audit import MAX_BYTES, AuditLog
from toolcrib.guard.audit_anchor import ANCHOR
from toolcrib.guard.audit_check import Problem, Verdict, verify
from toolcrib.guard.audit_line import Entry, Head, parse
from toolcrib.guard.audit_search import AuditReader, Line, Query
from toolcrib.guard.logs import MaskingFilter
from toolcrib.guard.masking import Redactor
from toolcrib.guard.secrets import EnvironmentSecrets, resolve
from toolcrib.guard.sources import (
    ChainedSecrets,
    CommandSecrets,
    EnvFileSecrets,
    FolderSecrets,
    Found,
    KeyringSecrets,
    look_up,
)
from toolcrib.guard.streaming import BytesMasker, StreamMasker

__all__ = [
    "ANCHOR",
    "MAX_BYTES",
    "AuditLog",
    "AuditReader",
    "BytesMasker",
    "ChainedSecrets",
    "CommandSecrets",
    "Entry",
    "EnvFileSecrets",
    "EnvironmentSecrets",
    "FolderSecrets",
    "Found",
    "Head",
    "KeyringSecrets",
    "Line",
    "MaskingFilter",
    "Problem",
    "Query",
    "Redactor",
    "StreamMasker",
    "Verdict",
    "look_up",
    "parse",
    "resolve",
    "verify",
]
