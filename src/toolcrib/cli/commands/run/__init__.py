"""Commands that run tools."""
