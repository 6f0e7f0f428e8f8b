"""Observed runs and denied access, reported as permissions."""
