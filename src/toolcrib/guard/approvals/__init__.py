"""Approvals: requests, decisions and standing grants."""
