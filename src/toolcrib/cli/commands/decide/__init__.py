"""Commands for decisions: trust, review, approvals, policy, lock."""
