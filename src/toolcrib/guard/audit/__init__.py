"""The audit log: one append-only file per project."""
