"""Approvals: requests, decisions and lasting grants."""
