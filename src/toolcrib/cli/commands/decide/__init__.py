"""Commands for decisions: trust, approvals, policy."""
